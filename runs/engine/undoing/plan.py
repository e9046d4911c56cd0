"""Plans how a run's effects would be undone. The plan depends only on the record, so pages can show it in advance."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pydantic import BaseModel

from ledger import events as e
from runs.engine.agents import Agent
from runs.engine.canonical import plain, printable
from runs.engine.errors import describe_error
from runs.engine.tape import Attempt, Slot, Tape, payload_of
from runs.engine.tools import ReplayClass, Tool, Undo

# The events about effects, from which a plan is made.
KINDS = (
    e.ToolInvoked,
    e.UndoRegistered,
    e.ToolReturned,
    e.ToolFailed,
    e.ToolAccepted,
    e.CallbackReceived,
    e.CallbackArrivedLate,
    e.ToolAnsweredLate,
    e.ToolNotDispatched,
    e.ToolRedispatched,
    e.ToolOutcomeUnknown,
    e.ToolReconciled,
    e.WaitOpened,
    e.WaitResolved,
    e.RunRetried,
    e.ChildStarted,
    e.ChildEnded,
    e.RunCarriedOn,
    e.CancelRequested,
)
# undo: a call undoes the effect. ask: a person decides. stays: nothing is done. child: a running child is cancelled and
# undoes its own effects. reopen: a completed child is reopened to undo its own effects. run: a person decides about the
# effects before a renewal or handoff.
What = Literal["undo", "ask", "stays", "child", "reopen", "run"]
Reason = Literal["failed", "cancelled"]
IN_DOUBT = "nobody knows yet whether it happened: that is settled first"
LATE = "an answer that came late says that it happened"


@dataclass(frozen=True, slots=True)
class Effect:
    """One effect and how it is treated.

    `by` is the undoing tool, and `why` tells why the effect isn't simply undone. If this represents all effects of a
    child or an origin, `run` is that run.
    """

    what: What
    slot: str
    attempt: int
    tool: str
    external_id: str | None = None
    by: str = ""
    arguments: Any = None
    why: str = ""
    run: str = ""
    agent: str = ""
    replay_class: str = ""

    @property
    def is_in_doubt(self) -> bool:
        return self.why == IN_DOUBT

    def as_json(self) -> dict[str, Any]:
        """Return plain data for the record."""
        return asdict(self)


class Plan(BaseModel):
    """The state of the undo visit: how the run ends afterwards, and each effect, last first."""

    reason: Reason
    code: str = ""
    ends_with: Any = None
    in_flight: list[str] = []
    effects: list[dict[str, Any]] = []

    def all(self) -> list[Effect]:
        return [Effect(**each) for each in self.effects]


def is_reversible(events: Iterable[e.Event]) -> bool:
    return any(isinstance(event, (e.UndoRegistered, e.ChildStarted)) for event in events)


def at_work(events: Iterable[e.Event]) -> set[str]:
    """Return the children that were started and whose end is not recorded."""
    started: dict[tuple[str | None, int], str] = {}
    for event in events:
        if isinstance(event, e.ChildStarted):
            started[event.slot, event.attempt] = event.child
        elif isinstance(event, e.ChildEnded):
            started.pop((event.slot, event.attempt), None)
    return set(started.values())


def unsettled(tape: Tape) -> list[tuple[str, Slot]]:
    """Return the calls that can be undone but whose callback must be awaited first."""
    return [
        (name, slot)
        for name, slot in tape.slots.items()
        if slot.now.undo is not None and slot.now.is_owed and slot.now.open_wait("webhook") is not None
    ]


def in_doubt(tape: Tape) -> list[tuple[str, Slot]]:
    """Return the calls that can be undone but whose outcome is unknown."""
    return [(name, slot) for name, slot in tape.in_doubt() if slot.now.undo is not None]


def effects_of(agent: Agent | None, events: Iterable[e.Event], reversible: Collection[str] = ()) -> list[Effect]:
    """Return all recorded effects, the last one first.

    `reversible` are children and origins that have effects of their own to undo.
    """
    every = list(events)
    tape = Tape(every)
    found = [
        effect
        for name, slot in tape.slots.items()
        for number, attempt in sorted(slot.attempts.items())
        for effect in _effect(agent, name, slot, number, attempt, reversible)
    ]
    before = next((x for x in every if isinstance(x, e.RunCarriedOn)), None)
    if before is not None and before.origin in reversible:
        found.insert(0, Effect("run", "", 0, before.how, run=before.origin, why="it went on as this run"))
    return found[::-1]


def _effect(
    agent: Agent | None, name: str, slot: Slot, number: int, attempt: Attempt, reversible: Collection[str]
) -> Iterator[Effect]:
    intent = attempt.intent
    if isinstance(intent, e.ChildStarted):
        yield from _child(name, number, intent, attempt, reversible)
    if not isinstance(intent, e.ToolInvoked) or intent.replay_class == ReplayClass.PURE:
        return
    external_id = getattr(attempt.result, "external_id", None)
    known: dict[str, Any] = {
        "slot": name,
        "attempt": number,
        "tool": intent.tool,
        "external_id": external_id,
        "replay_class": intent.replay_class,
    }
    if attempt.has_happened:
        yield _undoing(agent, attempt, known)
    elif attempt.is_contradicted or (attempt.is_called_back_late and attempt.undo is not None):
        yield Effect("ask", **known, why=LATE)
    elif attempt.undo is not None and (attempt.is_owed or _is_open(attempt)):
        yield Effect("ask" if attempt.is_owed else "stays", **known, why=_unknown(attempt))


def _is_open(attempt: Attempt) -> bool:
    return attempt.outcome is None and (attempt.is_in_doubt or attempt.unknown is not None) and not attempt.is_settled


def _unknown(attempt: Attempt) -> str:
    if attempt.is_owed:
        return "the other side took the call, and has not said what came of it"
    if attempt.reconciled is not None:
        return f"{attempt.reconciled.by} left open whether it happened"
    return IN_DOUBT


def _child(
    name: str, number: int, started: e.ChildStarted, attempt: Attempt, reversible: Collection[str]
) -> Iterator[Effect]:
    """Yield a child's effect, unless the child failed or was cancelled: then it has handled its own effects."""
    ended = attempt.result
    run = str(payload_of(ended).get("run") or started.child)
    if run not in reversible or (isinstance(ended, e.ChildEnded) and ended.state != "completed"):
        return
    known: dict[str, Any] = {"slot": name, "attempt": number, "tool": "child", "run": run, "agent": started.agent}
    if ended is None:
        yield Effect("child", **known, why="it is at work: it is cancelled, and undoes what it did")
    else:
        yield Effect("reopen", **known, why="it ended well: it is reopened, and undoes what it did")


def _undoing(agent: Agent | None, attempt: Attempt, known: dict[str, Any]) -> Effect:
    registered = attempt.undo
    if registered is None:
        return Effect("stays", **known, why="no undo is declared for it")
    if agent is None:
        return Effect("undo", **known, by=registered.tool, why="its agent's version is not installed here")
    tool, undo = agent.tool(known["tool"]), agent.all_undos().get(registered.undo)
    if tool is None or undo is None:
        return Effect("ask", **known, by=registered.tool, why="the agent doesn't know any more how to undo it")
    try:
        return Effect("undo", **known, by=undo.tool.name, arguments=arguments_of(tool, undo, attempt))
    except Exception as error:  # the author's own code: a person is asked after any error
        why = printable(f"the undoing call can't be built from the record: {describe_error(error)}")
        return Effect("ask", **known, by=undo.tool.name, why=why)


def arguments_of(tool: Tool, undo: Undo, attempt: Attempt) -> Any:
    """Return the input of the undoing call for a recorded effect, as plain data.

    Raises the errors of the author's function.
    """
    stored = payload_of(attempt.intent)["arguments"]
    arguments = tool.input.model_validate(stored)
    given = undo.args(arguments, _got(tool, arguments, attempt))
    fitting = given if isinstance(given, undo.tool.input) else undo.tool.input.model_validate(given)
    return plain(fitting)


def _got(tool: Tool, model: BaseModel, attempt: Attempt) -> BaseModel:
    outcome, payload = attempt.outcome, payload_of(attempt.outcome)
    if isinstance(outcome, e.CallbackReceived):
        return tool.output_from_callback(payload_of(attempt.accepted).get("receipt"), outcome.payload)
    if isinstance(outcome, e.ToolReconciled) and "result" not in payload:
        return tool.output_from_receipt(model, payload.get("receipt"))
    return tool.output.model_validate(payload["result"])
