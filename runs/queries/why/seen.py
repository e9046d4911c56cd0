"""The data that an answer is based on, from a few queries or a page."""

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

# The one cause why a run doesn't move, or what does.
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
    "no_key",
    "queued",
    "driven",
    "undoing",
]
CAUSES: tuple[str, ...] = get_args(Cause)


@dataclass(frozen=True, slots=True)
class Who:
    """The party that must act. `kind`: nobody (it moves, or is over), system, outside (callers or senders), or people:
    those with one of `roles`, at the `queue` if any, except `but`, who made the proposal."""

    kind: Literal["nobody", "system", "outside", "people"]
    roles: tuple[str, ...] = ()
    queue: str = ""
    name: str = ""
    but: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """An event, wait or run that shows the cause; `at`: its start; `until`: its latest end."""

    what: str
    seq: int | None = None
    wait: UUID | None = None
    run: UUID | None = None
    at: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Reader:
    """The actor who asks, and the roles they hold."""

    by: Actor
    held: frozenset[str]


@dataclass(frozen=True)
class Seen:
    """A run with its waits and the versions served. Without a head nothing can be done to it.
    `find_ahead` returns the run of its key before it, if the viewer may see it."""

    run: Run
    head: Head | None
    waits: Sequence[Wait]
    drivable: Collection[str] | None
    find_ahead: Callable[[], UUID | None]

    @cached_property
    def blocked(self) -> str | None:
        """Return why nobody drives it though it is ready."""
        return agent_versions.why_not_driven(self.run, frozenset(self.drivable or ())) or self.missing_key

    @cached_property
    def missing_key(self) -> str | None:
        return agent_versions.missing_key_of(self.run, self.head)

    @cached_property
    def wait(self) -> Wait | None:
        return main_wait(self.waits)

    @cached_property
    def said(self) -> Proposal | None:
        """Return the pending proposal on its unknown outcome, if it still counts and two people are needed."""
        found = None if self.wait is None else newest([self.wait]).get(self.wait.pk)
        stands = found is not None and found.is_open and agreeing.is_for_two() and agreeing.counts(found)
        return found if stands else None

    @cached_property
    def ahead(self) -> UUID | None:
        return self.find_ahead()

    @cached_property
    def holder(self) -> str | None:
        """Return who paused a paused run; None if only its budget did."""
        return self.pauser if self.run.state == State.PAUSED else None

    @cached_property
    def pauser(self) -> str | None:
        """Return the same, also for a run that is still being paused."""
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
        """Return whether it is parked and no living worker has its version."""
        return self.drivable is not None and agent_versions.is_left_alone(self.run, frozenset(self.drivable))


def look_at(run_id: UUID) -> Seen:
    """Read the data for an answer about a run. Raises NotFound."""
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
    "paused": "The run is paused. Resume it to continue.",
    "pausing": "The run is being paused. Resume it to continue.",
    "exceeded": "The run has used up its budget. Raise it to continue.",
    "stopped": "The run is stopped. An operator has to examine it.",
    "cancelling": "The run is being cancelled.",
}
_HALTED = "The run is halted. It continues when the halt is lifted."


def stands_still(run_id: UUID) -> str:
    """Say what a stopped run needs before it continues; "" if it isn't stopped."""
    head = Head.objects.filter(run_id=run_id).annotate(halted=halted()).first()
    run = Run.objects.get(pk=run_id)
    waits = list(run.waits.filter(resolved_at__isnull=True))
    found = _STANDS.get(look(run, head, waits), "")
    return found or (_HALTED if halt_of(head) is not None else "")


def what_comes(run_id: UUID) -> str:
    return stands_still(run_id) or "The run continues."
