"""Parse the witnesses of seals that the settings name (durableagents/contrib/seals). Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

_TOKEN = "token="
_STORAGE = re.compile(r"storage:[A-Za-z0-9_-]{1,100}")
_ALLOWED = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&()*+;=%-]{1,1000}")


@dataclass(frozen=True, slots=True)
class SealWitness:
    """A witness: a file, a storage in STORAGES, or a URL with the file that contains its token.

    `name` is the address without the token.
    """

    name: str
    path: Path | None = None
    token_file: Path | None = None
    storage: str = ""


def read_witness(text: str) -> SealWitness:
    """Parse `file:///volume/seals.jsonl` or `https://witness.example.org/seals#token=/run/secrets/token`.

    Raises ValueError.
    """
    wanted = (
        "like file:///volume/seals.jsonl, storage:seals or https://witness.example.org/seals#token=/run/secrets/witness"
    )
    if not _ALLOWED.fullmatch(text):
        raise ValueError(f"{text!r} is not an address {wanted}")
    if _STORAGE.fullmatch(text):
        return SealWitness(text, storage=text.partition(":")[2])
    try:
        url = urlsplit(text)
        has_host = bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        raise ValueError(f"{text!r} is not an address {wanted}") from None
    if url.scheme == "file" and not url.netloc and url.path.startswith("/") and not url.query + url.fragment:
        if url.path.endswith("/"):
            raise ValueError(f"{text!r} names a folder: name a file in it")
        return SealWitness(text, path=Path(unquote(url.path)))
    if url.username or url.password:
        raise ValueError("the address of a witness has no user and password: name a token's file, #token=/path")
    if url.scheme not in ("https", "http") or not has_host:
        raise ValueError(f"{text!r} is not an address {wanted}")
    if not url.fragment:
        return SealWitness(text)
    token = Path(url.fragment.removeprefix(_TOKEN))
    if not url.fragment.startswith(_TOKEN) or not token.is_absolute():
        raise ValueError(f"{text!r}: after # comes token= and the absolute path of a file")
    return SealWitness(text.partition("#")[0], token_file=token)
