"""Classify errors of client libraries: the request was never sent, or the other side is out of service.

Every library has classes of its own for this. They are known by name, so that none of these libraries is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

# Errors of libraries that open connections, which prove that none was opened: by package, each with its subclasses.
_NOT_CONNECTED: Mapping[str, frozenset[str]] = {
    "builtins": frozenset({"ConnectionRefusedError"}),
    "socket": frozenset({"gaierror", "herror"}),
    **dict.fromkeys(
        ("httpx", "httpx2", "httpcore", "httpcore2"),
        frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol"}),
    ),
    "aiohttp": frozenset({"ClientConnectorError", "ConnectionTimeoutError"}),
    "urllib3": frozenset({"NewConnectionError", "ConnectTimeoutError", "NameResolutionError"}),
    "requests": frozenset({"ConnectTimeout"}),
    "botocore": frozenset({"EndpointConnectionError", "ConnectTimeoutError"}),
}
# Errors of the same libraries that tell of an outage, before or after something was sent.
_OUTAGE: Mapping[str, frozenset[str]] = {
    "builtins": frozenset({"ConnectionError"}),
    **dict.fromkeys(("httpx", "httpx2"), frozenset({"TransportError"})),
    **dict.fromkeys(("httpcore", "httpcore2"), frozenset({"NetworkError", "TimeoutException", "ProtocolError"})),
    "aiohttp": frozenset({"ClientConnectionError", "ClientPayloadError"}),
    "urllib3": frozenset({"TimeoutError", "ProtocolError", "NewConnectionError", "MaxRetryError"}),
    "requests": frozenset({"ConnectionError", "Timeout", "ChunkedEncodingError"}),
    "botocore": frozenset({"HTTPClientError"}),
}


def is_not_connected(error: BaseException) -> bool:
    """Return whether an error, or one that it was raised from, proves that no connection was opened."""
    return any(_is_one_of(cause, _NOT_CONNECTED) for cause in _causes(error))


def is_outage(error: BaseException) -> bool:
    """Return whether an error of a client library reports an outage of the other side."""
    return _is_one_of(error, _OUTAGE) or _is_one_of(error, _NOT_CONNECTED)


def _is_one_of(error: BaseException, table: Mapping[str, frozenset[str]]) -> bool:
    return any(
        each.__name__ in table.get(each.__module__.partition(".")[0], frozenset()) for each in type(error).__mro__
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
