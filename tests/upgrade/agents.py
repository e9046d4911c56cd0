"""The agent that the runs in the dumps were started with, and the other side of its tools.

Old code made those runs and today's code goes on with them, so nothing here may change: neither a node, nor a tool, nor
a name. It imports what integrators may import, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import BaseModel, Field
from pydantic_ai.messages import ModelResponse, ToolCallPart, ToolReturnPart

from durableagents import Agent, Assistant, Context, End, Gate, Grant, Pending, ReplayClass, Sample, ToolCall, tool


class Item(BaseModel):
    name: str
    amount: int = 1


class Receipt(BaseModel):
    ref: str


class Address(BaseModel):
    street: str = Field(min_length=1)


@dataclass(frozen=True)
class Effect:
    """One request that the other side carried out."""

    run: str
    tool: str
    body: str
    key: str | None


class Outside:
    """Where effects happen. A key is carried out once; what it saw survives the upgrade beside the dump."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.urls: dict[str, str] = {}
        self.trouble: dict[str, tuple[str, BaseException | Callable[[], None]]] = {}

    def take(self, name: str, args: Item, call: ToolCall) -> Receipt:
        when, what = self.trouble.pop(name, ("", None))
        if when == "before":
            _perform(what)
        body = json.dumps(args.model_dump(), sort_keys=True)
        known = [e for e in self.effects if call.key is not None and e.key == call.key]
        assert all(e.body == body for e in known), "another body under the same key"
        if not known and name != "look":
            self.effects.append(Effect(call.run_id, name, body, call.key))
        if when == "after":
            _perform(what)
        return Receipt(ref=f"{name}:{args.name}")

    def told(self) -> dict[str, Any]:
        return {"effects": [asdict(e) for e in self.effects], "urls": dict(self.urls)}

    def remember(self, told: dict[str, Any]) -> None:
        self.effects = [Effect(**e) for e in told["effects"]]
        self.urls, self.trouble = dict(told["urls"]), {}


def _perform(what: BaseException | Callable[[], None] | None) -> None:
    if isinstance(what, BaseException):
        raise what
    if what is not None:
        what()


OUTSIDE = Outside()


def _plain(name: str, replay_class: ReplayClass, **more: Any) -> Any:
    async def function(args: Item, call: ToolCall) -> Receipt:
        return OUTSIDE.take(name, args, call)

    function.__name__ = name
    return tool(replay_class=replay_class, timeout=5, **more)(function)


def _is_dear(args: Item) -> bool:
    return args.amount >= 1000


KEYED, UNSAFE = ReplayClass.IDEMPOTENT_WITH_KEY, ReplayClass.UNSAFE_ON_REPLAY
look = _plain("look", ReplayClass.PURE)
order = _plain("order", KEYED, external_id="ref")
mail = _plain("mail", UNSAFE)
pay = _plain("pay", KEYED, gate=Gate("finance_po", "from 1000 on", when=_is_dear))


@tool(replay_class=KEYED, answers_later=True, output=Receipt, timeout=5)
async def ask(args: Item, call: ToolCall) -> Pending:
    """Takes its time."""
    assert call.callback_url is not None
    OUTSIDE.urls[call.run_id] = call.callback_url
    return Pending(receipt={"ref": OUTSIDE.take("ask", args, call).ref})


def _offline(messages: list[Any], info: Any) -> ModelResponse:
    """Looks, pays once people agree, and is done."""
    seen = sum(isinstance(part, ToolReturnPart) for message in messages for part in message.parts)
    turns = [
        ("look", {"name": "offer"}),
        ("pay", {"name": "thought", "amount": 2000}),
        ("final_result", {"ref": "thought through"}),
    ]
    return ModelResponse(parts=[ToolCallPart(*turns[min(seen, 2)], tool_call_id=f"turn-{seen}")])


mind = Assistant(name="mind", instructions="Buy it.", output=Receipt, tools=[look, pay], offline=_offline)


class Wish(BaseModel):
    what: str = "end"


class Notes(BaseModel):
    what: str
    seen: list[Any] = []


agent = Agent(
    "upgraded", "1.0.0", input=Wish, state=Notes, initial=lambda wish: Notes(what=wish.what),
    tools=[look, order, mail, pay, ask],
    assistants=[mind], samples=[Sample(label="as it is", input={})],
)  # fmt: skip


@agent.node(start=True, to=["middle"])
async def begin(notes: Notes, ctx: Context) -> str:
    """A visit that is over when the database is upgraded."""
    notes.seen.append((await ctx.call(look, Item(name="catalogue"))).ref)
    notes.seen.append((await ctx.call(order, Item(name=f"first {notes.what}"))).ref)
    return "middle"


@agent.node(to=["last"])
async def middle(notes: Notes, ctx: Context) -> str:
    """A visit that is cut in the middle: what comes before is answered from the record."""
    await ctx.now()
    notes.seen.append(str(await ctx.uuid()))
    await ctx.call(order, Item(name=f"before {notes.what}"))
    notes.seen.append(await _wished(notes.what, ctx))
    return "last"


@agent.node()
async def last(notes: Notes, ctx: Context) -> End:
    await ctx.call(order, Item(name=f"last {notes.what}"))
    return End({"what": notes.what, "seen": notes.seen})


async def _wished(what: str, ctx: Context) -> Any:
    match what:
        case "gate":
            return (await ctx.call(pay, Item(name="po", amount=5000))).ref
        case "mail":
            return (await ctx.call(mail, Item(name="letter"))).ref
        case "callback":
            return (await ctx.call(ask, Item(name="form"))).ref
        case "question":
            return (await ctx.ask("legal", title="Where to?", schema=Address)).street
        case "signal":
            return await ctx.signal("go")
        case "sleep":
            await ctx.sleep(3600)
        case "operator":
            return (
                await ctx.call(
                    pay,
                    Item(name="po", amount=5000),
                    grant=Grant("1.0/9", "nobody", "plan", "hash", "user:nobody", "finance_po"),
                )
            ).ref
        case "think":
            return (await ctx.think(mind, "Buy it.")).ref
        case "branches":
            return await ctx.gather(*(_wished(each, ctx) for each in ("gate", "callback", "question", "signal")))
    return "nothing"


agent.validate()
