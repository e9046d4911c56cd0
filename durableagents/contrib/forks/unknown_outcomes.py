"""Find unknown outcomes among the effects of a run that is started again.

The same people may settle these outcomes as in the run itself, under the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from ledger.actors import Actor
from ledger.change_control import OUTCOMES, hold, is_guarded
from runs.engine.errors import JournalBroken
from runs.engine.forks import CHILD, OPEN, Evidence
from runs.engine.tape import Attempt, Tape
from runs.journal.reader import at_slot
from runs.models import ENDED, Run
from runs.services.settling.senders import MayStillSend, attested

TWO_PEOPLE = "two people must settle unknown outcomes here, and you are one"
LEAVE_UNKNOWN = "unknown: the new run asks at the call; or retry this run, and let two people settle it"


def is_for_two(by: Actor) -> bool:
    """Lock the setting, and return whether settling unknown outcomes needs two people; False for shell users."""
    if not by.is_person:
        return False
    hold()
    return is_guarded(OUTCOMES)


@dataclass(frozen=True, slots=True)
class UnknownOutcomes:
    """The unknown outcomes behind one effect: its own, or recursively those of the child run that it started.

    `at_work` lists the child runs that haven't ended. `is_partial` means that the list may be incomplete.
    """

    calls: list[Evidence]
    at_work: list[UUID]
    is_partial: bool = False

    def __bool__(self) -> bool:
        return bool(self.calls or self.at_work or self.is_partial)

    def attested(self, *, now: datetime, is_attested: bool) -> str:
        """Return the attestations about the senders, as text. Raises MayStillSend if a sender may still be sending."""
        for run in self.at_work:
            raise MayStillSend(f"Run {run}, which it started, is still active. Cancel it, or wait until it has ended.")
        words = [_attested(call, now=now, is_attested=is_attested) for call in self.calls]
        return ", ".join(dict.fromkeys(word for word in words if word))


def find_unknown(effect: Evidence, effects_of: Callable[[Run], tuple[list[Evidence], bool]]) -> UnknownOutcomes:
    """Return the unknown outcomes behind an effect.

    `effects_of` returns a run's effects, and whether there may be more.
    """
    if effect.outcome != OPEN:
        return UnknownOutcomes([], [])
    if not effect.tool.startswith(f"{CHILD}:"):
        return UnknownOutcomes([effect], [])
    child = None if effect.external_id is None else Run.objects.filter(pk=effect.external_id).first()
    if child is None:
        return UnknownOutcomes([], [], is_partial=True)
    at_work = [run.pk for run in _chain(child) if run.state not in ENDED]
    effects, is_partial = effects_of(child)
    below = [find_unknown(each, effects_of) for each in effects]
    return UnknownOutcomes(
        [call for each in below for call in each.calls],
        [*at_work, *(run for each in below for run in each.at_work)],
        is_partial or any(each.is_partial for each in below),
    )


def _chain(child: Run) -> Iterator[Run]:
    yield child
    if child.goes_on_as is not None:
        yield from child.successors().filter(turn__gt=child.turn)


def _attested(call: Evidence, *, now: datetime, is_attested: bool) -> str:
    run = Run.objects.get(pk=call.run)
    try:
        past = Tape(at_slot(run.pk, call.slot)).slot(call.slot).at(call.attempt)
    except JournalBroken:
        past = Attempt()  # there is no proof that its sender has finished
    if past.has_happened or past.is_settled:  # it ended meanwhile
        return ""
    return attested(run, call.slot, call.attempt, call.tool, past, now=now, is_attested=is_attested)
