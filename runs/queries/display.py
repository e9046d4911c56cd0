"""A run's status in one word, finer than its state, for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ledger.models import Head
from runs.engine.undo import UNDO_NODE
from runs.models import ENDED, Run, State, Wait
from runs.queries import progress
from runs.services.allowed import UNDONE

# The wait to show when a run has several, most urgent for people first.
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
# Statuses of waits for neither people, tools nor mere time.
_EVENTS: dict[str, str] = {
    Wait.Kind.CHILD: "waiting_children",
    Wait.Kind.SIGNAL: "waiting_signal",
    Wait.Kind.MESSAGE: "waiting_message",
}


def look(run: Run, head: Head | None, waits: Sequence[Wait]) -> str:
    """Return the status: queued, behind (others of its key), early, running, pausing, cancelling, unknown,
    stopped, exceeded, waiting_children, waiting_signal, waiting_message, renewed, handed_off, or the state's name."""
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
    """Return the agent's node that a run is at; "" for a run that is undoing or has undone its effects."""
    return "" if run.node == UNDO_NODE else run.node or ""


def undone(run: Run) -> str:
    return UNDONE if run.is_undoing and run.state in ENDED else ""


def main_wait(waits: Sequence[Wait]) -> Wait | None:
    """Return the most urgent wait."""
    return min(
        waits,
        key=lambda wait: URGENCY.index(Wait.Kind(wait.kind)) if wait.kind in URGENCY else len(URGENCY),
        default=None,
    )


def detail_text(wait: Wait | None, *names: str) -> str:
    """Return a detail's first nonempty text under these names, or ""; its content is never guaranteed."""
    detail = wait.detail if wait is not None and isinstance(wait.detail, dict) else {}
    return next((value for name in names if isinstance(value := detail.get(name), str) and value.strip()), "")


def name_of(wait: Wait | None) -> str:
    """Return a wait's title, tool or name, or at least its kind."""
    return detail_text(wait, "title", "tool", "name") or (str(wait.kind) if wait is not None else "")


def case_of(waits: Iterable[Wait]) -> str | None:
    """Return the slot of the call whose outcome a person has to settle now."""
    wait = main_wait(list(waits))
    return wait.slot if wait is not None and wait.kind == Wait.Kind.RECONCILE else None
