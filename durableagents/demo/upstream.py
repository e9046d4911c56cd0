"""HTTP for tools: the meaning of every outcome of a request, defined in one place.

* no connection: `NotSent`, which proves that nothing was sent;
* no answer, or one that asks for a retry (5xx, 429, a key in progress): `TransportError`;
* a rejected key (used with another body, or forgotten): `KeyRejected`, since the effect may already have happened;
* a refusal: `BusinessFailure` with the upstream's message;
* an answer that can't be read: `UnreadableAnswer`, a bug on one side, which stops the run with its
  traceback and can be retried with the same key.

The body is canonical JSON (RFC 8785), so a repeat sends the same bytes: upstreams bind a key to them.
"""

from __future__ import annotations

import functools
import os
import ssl
import time
from collections.abc import Callable
from typing import Any, TypeVar

import httpx
import rfc8785
from pydantic import BaseModel, ValidationError

from durableagents import BusinessFailure, KeyRejected, NotSent, ToolCall, TransportError, env
from runs.engine.steps.retry import seconds_asked
from runs.failpoints import hit

Answer = TypeVar("Answer", bound=BaseModel)

_CONNECT_SECONDS = 5.0
_MAX_PROBLEM_LENGTH = 500
# 409 is an upstream's "this key is in progress": that request may yet succeed, so it is not a refusal.
_COME_BACK = frozenset({408, 409, 425, 429})
_KEY_REJECTED = frozenset({410, 422})
_NOTHING_LEFT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
# Ours, not the network's: sending the same thing again can't help.
_OUR_MISTAKE = (httpx.UnsupportedProtocol, httpx.LocalProtocolError)


class UnreadableAnswer(Exception):
    """The upstream gave an answer that isn't part of its API. The message doesn't quote it, since it may be secret."""


async def post(path: str, body: dict[str, Any], call: ToolCall, answer: type[Answer]) -> Answer:
    """POST `body` under the call's key. Raises NotSent, TransportError, KeyRejected, BusinessFailure."""
    response = await _send(call, "POST", path, content=rfc8785.dumps(body))
    return _read(response, answer)


async def get(path: str, query: dict[str, str], call: ToolCall, answer: type[Answer]) -> Answer:
    """GET with `query`. Raises NotSent, TransportError, BusinessFailure."""
    response = await _send(call, "GET", path, params=query)
    return _read(response, answer)


async def _send(call: ToolCall, method: str, path: str, **request: Any) -> httpx.Response:
    headers = {"Accept": "application/json", "X-Run-Id": str(call.run_id)}
    if call.trace_id:
        headers["X-Trace-Id"] = str(call.trace_id)
    if call.key is not None:
        headers["Idempotency-Key"] = call.key
    if "content" in request:
        headers["Content-Type"] = "application/json"
    url = f"{env.load().sandbox_url}{path}"
    # The sender and the time by the monotonic clock, which all processes of a machine share: from them, the sandbox's
    # record shows whether a request was still under way or was sent again.
    headers["X-Sender"] = f"{os.getpid()} {time.monotonic():.6f}"
    try:
        # A client per call: a kept-alive connection that the server has closed meanwhile would turn
        # "not sent" into "no answer". trust_env: a proxy from the environment can't reach loopback.
        timeout = httpx.Timeout(call.timeout, connect=min(_CONNECT_SECONDS, call.timeout))
        hooks: dict[str, list[Callable[..., Any]]] = {"response": [functools.partial(_answering, call)]}
        async with httpx.AsyncClient(timeout=timeout, verify=_tls(), trust_env=False, event_hooks=hooks) as client:
            response = await client.request(method, url, headers=headers, **request)
    except _NOTHING_LEFT as error:
        raise NotSent(f"{url} can't be reached: {_words(error)}") from error
    except _OUR_MISTAKE:
        raise
    except httpx.RequestError as error:
        raise TransportError(f"{method} {url} got no answer: {_words(error)}") from error
    except AttributeError as error:
        # A connection that is reset just after it was made has no socket any more, which the library doesn't expect.
        if error.name != "getpeername":
            raise
        raise TransportError(f"{method} {url} got no answer: the connection was reset at once") from error
    _raise_for_status(response, method, url)
    return response


async def _answering(call: ToolCall, response: httpx.Response) -> None:
    """Crash point CP3: the upstream has acted, and only the headers of its answer have been read."""
    hit("CP3", call.tool, call.run_id)


def _raise_for_status(response: httpx.Response, method: str, url: str) -> None:
    status = response.status_code
    if 200 <= status < 300:
        return
    said, field = _problem(response)
    if status >= 500 or status in _COME_BACK:
        raise TransportError(f"{method} {url} answered {status}: {said}", retry_after=seconds_asked(response.headers))
    if status in _KEY_REJECTED and field == "Idempotency-Key":
        raise KeyRejected(said, details={"status": status})
    if 400 <= status < 500:
        details = {"status": status, **({"field": field} if field else {})}
        raise BusinessFailure(said, code=f"http_{status}", details=details)
    raise UnreadableAnswer(f"{method} {url} answered {status}, which it never does")


def _problem(response: httpx.Response) -> tuple[str, str | None]:
    """Return the problem that upstream reports, shortened, and the field it names (RFC 9457, otherwise plain text)."""
    try:
        body = response.json()
    except (ValueError, RecursionError):
        body = None
    if isinstance(body, dict):
        said, field = body.get("detail") or body.get("title"), body.get("field")
    else:
        said, field = response.text, None
    text = said.strip() if isinstance(said, str) else ""
    return (
        (text or response.reason_phrase or "no reason given")[:_MAX_PROBLEM_LENGTH],
        field[:100] if isinstance(field, str) else None,
    )


def _read(response: httpx.Response, answer: type[Answer]) -> Answer:
    try:
        return answer.model_validate_json(response.content)
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(str(part) for part in item['loc']) or 'body'}: {item['type']}"
            for item in error.errors(include_input=False, include_context=False)[:5]
        )
        message = f"{response.request.method} {response.request.url.path} answered {wrong}"
        # Not chained: pydantic's own message quotes the body.
        raise UnreadableAnswer(message) from None


@functools.cache
def _tls() -> ssl.SSLContext:
    """Return the TLS context. It is cached, because loading the certificates takes longer than a local call."""
    return ssl.create_default_context()


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
