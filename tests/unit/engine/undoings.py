"""Undoable tools of every kind, and agents that fail or wait after calling some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from durableagents import Context, Failure, Undo
from ledger import events as e
from runs.engine.agents import Agent
from runs.engine.tools import ReplayClass, Tool
from tests.unit.engine.story import Story
from tests.world import Done, Item, Notes, Outside, Toolbox, agent_of


def back(asked: Item, got: Done) -> dict[str, Any]:
    return {"name": got.ref, "amount": asked.amount}


class Reversible(Toolbox):
    """`book` is undone by a keyed call, `post` (unsafe) by one with a hook, `buy` by one with an approval from 1000,
    `rent` (answers later) by one that answers later too; `order` can't be undone.
    """

    def __init__(self, outside: Outside) -> None:
        super().__init__(outside)
        keyed, unsafe = ReplayClass.IDEMPOTENT_WITH_KEY, ReplayClass.UNSAFE_ON_REPLAY
        self.unbook = self._plain("unbook", keyed, external_id="ref")
        self.unpost = self._plain("unpost", unsafe, reconcile=self._ask_hook)
        self.refund = self._plain("refund", keyed, gate=self.pay.gate)
        self.unrent = self._later("unrent", keyed)
        self.book = self._plain("book", keyed, external_id="ref", undo=Undo(self.unbook, back))
        self.post = self._plain("post", unsafe, undo=Undo(self.unpost, back))
        self.buy = self._plain("buy", keyed, undo=Undo(self.refund, back))
        self.rent = self._later_undone("rent", Undo(self.unrent, back))

    def _later_undone(self, name: str, undo: Undo) -> Tool:
        made = self._later(name, ReplayClass.IDEMPOTENT_WITH_KEY)
        object.__setattr__(made, "undo", undo)
        return made


def failing(tools: Reversible, program: Sequence[Sequence[str]], **more: Any) -> Agent:
    async def node(state: Notes, ctx: Context) -> str:
        visit = len(state.seen)
        for i, op in enumerate(program[visit]):
            await ctx.call(getattr(tools, op), {"name": f"{visit}.{i}", "amount": 1000 if op == "buy" else 1})
        state.seen.append(visit)
        if visit + 1 == len(program):
            raise Failure("the end of it", code="no_luck")
        return "node"

    return agent_of(node, tools=tools.all(), **more)


def names(outside: Outside) -> list[str]:
    return [r.tool for r in outside.requests if r.executed]


def answer_all(story: Story, outside: Outside, *, gate: str = "approved", decision: str = "leave") -> None:
    for wait_id, wait in list(story.run.waits.items()):
        if wait.resolution is not None:
            continue
        match wait.spec.kind:
            case "timer":
                story.run.resolve(wait_id, "fired")
            case "input":
                story.run.answer({"decision": decision, "justification": "seen to by hand"}, slot=wait.spec.slot)
            case "approval":
                story.decide(gate, "because", slot=wait.spec.slot)
            case "webhook" if wait.spec.slot in outside.urls:
                story.call_back({"ref": f"{wait.spec.detail['tool']}:{wait.spec.slot}"}, slot=wait.spec.slot)
            case "reconcile":
                sent = [r for r in outside.requests if (r.slot, r.attempt) == (wait.spec.slot, wait.spec.attempt)]
                named = Item.model_validate_json(sent[0].body).name if sent else ""
                ref = f"{wait.spec.detail['tool']}:{named}"
                story.reconcile(
                    "happened" if sent else "did_not", receipt={"ref": ref} if sent else None, slot=wait.spec.slot
                )
            case _:
                pass


async def to_the_end(story: Story, outside: Outside, **answers: Any) -> str:
    for _ in range(300):
        how = await story.drive()
        if how in ("completed", "failed", "cancelled"):
            return how
        assert how != "operator", story.found
        answer_all(story, outside, **answers)
    raise AssertionError("it never ends")


def cancel(story: Story, effects: str) -> None:
    """Write what `runs.services.lifecycle.cancel` writes for a run that its worker has to end."""
    story.run.append([e.CancelRequested(by="user:olga", payload={"justification": "no more", "effects": effects})])
    story.run.is_cancel_requested = True
