"""Stand-ins for tools while an agent is driven: scripted results, and a record of the calls that were sent."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from durableagents.testing.clock import Killed, Stopped
from durableagents.testing.oracle import Sent
from durableagents.testing.recorded import Record
from runs.engine.agents import Agent
from runs.engine.canonical import plain
from runs.engine.errors import BusinessFailure, NotSent
from runs.engine.tools import FOR_DISPATCH, Tool, ToolCall

Answer = Callable[[Any, ToolCall], Any]


@dataclass
class Trouble:
    """A planned failure of a tool's next call: an error or the worker's death, before or after the effect."""

    what: BaseException
    is_after: bool


@dataclass
class Hands:
    """All tools of a story. `answers` replace a tool's function: a function, or a list of results used in turn."""

    answers: Mapping[str, Any] = field(default_factory=dict)
    hooks: dict[str, Any] = field(default_factory=dict)
    record: Record | None = None
    sent: list[Sent] = field(default_factory=list)
    troubles: dict[str, deque[Trouble]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._left = {
            name: deque(given) for name, given in self.answers.items() if isinstance(given, Sequence) and given != ""
        }

    def trouble(self, tool: str, what: BaseException, *, is_after: bool) -> None:
        """Make the next call of a tool fail in this way."""
        self.troubles.setdefault(tool, deque()).append(Trouble(what, is_after))

    @contextmanager
    def on(self, agent: Agent) -> Iterator[None]:
        """Replace this agent's tools inside the `with` block.

        The fingerprint is computed beforehand, from the original functions.
        """
        agent.fingerprint()
        before = [(tool, tool.opened(FOR_DISPATCH), tool.reconcile) for tool in agent.all_tools()]
        for tool, function, _ in before:
            object.__setattr__(tool, "_function", self._in_place_of(tool, function))
            if tool.name in self.hooks or self.record is not None:
                object.__setattr__(tool, "reconcile", self._hook(tool))
        try:
            yield
        finally:
            for tool, function, hook in before:
                object.__setattr__(tool, "_function", function)
                object.__setattr__(tool, "reconcile", hook)

    def _hook(self, tool: Tool) -> Any:
        registered = self.hooks.get(tool.name)

        async def hook(args: Any, call: ToolCall) -> Any:
            answer = registered(args, call) if callable(registered) else registered
            return await answer if inspect.isawaitable(answer) else answer

        return hook

    def _in_place_of(self, tool: Tool, function: Answer) -> Answer:
        """Return a stand-in that records calls. It is async if the tool's own function is."""
        if tool.is_async:

            async def stands_in(args: BaseModel, call: ToolCall) -> Any:
                sent, after = self._leaves(tool, args, call)
                try:
                    answer = self._answer(tool, function, args, call)
                    answer = await answer if inspect.isawaitable(answer) else answer
                except Exception as error:
                    raise sent.failed(error, is_definite=isinstance(error, (BusinessFailure, NotSent))) from None
                return sent.answered(answer, after)

            return stands_in

        def stands_in_too(args: BaseModel, call: ToolCall) -> Any:
            sent, after = self._leaves(tool, args, call)
            try:
                answer = self._answer(tool, function, args, call)
            except Exception as error:
                raise sent.failed(error, is_definite=isinstance(error, (BusinessFailure, NotSent))) from None
            return sent.answered(answer, after)

        return stands_in_too

    def _leaves(self, tool: Tool, args: BaseModel, call: ToolCall) -> tuple[Sent, BaseException | None]:
        """Record the request, unless it fails before anything is sent."""
        waiting = self.troubles.get(tool.name)
        trouble = waiting.popleft() if waiting else None
        if trouble is not None and not trouble.is_after:
            raise trouble.what
        sent = Sent(tool.name, plain(args), call.key, call.slot, call.attempt, call.run_id, is_read=tool.is_pure)
        self.sent.append(sent)
        return sent, None if trouble is None else trouble.what

    def _answer(self, tool: Tool, function: Answer, args: BaseModel, call: ToolCall) -> Any:
        if self.record is not None:
            return self.record.answer_of(tool, plain(args), call)
        if tool.name not in self.answers:
            return function(args, call)
        given = self.answers[tool.name]
        if tool.name in self._left:
            if not self._left[tool.name]:
                raise Stopped(f"{tool.name} is called once more, but has no answer left: {len(given)} were given")
            given = self._left[tool.name].popleft()
        if isinstance(given, BaseException):
            raise given
        return given(args, call) if callable(given) and not isinstance(given, type) else given


def death(where: str) -> Killed:
    return Killed(where)
