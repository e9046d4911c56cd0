"""Find out the addresses of clients behind proxies.

`X-Forwarded-For` is read from the right, past trusted proxies. The first address that is not a trusted proxy is the
client's; anything to its left may be forged.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from django.conf import settings

from durableagents.server.limits import Receive, Scope, Send

Address = IPv4Address | IPv6Address
_SECURE = {"http": "https", "websocket": "wss"}
_PLAIN = {"http": "http", "websocket": "ws"}
# Longer chains of proxies don't occur and aren't read.
_MAX_HOPS = 20


class Proxies:
    """Sets the client's address and scheme in the scope, and removes the headers that they came from."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in _SECURE:
            scope = {**scope, **seen_through(scope)}
        await self._app(scope, receive, send)


def seen_through(scope: Scope) -> dict[str, Any]:
    """Return the changes to the scope that result from the proxies' headers."""
    forwarded = {
        name: [value.decode("latin-1") for key, value in scope["headers"] if key == name]
        for name in (b"x-forwarded-for", b"x-forwarded-proto")
    }
    headers = [pair for pair in scope["headers"] if not pair[0].startswith(b"x-forwarded-")]
    peer = scope["client"][0] if scope.get("client") else ""
    # A connection over a unix socket has no address. File permissions decide who may connect, so the client is the
    # proxy.
    if not (is_trusted(peer) if peer else settings.DURABLEAGENTS.proxy_networks):
        return {"headers": headers}
    client = client_behind(peer, ",".join(forwarded[b"x-forwarded-for"]))
    # the last value comes from the nearest proxy
    proto = ",".join(forwarded[b"x-forwarded-proto"]).rpartition(",")[2].strip().lower()
    scheme = {"https": _SECURE, "wss": _SECURE, "http": _PLAIN, "ws": _PLAIN}.get(proto)
    port = scope["client"][1] if scope.get("client") and client == peer else 0
    return {
        "headers": headers,
        "client": (client, port) if client else None,
        "scheme": scheme[scope["type"]] if scheme else scope.get("scheme", _PLAIN[scope["type"]]),
    }


def client_behind(peer: str, forwarded: str) -> str:
    """Return the rightmost address that isn't one of our proxies. Reading stops at an invalid address."""
    known = peer
    for text in list(reversed(forwarded.split(",")))[:_MAX_HOPS]:
        address = parsed(text)
        if address is None:
            break
        known = str(address)
        if not is_trusted(known):
            break
    return known


def is_trusted(peer: str) -> bool:
    """Return whether an address belongs to one of our proxies."""
    address = parsed(peer)
    return address is not None and any(
        address in network for network in settings.DURABLEAGENTS.proxy_networks if network.version == address.version
    )


def parsed(text: str) -> Address | None:
    """Parse an address in a form that proxies write: bare, with a port, or in brackets.

    IPv4-mapped IPv6 becomes IPv4.
    """
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    if "%" in text or len(text) > 45:
        return None
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address
