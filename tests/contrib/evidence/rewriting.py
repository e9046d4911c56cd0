"""Bundles as an attacker makes them: the same files in another ZIP file, or with another manifest and key."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from durableagents.contrib.evidence.archive import Archive
from durableagents.contrib.evidence.verify import FORMAT, MANIFEST, SIGNATURE, key_message

Files = dict[str, bytes]


def files_of(bundle: bytes) -> Files:
    """Return a bundle's files, in order."""
    with zipfile.ZipFile(io.BytesIO(bundle)) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def zipped(files: Files) -> bytes:
    """Write files as a bundle is written."""
    out = io.BytesIO()
    with Archive(out) as archive:
        for name, content in files.items():
            archive.add(name, [content])
    return out.getvalue()


def zipped_otherwise(files: Files, compression: int = zipfile.ZIP_STORED) -> bytes:
    """Write files as another program does."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def signed_again(files: Files, key: Ed25519PrivateKey | None = None) -> Files:
    """Make the manifest fit the files, signed with a key of the attacker's own, which keys.json then names."""
    key = key or Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes_raw()
    row = json.loads(files["keys.json"])[0] | {"public_key": public.hex()}
    row["signature"] = key.sign(key_message(row, b"")).hex()
    files = files | {"keys.json": json.dumps([row]).encode()}
    manifest = json.loads(files[MANIFEST])
    manifest["files"] = [
        {"name": name, "sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
        for name, content in files.items()
        if name not in (MANIFEST, SIGNATURE)
    ]
    content = json.dumps(manifest).encode()
    signature = key.sign(FORMAT.encode() + hashlib.sha256(content).digest())
    signed = {"key": row["number"], "public_key": public.hex(), "signature": signature.hex()}
    return files | {MANIFEST: content, SIGNATURE: json.dumps(signed).encode()}


def events_of(files: Files, run_id: object) -> list[Any]:
    return [json.loads(line) for line in files[f"runs/{run_id}/events.jsonl"].splitlines()]


def with_events(files: Files, run_id: object, change: Callable[[list[Any]], None]) -> Files:
    """Change a run's events."""
    events = events_of(files, run_id)
    change(events)
    text = b"".join(json.dumps(each, separators=(",", ":")).encode() + b"\n" for each in events)
    return files | {f"runs/{run_id}/events.jsonl": text}
