"""Converts model responses to a recordable form.

Malformed names, ids and texts are repaired. Unreadable arguments become text, which each loop reports under the tool's
name, so that the model corrects them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from pydantic_core import from_json

from runs.engine.assistants import Assistant
from runs.engine.canonical import canonical
from runs.engine.tools import FINAL

# Client errors that prove that no connection was opened: by package, each including its subclasses.
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
# Errors of the same libraries that indicate an outage, whether or not anything was sent.
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
    """Return whether an error, or one of its causes, proves that no connection was opened."""
    return any(_is_one_of(cause, _NOT_CONNECTED) for cause in _causes(error))


def is_outage(error: BaseException) -> bool:
    """Return whether an error of a client library reports an outage of the provider."""
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


UNNAMED = "unnamed_tool"
NOT_FINITE = "NaN and Infinity are not JSON"
MAX_ID, MAX_NAME = 36, 64
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ODD = re.compile(r"[^A-Za-z0-9_-]+")


def recordable(response: Any, tools: Collection[str], taken: Collection[str]) -> Any:
    """Return a response in recordable form, with names from `tools` and ids not yet `taken`."""
    if not isinstance(response, dict) or not isinstance(response.get("parts"), list):
        return response
    ids = set(taken)
    return _well_formed({**response, "parts": [_part(part, tools, ids) for part in response["parts"]]})


def names_of_tools(assistant: Assistant) -> list[str]:
    """Return the names that a request of this assistant allows the model to call."""
    if assistant.request is None:
        return [*(tool.name for tool in assistant.tools), FINAL]
    parameters = assistant.request.parameters
    return [tool.name for tool in (*parameters.function_tools, *parameters.output_tools)]


def ids_of_calls(messages: Sequence[Any]) -> set[str]:
    """Return the ids of all calls that the model made in a conversation."""
    return {part.tool_call_id for message in messages for part in message.parts if part.part_kind == "tool-call"}


def _part(part: Any, tools: Collection[str], ids: set[str]) -> Any:
    if not isinstance(part, dict) or part.get("part_kind") != "tool-call":
        return part
    name, id_ = _name(part.get("tool_name"), tools), _free_id(part.get("tool_call_id"), ids)
    ids.add(id_)
    return {**part, "tool_name": name, "tool_call_id": id_, "args": _arguments(part.get("args"))}


def _name(name: Any, tools: Collection[str]) -> str:
    """Return a name that every provider accepts.

    A replacement name never matches a tool, so that the call is refused.
    """
    if isinstance(name, str) and (name in tools or _NAME.fullmatch(name)):
        return name
    made = _ODD.sub("_", str(name or ""))[:MAX_NAME].strip("_") or UNNAMED
    while made in tools:
        made = f"{made[: MAX_NAME - 1]}_"
    return made


def _free_id(id_: Any, ids: Collection[str]) -> str:
    if isinstance(id_, str) and id_ and id_ not in ids and id_.isprintable():
        return id_
    base, n = _ODD.sub("_", str(id_ or ""))[: MAX_ID - 6].strip("_") or "call", len(ids) + 1
    while f"{base}_{n}" in ids:
        n += 1
    return f"{base}_{n}"


def _arguments(args: Any) -> str | dict[str, Any] | None:
    """Return a call's arguments as canonical data if possible, else as text.

    Arguments that can't be recorded become text that no loop accepts.
    """
    if args is None or args == "":
        return None
    if isinstance(args, dict):
        with suppress(ValueError):
            canonical(args)
            return args
    text = args if isinstance(args, str) else json.dumps(args, ensure_ascii=False)
    try:  # join the two halves of a surrogate pair into one character
        whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    if _is_json(text) and not _is_json(text, allow_inf_nan=False):
        return f"{NOT_FINITE}: {whole}"
    return whole


def _is_json(text: str, **how: bool) -> bool:
    try:
        from_json(text, **how)
    except ValueError:
        return False
    return True


def _well_formed(value: Any) -> Any:
    """Replace lone surrogates with U+FFFD, as decoders do."""
    match value:
        case str():
            return (
                value if value.isascii() else value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
            )
        case list():
            return [_well_formed(each) for each in value]
        case dict():
            return {_well_formed(name): _well_formed(each) for name, each in value.items()}
        case _:
            return value
