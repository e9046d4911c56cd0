"""What an answer is made of: a run as it stands, in a few queries or from what a page has read already."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Literal, get_args
from uuid import UUID

from ledger.actors import Actor
from ledger.errors import NotFound
from ledger.models import Head
from runs import seen as sight
from runs.fleet import agent_versions
from runs.models import ENDED, Run, State, Wait
from runs.queries import families, progress
from runs.queries.display import look, main_wait
from runs.queries.halts import halt_of, halted
from runs.services.allowed import Stand, stand_of
from runs.services.command import held_by
from runs.services.settling import agreeing
from runs.services.settling.agreeing import Proposal, newest

# Why a run doesn't move, or what does: one of these, whatever else is the matter besides.
Cause = Literal[
    "completed",
    "renewed",
    "handed_off",
    "failed",
    "cancelled",
    "damaged",
    "halted",
    "paused",
    "pausing",
    "cancelling",
    "budget",
    "unknown_outcome",
    "stopped",
    "approval",
    "question",
    "callback",
    "signal",
    "message",
    "child",
    "pool",
    "limit",
    "breaker",
    "retry_timer",
    "timer",
    "not_due",
    "behind_key",
    "no_worker",
    "no_version",
    "draining",
    "queued",
    "driven",
    "undoing",
]
CAUSES: tuple[str, ...] = get_args(Cause)


@dataclass(frozen=True, slots=True)
class Who:
    """Who must act before the run moves. `kind`: nobody (it moves, or never will again), system, outside (whoever calls
    back or sends), people: those with one of `roles`, at the `queue` if it is one's; all `but` the one whose word is on
    record and takes another one's."""

    kind: Literal["nobody", "system", "outside", "people"]
    roles: tuple[str, ...] = ()
    queue: str = ""
    name: str = ""
    but: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What shows that it is so: an event, a wait, another run. `at`: since when; `until`: how long at most."""

    what: str
    seq: int | None = None
    wait: UUID | None = None
    run: UUID | None = None
    at: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Reader:
    """Who asks, and the roles that they hold."""

    by: Actor
    held: frozenset[str]


@dataclass(frozen=True)
class Seen:
    """A run with what it waits for and who could drive it. Without a head nothing can be done to it. `find_ahead` tells
    which run of its key goes before it, where whoever asks sees that."""

    run: Run
    head: Head | None
    waits: Sequence[Wait]
    drivable: Collection[str] | None
    find_ahead: Callable[[], UUID | None]

    @cached_property
    def blocked(self) -> str | None:
        """Why nobody drives it though it wants driving."""
        return agent_versions.why_not_driven(self.run, frozenset(self.drivable or ()))

    @cached_property
    def wait(self) -> Wait | None:
        return main_wait(self.waits)

    @cached_property
    def said(self) -> Proposal | None:
        """What one of two people says became of the call that it waits for word on, while a second may agree: by what
        counts now, of two people and of the first."""
        found = None if self.wait is None else newest([self.wait]).get(self.wait.pk)
        stands = found is not None and found.is_open and agreeing.is_for_two() and agreeing.counts(found)
        return found if stands else None

    @cached_property
    def ahead(self) -> UUID | None:
        return self.find_ahead()

    @cached_property
    def holder(self) -> str | None:
        """Who has paused it, of a paused run; None where only its budget has."""
        return self.pauser if self.run.state == State.PAUSED else None

    @cached_property
    def pauser(self) -> str | None:
        """The same, also of a run that its worker has yet to lay down."""
        is_asked = self.head is not None and self.head.is_pause_requested and self.run.state not in ENDED
        return held_by(self.run) if is_asked or self.run.state == State.PAUSED else None

    @cached_property
    def stand(self) -> Stand:
        kinds = [str(wait.kind) for wait in self.waits]
        return stand_of(
            self.run,
            pause_asked=bool(self.head and self.head.is_pause_requested),
            cancel_asked=bool(self.head and self.head.is_cancel_requested),
            kinds=kinds,
            is_held=Wait.Kind.BUDGET in kinds and self.pauser is not None,
        )

    @property
    def is_unserved(self) -> bool:
        """It stands still anyway, and no living worker has its version."""
        return self.drivable is not None and agent_versions.is_left_alone(self.run, frozenset(self.drivable))


def look_at(run_id: UUID) -> Seen:
    """Read what an answer about a run is made of. Raises NotFound."""
    run = Run.objects.filter(pk=run_id).first()
    if run is None:
        raise NotFound("run", run_id)
    waits = [] if run.state in ENDED else families.open_waits([run_id]).get(run_id, [])
    head = families.heads([run_id]).get(run_id)
    drivable = agent_versions.drivable() if head is None else getattr(head, "drivable", None)
    return Seen(run, head, waits, drivable, lambda: _ahead(run))


def _ahead(run: Run) -> UUID | None:
    ahead = progress.ahead([run]).get(run.pk)
    return ahead if ahead is None else sight.shown(ahead, sight.among([ahead]))


_STANDS: Mapping[str, str] = {
    "paused": "The run is paused: it goes on once somebody resumes it.",
    "pausing": "The run is being paused: it goes on once somebody resumes it.",
    "exceeded": "The run has come to a cap of its budget: it goes on once that is raised.",
    "stopped": "The run is stopped: it goes on once an operator has looked at it.",
    "cancelling": "The run is being cancelled.",
}
_HALTED = "The run stands still under a halt: it goes on once that lets it."


def stands_still(run_id: UUID) -> str:
    """That a run does not go on by itself, and what has to be done for it; empty where it does."""
    head = Head.objects.filter(run_id=run_id).annotate(halted=halted()).first()
    run = Run.objects.get(pk=run_id)
    waits = list(run.waits.filter(resolved_at__isnull=True))
    found = _STANDS.get(look(run, head, waits), "")
    return found or (_HALTED if halt_of(head) is not None else "")


def what_comes(run_id: UUID) -> str:
    return stands_still(run_id) or "The run goes on."
