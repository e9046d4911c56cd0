"""Send POST requests to addresses that people entered.

Against SSRF, every resolved address must be public or in `DURABLEAGENTS_WEBHOOK_NETWORKS`.
"""

# The name is resolved once, and the connection goes to the address that was checked, so DNS rebinding has no effect.
# Redirects and proxies aren't used. The connection is cut after `WHOLE_SECONDS`, however slow the server is.

from __future__ import annotations

import http.client
import re
import socket
import ssl
import time
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any
from urllib.parse import SplitResult, urlsplit

from django.conf import settings

from approvals.queues.who import wrong
from durableagents.outgoing.encryption import encrypt
from durableagents.outgoing.mail import SENT, Outcome, TimedConnection
from ledger.web.text_safety import line_pieces

WHOLE_SECONDS, STEP_SECONDS = 20.0, 10.0
# A server that gives no answer for SLOW_SECONDS is skipped for SILENT_SECONDS.
SLOW_SECONDS, SILENT_SECONDS = 2.0, 60.0
MAX_READ_BYTES = 64 * 1024
MAX_KEPT_BYTES = 500  # of the answer
MAX_RETRY_AFTER_SECONDS = 86_400.0
MAX_URL_LENGTH = 2000
_TEMPORARY = frozenset({408, 425, 429, 500, 502, 503, 504})
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?|\[[0-9a-f:.]+\]", re.IGNORECASE | re.ASCII)
Address = IPv4Address | IPv6Address
# IPv6 networks that embed an IPv4 address in the last four bytes: IPv4-compatible, SIIT (RFC 2765) and NAT64 (RFC
# 6052). The embedded address decides.
_EMBEDDING = tuple(map(ip_network, ("::/96", "::ffff:0:0:0/96", "64:ff9b::/96")))
# Networks that are not public according to the IANA registries, but global according to Python 3.11: protocol
# assignments, 6to4 relays, NAT64 for local use (RFC 8215), documentation (RFC 9637) and SRv6 SIDs (RFC 9602).
_RESERVED = tuple(map(ip_network, ("192.0.0.0/24", "192.88.99.0/24", "64:ff9b:1::/48", "3fff::/20", "5f00::/16")))


class AddressRefused(Exception):
    """The address is not allowed. The message is worded to follow the address in a sentence."""


def parse_url(url: str) -> SplitResult:
    """Parse a webhook's address and check its form. Raises AddressRefused."""
    if len(url) > MAX_URL_LENGTH or not url.isascii() or any(c.isspace() or not c.isprintable() for c in url):
        raise AddressRefused("is no address: plain characters without blanks, 2,000 at most")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise AddressRefused("is not an address") from None
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise AddressRefused("is not an https address")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise AddressRefused("holds a name, a password or a fragment, which are not sent")
    if not _HOST.fullmatch(parts.netloc.rpartition(":")[0] if port is not None else parts.netloc):
        raise AddressRefused("names no host")
    if parts.scheme == "http" and not settings.DURABLEAGENTS.webhook_networks:
        raise AddressRefused("is not https, so everybody on the way could read it")
    return parts


def resolve(parts: SplitResult) -> list[tuple[Any, ...]]:
    """Resolve a name and check every address it has. Raises AddressRefused, or OSError if the name is unknown."""
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for _, _, _, _, where in found:
        address = ip_address(str(where[0]).partition("%")[0])
        is_allowed = _is_allowed(address)
        if not is_allowed and not _is_public(address):
            raise AddressRefused(
                "leads inside: it is not on the public internet (allow its network with DURABLEAGENTS_WEBHOOK_NETWORKS)"
            )
        if parts.scheme == "http" and not is_allowed:
            raise AddressRefused("is not https, so everybody on the way could read it")
    if not found:
        raise AddressRefused("has no address")
    return list(found)


def store_address(url: str, *, field: str, hint: str = "an https address on the public internet") -> tuple[str, str]:
    """Return an address in its encrypted, stored form and in its displayed form. Raises InvalidInput.

    Malformed and internal addresses are refused here, and again when sending.
    """
    try:
        resolve(parse_url(url))
    except AddressRefused as error:
        raise wrong(field, str(error), hint) from None
    except (OSError, UnicodeError):
        raise wrong(field, "names a host that can't be found", hint) from None
    return encrypt(url), f"{urlsplit(url).netloc} …{url[-4:]}"


def _is_public(address: Address) -> bool:
    """Return whether an address is public.

    If it embeds an IPv4 address (mapped, translated, tunnelled), that one is checked instead.
    """
    if any(address in network for network in _RESERVED):
        return False
    inner: list[IPv4Address | None] = []
    if isinstance(address, IPv6Address):
        teredo = address.teredo
        inner = [address.ipv4_mapped, address.sixtofour, teredo[1] if teredo else None]
        if any(address in network for network in _EMBEDDING):
            inner.append(IPv4Address(address.packed[12:]))
        if address.is_site_local:
            return False
    inside = [each for each in inner if each is not None]
    return all(map(_is_public, inside)) if inside else address.is_global and not address.is_multicast


def _is_allowed(address: Address) -> bool:
    plain = address.ipv4_mapped or address if isinstance(address, IPv6Address) else address
    return any(plain.version == net.version and plain in net for net in settings.DURABLEAGENTS.webhook_networks)


# Servers that recently gave no answer to this process, with the time until which they are skipped.
_silent: dict[str, float] = {}


def post(
    url: str, body: bytes, headers: dict[str, str], *, skips_silent: bool = True, is_patient: bool = False
) -> Outcome:
    """Post a body to an untrusted address, if it is allowed. Return the outcome.

    With `skips_silent`, a server that doesn't answer is skipped for a while. With `is_patient`, only the whole attempt
    is limited in time, not each step.
    """
    began = time.monotonic()
    try:
        parts = parse_url(url)
        if skips_silent and _silent.get(parts.netloc.lower(), 0.0) > began:
            return Outcome("failed", "its server gave no answer a moment ago", retry_after=SILENT_SECONDS)
        found = resolve(parts)
    except AddressRefused as error:
        return Outcome("refused", f"the address {error}")
    except OSError as error:
        return Outcome("failed", f"the name {urlsplit(url).hostname} can't be looked up: {error}"[:300], is_down=False)
    timed = TimedConnection(began + WHOLE_SECONDS, WHOLE_SECONDS if is_patient else STEP_SECONDS)
    connection = _connection(parts, found, timed)
    try:
        with timed.limit():
            return _exchange(connection, parts, body, headers)
    except (OSError, http.client.HTTPException) as error:
        if skips_silent and time.monotonic() - began >= SLOW_SECONDS:
            _skip_for_now(parts.netloc.lower())
        return Outcome("failed", f"no answer: {type(error).__name__}: {one_line(str(error))}"[:300])
    finally:
        connection.close()


def one_line(text: str, most: int = MAX_KEPT_BYTES) -> str:
    """Return untrusted text as one line of at most `most` characters, with invisible characters made visible."""
    return "".join(f"[{piece.text}]" if piece.is_mark else piece.text for piece in line_pieces(text, most))


def _skip_for_now(server: str) -> None:
    now = time.monotonic()
    for other in [name for name, until in [*_silent.items()] if until <= now]:
        _silent.pop(other, None)
    _silent[server] = now + SILENT_SECONDS


def _exchange(
    connection: http.client.HTTPConnection, parts: SplitResult, body: bytes, headers: dict[str, str]
) -> Outcome:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"User-Agent": "durable-agents", "Accept": "*/*", **headers}
    connection.request("POST", target, body, headers)
    answer = connection.getresponse()
    text = b""
    with suppress(OSError, http.client.HTTPException):
        # reading the body lets the server finish; only the status decides the outcome
        text = answer.read(MAX_READ_BYTES)[:MAX_KEPT_BYTES]
    outcome = outcome_of(answer.status, answer.headers.get("Retry-After"))
    return replace(outcome, status=answer.status, answer=text)


def outcome_of(status: int, retry_after: str | None = None) -> Outcome:
    """Return the outcome that corresponds to a response's status."""
    if 200 <= status < 300:
        return SENT
    if 300 <= status < 400:
        return Outcome("refused", f"it answered {status}, a redirect, and redirects are not followed")
    if status in _TEMPORARY or status >= 500:
        return Outcome("failed", f"it answered {status}", retry_after=_seconds(retry_after))
    return Outcome("refused", f"it answered {status}", is_gone=status in (404, 410))


def _seconds(retry_after: str | None) -> float | None:
    """Return the seconds of a `Retry-After` header (seconds or a date), at most a day; None if invalid."""
    if not retry_after:
        return None
    if retry_after.strip().isdecimal():
        return min(float(retry_after), MAX_RETRY_AFTER_SECONDS)
    try:
        at = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    seconds = ((at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds()
    return min(max(0.0, seconds), MAX_RETRY_AFTER_SECONDS)


class _WholeHead(http.client.HTTPResponse):
    """A response whose status counts only if its header is complete. http.client also accepts a truncated header."""

    def begin(self) -> None:
        reader = self.fp
        self.fp = _HeadReader(reader)  # type: ignore[assignment]
        try:
            super().begin()
        finally:
            if self.fp is not None:
                self.fp = reader


class _HeadReader:
    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def close(self) -> None:
        self._reader.close()

    def readline(self, limit: int = -1) -> bytes:
        line: bytes = self._reader.readline(limit)
        if not line:
            raise http.client.RemoteDisconnected("the connection ended within the head of the answer")
        return line


def _connection(parts: SplitResult, found: list[tuple[Any, ...]], timed: TimedConnection) -> http.client.HTTPConnection:
    """Return a connection that uses only the checked addresses and verifies the certificate for the name."""
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)

    class Checked(http.client.HTTPConnection):
        default_port = 443 if parts.scheme == "https" else 80
        response_class = _WholeHead

        def connect(self) -> None:
            plain = timed.connect(found)
            self.sock = timed.start_tls(plain, ssl.create_default_context(), host) if parts.scheme == "https" else plain

    return Checked(f"[{host}]" if ":" in host else host, port, timeout=STEP_SECONDS)
