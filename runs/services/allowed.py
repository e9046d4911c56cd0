"""Rules for which actions a run's state allows, used by services (under the run's lock) and previews.
Pure. Some actions also check the journal or related runs when they are performed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from runs.models import ENDED, WAITING, Run, State, Wait

OVER = "It is over."
NO_DOUBT = "It has no unknown outcome to settle."
SEVERAL_DOUBTS = "It has several unknown outcomes: settle them one by one."
ANOTHER_DOUBT = "It had no unknown outcome, or several, as this was asked for: settle what it has now by itself."
FAILS_ANYWAY = "It undoes its effects, and fails or is cancelled anyway: say what became of this call."
PARKING = "Its worker is just parking it: try again in a moment."
IN_POOL = "It is in the pool already: nobody holds it, and the next worker that has its version takes it."
NOT_DUE = "It is taken by itself when its turn or its time has come."
UNDONE = "Its effects were undone, so what it did can't be gone on from: start it anew."
UNDOING = "It undoes its effects and then ends: answer what it asks, or retry it where it only waits."


@dataclass(frozen=True, slots=True)
class Stand:
    """The parts of a run's state that decide which actions are allowed.
    Stopped for an operator, at a cap, or also paused by a person; `told`: the parent that was told of its end;
    `is_in_pool`: unclaimed since its last change; `is_early`: its turn or start time has not come."""

    state: str
    is_owned: bool = False
    is_pause_asked: bool = False
    is_cancel_asked: bool = False
    is_undoing: bool = False
    is_stopped: bool = False
    asks_budget: bool = False
    is_held: bool = False
    doubts: int = 0
    told: str = ""
    is_in_pool: bool = False
    is_early: bool = False
    visit: int = 0

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    @property
    def is_left_waiting(self) -> bool:
        return self.state in WAITING and not self.is_owned and not self.doubts

    @property
    def looks_again(self) -> bool:
        return self.is_undoing and self.state in WAITING and not self.is_owned and not self.is_stopped


def stand_of(
    run: Run, *, pause_asked: bool, cancel_asked: bool, kinds: Iterable[str] = (), is_held: bool = False
) -> Stand:
    """Return a run's state with these kinds of open waits; budget waits don't count while it is undoing."""
    kinds = [kind for kind in kinds if not run.is_undoing or kind != Wait.Kind.BUDGET]
    return Stand(
        state=str(run.state),
        is_owned=run.owner is not None,
        is_pause_asked=pause_asked,
        is_cancel_asked=cancel_asked,
        is_undoing=run.is_undoing,
        is_stopped=Wait.Kind.OPERATOR in kinds,
        asks_budget=Wait.Kind.BUDGET in kinds,
        is_held=is_held,
        doubts=kinds.count(Wait.Kind.RECONCILE),
        told=str(run.parent) if run.is_told else "",
        visit=run.visit,
        is_in_pool=run.owner is None and run.ready_at is not None and run.ready_at <= run.updated_at,
        is_early=run.started_at is None and (run.is_queued or run.start_at is not None),
    )


def _pause(s: Stand) -> str | None:
    if s.has_ended or s.is_pause_asked or s.is_cancel_asked:
        return "It has been asked to pause already." if s.is_pause_asked else ""
    if s.state == State.PAUSED and (not s.asks_budget or s.is_held):
        return "Somebody has paused it already."
    return None


def _resume(s: Stand) -> str | None:
    if s.asks_budget:
        then = "resume it then" if s.is_held else "it goes on by itself"
        return f"It needs more budget: raise that, and {then}."
    if s.state != State.PAUSED and not s.is_pause_asked:
        return "Only a paused run can be resumed."
    return None


def _cancel(s: Stand) -> str | None:
    if s.has_ended or (s.is_cancel_asked and (s.is_owned or not (s.is_stopped or s.is_left_waiting))):
        return "It has been asked to cancel already." if s.is_cancel_asked else ""
    return UNDOING if s.is_undoing else None


def _retry(s: Stand) -> str | None:
    if s.has_ended and s.is_undoing:
        return UNDONE
    if s.told:
        return f"Its parent {s.told} has heard of its end and gone on: retry that one."
    if s.looks_again:
        return None
    if s.state != State.FAILED and (not s.is_stopped or s.is_cancel_asked):
        return "Only a failed run, or one that stopped for an operator, can be retried."
    return None


def _reconcile(s: Stand) -> str | None:
    if not s.doubts:
        return NO_DOUBT
    return PARKING if s.is_owned else None


def not_alike(doubts: int) -> str | None:
    """Return why a run with this many unknown outcomes can't be settled in bulk; None if it can."""
    return None if doubts == 1 else SEVERAL_DOUBTS if doubts else NO_DOUBT


def _budget(s: Stand) -> str | None:
    if s.has_ended or s.is_cancel_asked:
        return OVER
    return "It undoes its effects, and no cap keeps it from that." if s.is_undoing else None


def _models(s: Stand) -> str | None:
    return OVER if s.has_ended or s.is_cancel_asked else None


def _inject(s: Stand) -> str | None:
    if s.is_undoing or s.is_cancel_asked:
        return UNDOING if s.is_undoing else "Somebody has asked that it be cancelled."
    if s.told:
        return f"Its parent {s.told} has heard of its end and gone on: that is the one to retry."
    if s.is_owned:
        return "A worker drives it: pause it first, and wait until it stands still."
    if s.state not in (State.PAUSED, State.FAILED) and not s.is_stopped:
        return "Only a run that is paused, has failed, or stopped for an operator can."
    return None


def _requeue(s: Stand) -> str | None:
    if s.has_ended:
        return OVER
    if not s.is_owned and s.state not in (State.PENDING, State.RUNNING, State.COMPENSATING):
        return "It waits or stands still: no worker has it, and none would."
    if s.is_early and not s.is_owned:
        return NOT_DUE
    return IN_POOL if s.is_in_pool else None


def _priority(s: Stand) -> str | None:
    return OVER if s.has_ended else None


RULES: dict[str, Callable[[Stand], str | None]] = {
    "pause": _pause,
    "resume": _resume,
    "cancel": _cancel,
    "retry": _retry,
    "reconcile": _reconcile,
    "budget": _budget,
    "models": _models,
    "priority": _priority,
    "inject": _inject,
    "requeue": _requeue,
}
# Refused while another run does the same work.
ALONE = frozenset({"resume", "retry"})


def why_not(action: str, stand: Stand) -> str | None:
    """Return why this action is refused, possibly "" (the state alone says it); None if it is allowed."""
    return RULES[action](stand)
