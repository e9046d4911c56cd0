"""The current request and run of a task or thread, for log lines, problem documents and traces."""

from __future__ import annotations

import re
import secrets
from contextvars import ContextVar
from dataclasses import dataclass

MAX_REQUEST_ID = 128
_REQUEST_ID = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_REQUEST_ID}}}")
# https://www.w3.org/TR/trace-context/#traceparent-header; a later version may have further fields.
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")


@dataclass(slots=True)
class Request:
    """One request to the web process.

    `trace_id` is the caller's, or empty. `span_id` is the request's span, the parent of the runs that it starts.
    `actor` is set once the sender is authenticated.
    """

    id: str
    trace_id: str = ""
    span_id: str = ""
    parent_span_id: str = ""
    actor: str = ""


@dataclass(frozen=True, slots=True)
class Drive:
    """One claim of a run by this worker."""

    run_id: str
    trace_id: str
    epoch: int


request: ContextVar[Request | None] = ContextVar("request", default=None)
drive: ContextVar[Drive | None] = ContextVar("drive", default=None)


def request_id() -> str:
    """Return the id of the current request; empty outside of one."""
    current = request.get()
    return "" if current is None else current.id


def chosen_request_id(given: str | None) -> str:
    """Return the caller's id if it is well-formed, else a new one."""
    return given if given and _REQUEST_ID.fullmatch(given) else secrets.token_hex(16)


def new_trace_id() -> str:
    """Return the trace id of a run that starts now: the current request's, or a new one."""
    current = request.get()
    return current.trace_id if current is not None and current.trace_id else secrets.token_hex(16)


def parent_of(traceparent: str | None) -> tuple[str, str]:
    """Return trace id and span id of a W3C `traceparent`; both are empty if it is missing or invalid.

    A header that is malformed or all zeros is invalid. It is ignored, as the standard requires, because bad tracing
    headers must not make a request fail.
    """
    found = _TRACEPARENT.fullmatch(traceparent or "")
    if found is None:
        return "", ""
    version, trace, span, more = found.groups()
    if version == "ff" or (version == "00" and more):
        return "", ""
    return (trace, span) if int(trace, 16) and int(span, 16) else ("", "")
