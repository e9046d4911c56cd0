"""Record the calls that the workers of a crash test send, in a file with one JSON object per line."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ledger.redacted import masked_key
from runs import failpoints
from runs.engine.agents import registry
from runs.engine.canonical import digest_of, plain, printable
from runs.engine.errors import describe_error
from runs.engine.tools import FOR_DISPATCH, Tool, ToolCall


def install(path: Path) -> None:
    """Start recording the calls of all tools of this process. Fingerprints of versions don't change."""
    for agent in registry.agents():
        for tool in agent.all_tools():
            function = tool.opened(FOR_DISPATCH)
            if not tool.is_pure and not hasattr(function, "records_calls"):
                recorded = _record_async(function, path) if tool.is_async else _record_sync(function, path)
                recorded.author = getattr(function, "author", function)  # type: ignore[attr-defined]
                recorded.records_calls = True  # type: ignore[attr-defined]
                object.__setattr__(tool, "_function", recorded)


def _record_async(function: Callable[..., Any], path: Path) -> Callable[..., Any]:
    @functools.wraps(function)
    async def recorded(args: BaseModel, call: ToolCall) -> Any:
        _append(path, "left", args, call)
        try:
            answer = await function(args, call)
        except Exception as error:
            _append(path, "raised", args, call, error=describe_error(error))
            raise
        return _record_end(path, args, call, answer)

    return recorded


def _record_sync(function: Callable[..., Any], path: Path) -> Callable[..., Any]:
    @functools.wraps(function)
    def recorded(args: BaseModel, call: ToolCall) -> Any:
        _append(path, "left", args, call)
        try:
            answer = function(args, call)
        except Exception as error:
            _append(path, "raised", args, call, error=describe_error(error))
            raise
        return _record_end(path, args, call, answer)

    return recorded


def _record_end(path: Path, args: BaseModel, call: ToolCall, answer: Any) -> Any:
    result = answer.model_dump(mode="json") if isinstance(answer, BaseModel) else None
    _append(path, "done", args, call, result=result)
    failpoints.hit("CP3", call.tool, call.run_id)
    return answer


def _append(path: Path, what: str, args: BaseModel, call: ToolCall, **more: Any) -> None:
    line = {
        "what": what,
        "tool": call.tool,
        "key": masked_key(call.key),
        "run": call.run_id,
        "slot": call.slot,
        "attempt": call.attempt,
        "body": digest_of(plain(args)),
        "pid": os.getpid(),
    } | more
    text = json.dumps(printable(line), default=str) + "\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, text.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(path: Path) -> list[dict[str, Any]]:
    """Return the complete lines of the file."""
    if not path.exists():
        return []
    lines = path.read_text(errors="replace").split("\n")
    return [json.loads(line) for line in lines[:-1] if line.endswith("}")]


def is_recorded(tool: Tool) -> bool:
    return hasattr(tool.opened(FOR_DISPATCH), "records_calls")
