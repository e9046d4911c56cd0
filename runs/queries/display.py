"""What a run is doing, in one word: finer than its state, for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ledger.models import Head
from runs.engine.undo import UNDO_NODE
from runs.models import ENDED, Run, State, Wait
from runs.queries import progress
from runs.services.allowed import UNDONE

# The most human thing first: what a page should speak of when a run waits for several.
URGENCY = [
    Wait.Kind.RECONCILE,
    Wait.Kind.OPERATOR,
    Wait.Kind.BUDGET,
    Wait.Kind.APPROVAL,
    Wait.Kind.INPUT,
    Wait.Kind.WEBHOOK,
    Wait.Kind.SIGNAL,
    Wait.Kind.MESSAGE,
    Wait.Kind.CHILD,
    Wait.Kind.POOL,
    Wait.Kind.TIMER,
]
# What a run waits for that waits for no person and no system, where that isn't time alone.
_EVENTS: dict[str, str] = {
    Wait.Kind.CHILD: "waiting_children",
    Wait.Kind.SIGNAL: "waiting_signal",
    Wait.Kind.MESSAGE: "waiting_message",
}


def look(run: Run, head: Head | None, waits: Sequence[Wait]) -> str:
    """queued, behind (others of its key), early (its time is to come), running,
    pausing, cancelling, unknown, stopped, exceeded, waiting_children, waiting_signal, waiting_message, renewed,
    handed_off, or the state's own name."""
    if run.state not in State.values:
        return str(run.state)
    state = State(run.state)
    if state is State.COMPLETED and run.goes_on_as is not None:
        return "renewed" if run.goes_on_by == "renewal" else "handed_off"
    if state is State.WAITING_HUMAN:
        wait = main_wait(waits)
        if wait is not None and wait.kind in (Wait.Kind.RECONCILE, Wait.Kind.OPERATOR):
            return "unknown" if wait.kind == Wait.Kind.RECONCILE else "stopped"
    if state is State.PAUSED and not run.is_undoing and any(wait.kind == Wait.Kind.BUDGET for wait in waits):
        return "exceeded"
    if head is not None and state not in (State.PENDING, State.PAUSED, *ENDED):
        if head.is_cancel_requested:
            return "cancelling"
        if head.is_pause_requested:
            return "pausing"
    if progress.is_behind(run) and state is State.PENDING:
        return "behind"
    if progress.is_early(run):
        return "early"
    if state is State.PENDING or (state is State.RUNNING and run.owner is None):
        return "queued"
    if state is State.WAITING_EVENT and (wait := main_wait(waits)) is not None:
        return _EVENTS.get(wait.kind, state.value)
    return state.value


def stood_at(run: Run) -> str:
    """The node of its agent that a run stands at. Where it undoes its effects, or did, it stands at none."""
    return "" if run.node == UNDO_NODE else run.node or ""


def undone(run: Run) -> str:
    return UNDONE if run.is_undoing and run.state in ENDED else ""


def main_wait(waits: Sequence[Wait]) -> Wait | None:
    """The wait to name when there are several."""
    return min(
        waits,
        key=lambda wait: URGENCY.index(Wait.Kind(wait.kind)) if wait.kind in URGENCY else len(URGENCY),
        default=None,
    )


def detail_text(wait: Wait | None, *names: str) -> str:
    """What a wait's detail says under the first of these names that it has as text; empty if under none.

    A detail is written by the engine, by agents, and by versions of both that are gone: a page may count on nothing in
    it.
    """
    detail = wait.detail if wait is not None and isinstance(wait.detail, dict) else {}
    return next((value for name in names if isinstance(value := detail.get(name), str) and value.strip()), "")


def name_of(wait: Wait | None) -> str:
    """What is waited for, in the best words that there are: its title, its tool, or at least its kind."""
    return detail_text(wait, "title", "tool", "name") or (str(wait.kind) if wait is not None else "")


def case_of(waits: Iterable[Wait]) -> str | None:
    """The slot of the call whose outcome a person has to settle now."""
    wait = main_wait(list(waits))
    return wait.slot if wait is not None and wait.kind == Wait.Kind.RECONCILE else None
