"""Rules for the actions that a run's state allows.
Services (under the run's lock) and previews use them. Pure. Some actions also check the journal or related runs when
they are performed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from runs.models import ENDED, WAITING, Run, State, Wait

OVER = "The run has ended."
NO_DOUBT = "The run has no unknown outcome to settle."
SEVERAL_DOUBTS = "The run has several unknown outcomes. Settle them individually."
ANOTHER_DOUBT = "The run's unknown outcomes have changed since this was requested. Settle them on the run's page."
FAILS_ANYWAY = "The run is undoing its effects and will end in any case. State whether this call happened."
PARKING = "A worker is parking the run. Try again in a moment."
IN_POOL = "The run is already ready: the next worker with its version will take it."
NOT_DUE = "The run has not started yet. It will start by itself at its start time."
UNDONE = "The run's effects were undone, so it can't continue. Start it again as a new run."
UNDOING = "The run is undoing its effects and will then end. Answer its questions, or retry it if it is only waiting."


@dataclass(frozen=True, slots=True)
class RunConditions:
    """The parts of a run's state that decide which actions are allowed.
    `is_stopped`: it stopped for an operator; `asks_budget`: it waits at a cap; `is_held`: a person also paused it;
    `told`: the parent to which its end was reported; `is_in_pool`: unclaimed since its last change; `is_early`: its
    turn in the queue or its start time has not come."""

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
) -> RunConditions:
    """Return a run's state, given the kinds of its open waits.
    Budget waits are ignored while the run is undoing its effects."""
    kinds = [kind for kind in kinds if not run.is_undoing or kind != Wait.Kind.BUDGET]
    return RunConditions(
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


def _pause(s: RunConditions) -> str | None:
    if s.has_ended or s.is_pause_asked or s.is_cancel_asked:
        return "A pause has already been requested." if s.is_pause_asked else ""
    if s.state == State.PAUSED and (not s.asks_budget or s.is_held):
        return "The run is already paused."
    return None


def _resume(s: RunConditions) -> str | None:
    if s.asks_budget:
        then = "resume it then" if s.is_held else "it continues by itself"
        return f"The run needs more budget. Raise it, and {then}."
    if s.state != State.PAUSED and not s.is_pause_asked:
        return "Only a paused run can be resumed."
    return None


def _cancel(s: RunConditions) -> str | None:
    if s.has_ended or (s.is_cancel_asked and (s.is_owned or not (s.is_stopped or s.is_left_waiting))):
        return "A cancel has already been requested." if s.is_cancel_asked else ""
    return UNDOING if s.is_undoing else None


def _retry(s: RunConditions) -> str | None:
    if s.has_ended and s.is_undoing:
        return UNDONE
    if s.told:
        return f"The parent {s.told} has already continued after this run ended. Retry the parent."
    if s.looks_again:
        return None
    if s.state != State.FAILED and (not s.is_stopped or s.is_cancel_asked):
        return "Only a failed run, or one that stopped for an operator, can be retried."
    return None


def _reconcile(s: RunConditions) -> str | None:
    if not s.doubts:
        return NO_DOUBT
    return PARKING if s.is_owned else None


def not_alike(unknown_outcomes: int) -> str | None:
    """Return why a run with this many unknown outcomes can't be settled in bulk; None if it can."""
    return None if unknown_outcomes == 1 else SEVERAL_DOUBTS if unknown_outcomes else NO_DOUBT


def _budget(s: RunConditions) -> str | None:
    if s.has_ended or s.is_cancel_asked:
        return OVER
    return "The run is undoing its effects, to which caps don't apply." if s.is_undoing else None


def _models(s: RunConditions) -> str | None:
    return OVER if s.has_ended or s.is_cancel_asked else None


def _inject(s: RunConditions) -> str | None:
    if s.is_undoing or s.is_cancel_asked:
        return UNDOING if s.is_undoing else "A cancel has been requested."
    if s.told:
        return f"The parent {s.told} has already continued after this run ended. Retry the parent."
    if s.is_owned:
        return "A worker is running it. Pause it first, and wait until it is paused."
    if s.state not in (State.PAUSED, State.FAILED) and not s.is_stopped:
        return "Only a run that is paused, has failed or stopped for an operator can do this."
    return None


def _requeue(s: RunConditions) -> str | None:
    if s.has_ended:
        return OVER
    if not s.is_owned and s.state not in (State.PENDING, State.RUNNING, State.COMPENSATING):
        return "The run is waiting or paused, so no worker has it or would take it."
    if s.is_early and not s.is_owned:
        return NOT_DUE
    return IN_POOL if s.is_in_pool else None


def _priority(s: RunConditions) -> str | None:
    return OVER if s.has_ended else None


RULES: dict[str, Callable[[RunConditions], str | None]] = {
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
# Also refused while a related run does the same work.
ALONE = frozenset({"resume", "retry"})


def why_not(action: str, condition: RunConditions) -> str | None:
    """Return why this action is refused; "" if the state alone explains it, None if the action is allowed."""
    return RULES[action](condition)
