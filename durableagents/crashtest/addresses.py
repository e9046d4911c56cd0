"""Addresses in what a crash test is told and tells: which are of this host, and how they are shown without what opens
them. Pure."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import SplitResult, unquote, urlsplit

_ADDRESS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^\s'\"<>|]+")
_SECRET = re.compile(
    r"pass|pwd|secret|token|key|auth|cred|sig|session|jwt|bearer|code|access|api|private|hash", re.IGNORECASE
)
_LONGEST_PLAIN = 24  # a longer value may be one too, whatever its name
HIDDEN = "***"


def without_secrets(text: str) -> str:
    """A text whose addresses have neither user and password, nor what their queries and fragments may keep secret."""
    return _ADDRESS.sub(lambda found: _shown(found.group()), text)


def is_here(address: str) -> bool:
    """Whether an address is one of this host alone."""
    try:
        split = urlsplit(address)
        host = split.hostname or ""
        if split.scheme not in ("http", "https"):
            return False
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _shown(address: str) -> str:
    try:
        split = urlsplit(address)
        place = _place(split)
    except ValueError:
        return f"{address.partition('://')[0]}://{HIDDEN}"
    query = "&".join(map(_part, split.query.split("&")))
    return f"{split.scheme}://{place}{split.path}{f'?{query}' if query else ''}{f'#{HIDDEN}' if split.fragment else ''}"


def _place(split: SplitResult) -> str:
    """The part after the last @: what is before it is user and password, whatever else is in it."""
    _, at, place = split.netloc.rpartition("@")
    if split.port == 0:  # and where it is no number at all, ValueError: it may be a part of a password
        raise ValueError
    return f"{HIDDEN}@{place}" if at else place


def _part(part: str) -> str:
    """One of a query's parts. What has no name is hidden, for nothing says what it is."""
    name, equals, value = part.partition("=")
    if part and (not equals or len(name) > _LONGEST_PLAIN):
        return HIDDEN
    return f"{name}={HIDDEN}" if _SECRET.search(unquote(name)) or len(value) > _LONGEST_PLAIN else part
