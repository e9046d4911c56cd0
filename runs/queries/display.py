"""Names of a run's waits and node, and the order of waits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from runs.engine.undo import UNDO_NODE
from runs.models import ENDED, Run, Wait
from runs.services.allowed import UNDONE

# The order in which a wait is chosen if a run has several: the most urgent one for people first.
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


def stood_at(run: Run) -> str:
    """Return the node that a run is at; "" for a run that is undoing or has undone its effects."""
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
    """Return the first nonempty text in a detail under these names, or "". A detail may contain anything."""
    detail = wait.detail if wait is not None and isinstance(wait.detail, dict) else {}
    return next((value for name in names if isinstance(value := detail.get(name), str) and value.strip()), "")


def name_of(wait: Wait | None) -> str:
    """Return a wait's title, tool or name, or at least its kind."""
    return detail_text(wait, "title", "tool", "name") or (str(wait.kind) if wait is not None else "")


def case_of(waits: Iterable[Wait]) -> str | None:
    """Return the slot of the call whose outcome a person must settle now."""
    wait = main_wait(list(waits))
    return wait.slot if wait is not None and wait.kind == Wait.Kind.RECONCILE else None
