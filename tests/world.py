"""People and systems outside, for tests of runs in memory and in PostgreSQL."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

from durableagents import (
    Agent,
    Assistant,
    BusinessFailure,
    Context,
    DidNotHappen,
    End,
    Gate,
    Happened,
    Pending,
    ReplayClass,
    Sample,
    ToolCall,
    tool,
)
from ledger.actors import Actor
from runs.engine.agents import registry
from runs.engine.runtime import RetryPolicy
from runs.engine.tools import Tool

# --- people -------------------------------------------------------------------------------------

SHOP = Actor("key", "shop", role="integrator", auth="api_key", address="192.0.2.1")
OLGA = Actor("user", "olga", role="operator", auth="session", address="192.0.2.2")
FIONA = Actor("user", "fiona", role="approver_finance", auth="session", address="192.0.2.3")
FRANK = Actor("user", "frank", role="approver_finance", auth="session", address="192.0.2.4")
LENA = Actor("user", "lena", role="approver_legal", auth="session", address="192.0.2.5")
LEO = Actor("user", "leo", role="approver_legal", auth="session", address="192.0.2.8")

# --- patience -----------------------------------------------------------------------------------

#: Never wait in place: the first trouble parks the run on a timer that is due at once.
AT_ONCE = RetryPolicy(first=0.0, longest=0.0, in_place=-1.0, timer_first=0.0, timer_longest=0.0)
#: Try again in place, without a pause.
IN_PLACE = RetryPolicy(first=0.0, longest=0.0, in_place=60.0, timer_first=0.0, timer_longest=0.0)


class Killed(BaseException):
    """Raised where a process dies: nothing catches it, nothing runs after it."""


# --- the systems outside ------------------------------------------------------------------------


class Item(BaseModel):
    name: str
    amount: int = 1


class Done(BaseModel):
    ref: str
    amount: int = 0


@dataclass(frozen=True)
class Request:
    tool: str
    key: str | None
    body: str
    executed: bool
    attempt: int
    slot: str


PURE = ("look", "read_file")
When = Literal["before", "after"]
Act = Callable[[ToolCall], Any]


@dataclass
class Outside:
    """The systems that tools act on: each key is executed once. `troubles` are used up one per request, in order."""

    requests: list[Request] = field(default_factory=list)
    answers: dict[str, tuple[str, Done]] = field(default_factory=dict)
    troubles: dict[str, deque[tuple[When, BaseException | Act]]] = field(default_factory=dict)
    urls: dict[str, str] = field(default_factory=dict)
    hook: Callable[[BaseModel, ToolCall], Any] | None = None

    def trouble(self, name: str, *what: BaseException | Act, when: When = "before") -> None:
        """Let the next requests to a tool raise or do these, before the effect or after it."""
        self.troubles.setdefault(name, deque()).extend((when, each) for each in what)

    def take(self, name: str, args: Item, call: ToolCall) -> Done:
        """Serve one request. A key is executed once; a second body under a key is refused."""
        when, act = self._next(name)
        if when == "before":
            _perform(act, call)
        answer = self._serve(name, args, call)
        if when == "after":
            _perform(act, call)
        return answer

    async def take_async(self, name: str, args: Item, call: ToolCall) -> Done:
        when, act = self._next(name)
        if when == "before":
            await _perform_async(act, call)
        answer = self._serve(name, args, call)
        if when == "after":
            await _perform_async(act, call)
        return answer

    def _serve(self, name: str, args: Item, call: ToolCall) -> Done:
        body = json.dumps(args.model_dump(mode="json"), sort_keys=True)
        known = self.answers.get(call.key or "")
        executed = known is None and name not in PURE
        self.requests.append(Request(name, call.key, body, executed, call.attempt, call.slot))
        if known is not None and known[0] != body:
            raise BusinessFailure("another body under the same key", code="key_reused")
        answer = known[1] if known else Done(ref=f"{name}:{args.name}", amount=args.amount)
        if call.key:
            self.answers[call.key] = (body, answer)
        return answer

    def _next(self, name: str) -> tuple[When | None, BaseException | Act | None]:
        waiting = self.troubles.get(name)
        return waiting.popleft() if waiting else (None, None)

    # --- requests seen ---

    def seen(self, name: str = "") -> list[Request]:
        return [r for r in self.requests if name in ("", r.tool)]

    def executed(self, name: str = "") -> list[str]:
        return [f"{r.tool} {r.body}" for r in self.seen(name) if r.executed]


def _perform(act: BaseException | Act | None, call: ToolCall) -> None:
    if isinstance(act, BaseException):
        raise act
    if act is not None:
        act(call)


async def _perform_async(act: BaseException | Act | None, call: ToolCall) -> None:
    if asyncio.iscoroutinefunction(act):
        await act(call)
    else:
        _perform(act, call)


# --- tools of every kind ------------------------------------------------------------------------


class Toolbox:
    """Tools that act on one `Outside`: `look` is pure, `order` keyed, `mail` unsafe, and so on."""

    def __init__(self, outside: Outside) -> None:
        self.outside = outside
        keyed, unsafe = ReplayClass.IDEMPOTENT_WITH_KEY, ReplayClass.UNSAFE_ON_REPLAY
        dear = Gate("finance_po", "orders from 1000", when=_is_dear, headline=lambda a: f"${a.amount}")
        self.look = self._plain("look", ReplayClass.PURE)
        self.order = self._plain("order", keyed, external_id="ref")
        self.mail = self._plain("mail", unsafe)
        self.pay = self._plain("pay", keyed, gate=dear, external_id="ref")
        self.wire = self._plain("wire", unsafe, gate=dear)
        self.read_file = self._plain("read_file", ReplayClass.PURE, gate=dear)
        self.hooked = self._plain("hooked", keyed, reconcile=self._ask_hook)
        self.hooked_mail = self._plain("hooked_mail", unsafe, reconcile=self._ask_hook)
        self.fax = self._blocking("fax", unsafe)
        self.ask = self._later("ask", keyed)
        self.ring = self._later("ring", unsafe)

    def _plain(self, name: str, replay_class: ReplayClass, **more: Any) -> Tool:
        async def function(args: Item, call: ToolCall) -> Done:
            return await self.outside.take_async(name, args, call)

        function.__name__ = name
        return tool(replay_class=replay_class, system="outside", effect=f"{name}s something", timeout=5, **more)(
            function
        )

    def _blocking(self, name: str, replay_class: ReplayClass) -> Tool:
        def function(args: Item, call: ToolCall) -> Done:
            return self.outside.take(name, args, call)

        function.__name__ = name
        return tool(replay_class=replay_class, timeout=5)(function)

    def _later(self, name: str, replay_class: ReplayClass) -> Tool:
        async def function(args: Item, call: ToolCall) -> Pending:
            assert call.callback_url is not None
            self.outside.urls[call.slot] = call.callback_url
            answer = await self.outside.take_async(name, args, call)
            return Pending(receipt={"ref": answer.ref})

        function.__name__ = name
        return tool(replay_class=replay_class, answers_later=True, output=Done, timeout=5)(function)

    async def _ask_hook(self, args: Item, call: ToolCall) -> Happened | DidNotHappen | None:
        found = self.outside.hook(args, call) if self.outside.hook else None
        assert found is None or isinstance(found, (Happened, DidNotHappen))
        return found

    def all(self) -> list[Tool]:
        return [value for value in vars(self).values() if isinstance(value, Tool)]


def _is_dear(args: Item) -> bool:
    if args.amount == 666:
        raise RuntimeError("the rule itself is broken")
    return args.amount >= 1000


# --- agents -------------------------------------------------------------------------------------


class Asked(BaseModel):
    """Input of a run."""

    text: str = "go"
    amount: int = 1


class Notes(BaseModel):
    """A state that takes anything."""

    asked: Asked = Asked()
    seen: list[Any] = []


NodeFunction = Callable[[Notes, Context], Awaitable[Any]]
_numbers = itertools.count(1)


def agent_of(
    *functions: NodeFunction,
    tools: Sequence[Tool] = (),
    assistants: Sequence[Assistant] = (),
    version: str = "1.0.0",
    name: str = "",
    **more: Any,
) -> Agent:
    """Return an agent with these functions as nodes; each may go to any of them, and the first one starts."""
    given: dict[str, Any] = {"input": Asked, "state": Notes, "initial": lambda asked: Notes(asked=asked)} | more
    name = name or f"story-{next(_numbers)}"
    registry.remove(f"{name}@{version}")  # the same version with other code would conflict
    agent = Agent(
        name,
        version,
        tools=list(tools),
        assistants=list(assistants),
        samples=[] if "input" in more else [Sample(label="as it is", input={})],
        **given,
    )
    names = [f.__name__ for f in functions]
    for i, function in enumerate(functions):
        agent.node(start=i == 0, to=names)(function)
    agent.validate()
    return agent


@contextmanager
def only_for_now() -> Iterator[None]:
    before = set(registry.graph_ids())
    try:
        yield
    finally:
        for graph_id in set(registry.graph_ids()) - before:
            registry.remove(graph_id)


def ends_with(value: Any) -> NodeFunction:
    async def finish(state: Notes, ctx: Context) -> End:
        return End(value)

    return finish
