"""For crash tests: each call of a tool that isn't pure is noted in a file when it leaves and when its function is over,
on disk before either goes on. And the crash point CP3 is there for any tool: its function is over, and nobody was told.

It says what left this process, not what became of it elsewhere: that only the other side's own record can say.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from runs import failpoints
from runs.engine.agents import registry
from runs.engine.canonical import digest_of, plain, printable
from runs.engine.errors import brief
from runs.engine.tools import FOR_DISPATCH, Tool, ToolCall


def install(path: Path) -> None:
    """Note the calls of every tool that this process has, from now on. A version's fingerprint stays what it is."""
    for agent in registry.agents():
        for tool in agent.all_tools():
            function = tool.opened(FOR_DISPATCH)
            if not tool.is_pure and not hasattr(function, "notes_calls"):
                noted = _awaited(function, path) if tool.is_async else _plain(function, path)
                noted.author = getattr(function, "author", function)  # type: ignore[attr-defined]
                noted.notes_calls = True  # type: ignore[attr-defined]
                object.__setattr__(tool, "_function", noted)


def _awaited(function: Callable[..., Any], path: Path) -> Callable[..., Any]:
    @functools.wraps(function)
    async def noted(args: BaseModel, call: ToolCall) -> Any:
        _note(path, "left", args, call)
        try:
            answer = await function(args, call)
        except Exception as error:
            _note(path, "raised", args, call, error=brief(error))
            raise
        return _over(path, args, call, answer)

    return noted


def _plain(function: Callable[..., Any], path: Path) -> Callable[..., Any]:
    @functools.wraps(function)
    def noted(args: BaseModel, call: ToolCall) -> Any:
        _note(path, "left", args, call)
        try:
            answer = function(args, call)
        except Exception as error:
            _note(path, "raised", args, call, error=brief(error))
            raise
        return _over(path, args, call, answer)

    return noted


def _over(path: Path, args: BaseModel, call: ToolCall, answer: Any) -> Any:
    result = answer.model_dump(mode="json") if isinstance(answer, BaseModel) else None
    _note(path, "done", args, call, result=result)
    failpoints.hit("CP3", call.tool, call.run_id)
    return answer


def _note(path: Path, what: str, args: BaseModel, call: ToolCall, **more: Any) -> None:
    line = {
        "what": what,
        "tool": call.tool,
        "key": call.key,
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
    """What was noted. A line that a death cut short says nothing."""
    if not path.exists():
        return []
    lines = path.read_text(errors="replace").split("\n")
    return [json.loads(line) for line in lines[:-1] if line.endswith("}")]


def is_noted(tool: Tool) -> bool:
    return hasattr(tool.opened(FOR_DISPATCH), "notes_calls")
