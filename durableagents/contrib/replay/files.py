"""Files of recorded visits: their format, and their encryption. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ledger import events as e
from ledger.codec import read_clear
from runs.engine.migration import FILES, STATES, UnknownFormat
from runs.engine.recordings.recording import Recording

WHAT = "durableagents checkpoint"
FULL, REDACTED, ENCRYPTED = "full", "redacted", "encrypted"


class InvalidRecording(ValueError):
    """A file that isn't a recording, is damaged, or has an unknown format; or a visit that can't be exported."""


# --- to a file --------------------------------------------------------------------------------------------------------


def file_data(recording: Recording) -> dict[str, Any]:
    """Return a recording as plain data in the newest format."""
    times = [*recording.times, *[""] * len(recording.events)]
    return {
        "what": WHAT,
        "format": FILES.now,
        "payloads": recording.payloads,
        "graph_id": recording.graph_id,
        "fingerprint": recording.fingerprint,
        "run": recording.run_id,
        "depth": recording.depth,
        "checkpoint": {
            "schema_version": STATES.now,
            "node": recording.node,
            "visit": recording.visit,
            "generation": recording.generation,
            "state": recording.state,
        },
        "created": event_as_data(recording.created),
        "before": [event_as_data(event) for event in recording.before],
        "events": [
            event_as_data(event) | ({"at": at} if at else {})
            for event, at in zip(recording.events, times, strict=False)
        ],
        "after": recording.after,
        "placeholders": list(recording.placeholders),
        "notes": list(recording.notes),
    }


def event_as_data(event: e.Event) -> dict[str, Any]:
    return {"event": read_clear(e.encode_clear(event)), "payload": event.payload}


def file_text(recording: Recording) -> str:
    """Return a file's text, with one value per line, so that files can be compared."""
    return json.dumps(file_data(recording), indent=1, ensure_ascii=False, sort_keys=True) + "\n"


# --- from a file ------------------------------------------------------------------------------------------------------


def parse_file(text: str) -> Recording:
    """Parse a file's text. Raises InvalidRecording."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidRecording(f"it is not JSON: {error}") from None
    if not isinstance(found, dict) or found.get("what") != WHAT:
        raise InvalidRecording(f"it is not a {WHAT}: create some with `manage.py checkpoints export`")
    try:
        return _read(FILES.upgraded(found.get("format"), found))
    except UnknownFormat as error:
        raise InvalidRecording(str(error)) from None
    except KeyError as error:
        raise InvalidRecording(f"it is damaged: {error} is missing, or the kind of event is unknown") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidRecording(f"it is damaged: {error}") from None


def _read(found: Mapping[str, Any]) -> Recording:
    checkpoint = found["checkpoint"]
    created = event_of(found["created"])
    if not isinstance(created, e.RunCreated) or not isinstance(checkpoint, dict):
        raise TypeError("it contains no run")
    graph_id = str(found["graph_id"])
    if graph_id != f"{created.agent}@{created.version}" and not _was_moved(graph_id, created, checkpoint, found):
        raise ValueError(f"it is for {graph_id}, but its first event is for {created.agent}@{created.version}")
    return Recording(
        run_id=str(found["run"]),
        graph_id=graph_id,
        fingerprint=str(found["fingerprint"]),
        created=created,
        node=str(checkpoint["node"]),
        visit=int(checkpoint["visit"]),
        generation=int(checkpoint["generation"]),
        state=STATES.upgraded(checkpoint["schema_version"], checkpoint["state"]),
        events=tuple(map(event_of, found["events"])),
        before=tuple(map(event_of, found["before"])),
        after=found["after"],
        depth=int(found["depth"]),
        payloads=str(found["payloads"]),
        placeholders=tuple(map(str, found["placeholders"])),
        notes=tuple(map(str, found["notes"])),
        times=tuple(str(each.get("at", "")) for each in found["events"]),
    )


def _was_moved(graph_id: str, created: e.RunCreated, checkpoint: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    is_later = checkpoint["generation"] > 0 or any(x["event"]["kind"] == "RunMigrated" for x in found["events"])
    return is_later and graph_id.partition("@")[0] == created.agent


def event_of(found: Mapping[str, Any]) -> e.Event:
    """Build an event from plain data. Raises KeyError, TypeError, ValueError."""
    metadata = dict(found["event"])
    return e.KINDS[metadata.pop("kind")](payload=found["payload"], **metadata)


def cut_after(recording: Recording, slot: str) -> Recording:
    """Cut a recording after the last event of a slot, for a generated test."""
    place = next((i for i, event in enumerate(recording.events) if event.slot == slot), None)
    if place is None or recording.ending is not None:
        return recording
    last = max(i for i, event in enumerate(recording.events) if event.slot == slot)
    return replace(recording, events=recording.events[: last + 1], times=recording.times[: last + 1])


KEY_VARIABLE = "DURABLEAGENTS_CHECKPOINTS_KEY"
_MARK = b"durableagents sealed checkpoint 1\n"
_NONCE = 12


def derive_export_key(master: bytes) -> str:
    """Derive the key for exports, as text that can be set in the environment of a replay."""
    derived = hmac.new(master, b"durableagents checkpoint exports\x00", hashlib.sha256).digest()
    return base64.urlsafe_b64encode(derived).decode()


def encrypted_file(recording: Recording, key: str) -> bytes:
    """Encrypt and authenticate a recording (AES-256-GCM)."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = secrets.token_bytes(_NONCE)
    return _MARK + nonce + AESGCM(_raw(key)).encrypt(nonce, file_text(recording).encode(), _MARK)


def load_file(found: bytes, key: str = "") -> Recording:
    """Parse the recording in a file's bytes. `key` defaults to the one in the environment. Raises InvalidRecording."""
    if not found.startswith(_MARK):
        try:
            return parse_file(found.decode())
        except UnicodeDecodeError:
            raise InvalidRecording("it is neither text nor encrypted by `checkpoints export`") from None
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    known = key or os.environ.get(KEY_VARIABLE, "")
    if not known:
        raise InvalidRecording(f"it is encrypted: set {KEY_VARIABLE} to the output of `manage.py checkpoints key`")
    body = found[len(_MARK) :]
    try:
        return parse_file(AESGCM(_raw(known)).decrypt(body[:_NONCE], body[_NONCE:], _MARK).decode())
    except InvalidTag:
        raise InvalidRecording("it can't be decrypted: it was changed, or encrypted with another key") from None
    except ValueError as error:
        raise InvalidRecording(str(error)) from None


def _raw(key: str) -> bytes:
    try:
        raw = base64.urlsafe_b64decode(key.encode())
    except (ValueError, binascii.Error):
        raw = b""
    if len(raw) != 32:
        raise InvalidRecording(f"{KEY_VARIABLE} is not a key: use the output of `manage.py checkpoints key`")
    return raw
