"""The facts that a run's status is computed from, read in a few queries for one run or a page of runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from uuid import UUID

from ledger.errors import NotFound
from ledger.models import Head
from runs import seen
from runs.fleet import agent_versions
from runs.models import ENDED, Run, State, Wait
from runs.queries import families, progress
from runs.queries.display import main_wait
from runs.services import authority
from runs.services.allowed import RunConditions, stand_of
from runs.services.command import cancellers, holders
from runs.services.settling import agreeing
from runs.services.settling.agreeing import Heard, Proposal, heard


@dataclass(eq=False)
class Related:
    """Further facts about several runs.
    Each kind is read for all of them together when it is first needed."""

    facts: Sequence[RunFacts] = ()

    @cached_property
    def ahead(self) -> dict[UUID, UUID]:
        """Return, for each queued run, the run ahead of it, if the viewer may see it."""
        found = progress.active_runs_of_keys(each.run for each in self.facts)
        known = seen.among(found.values())
        return {run_id: other for run_id, other in found.items() if other in known}

    @cached_property
    def paused_by(self) -> dict[UUID, str]:
        return holders([each.run.pk for each in self.facts if each.may_be_paused])

    @cached_property
    def cancelled_by(self) -> dict[UUID, str]:
        return cancellers([each.run.pk for each in self.facts if each.run.state == State.CANCELLED])

    @cached_property
    def is_for_two(self) -> bool:
        """Return whether two people must settle unknown outcomes."""
        return agreeing.is_for_two()

    @cached_property
    def heard(self) -> dict[UUID, Heard]:
        return heard(wait for each in self.facts for wait in each.waits)

    @cached_property
    def proposals(self) -> dict[UUID, Proposal]:
        """Return, by wait, the first verdicts that a second person may confirm.
        Each proposer's role is checked once."""
        given = {
            pk: proposal for pk, each in self.heard.items() if (proposal := each.said) is not None and proposal.is_open
        }
        if not given or not self.is_for_two:
            return {}
        people = {proposal.person: proposal for proposal in given.values()}
        counting = {person for person, proposal in people.items() if agreeing.counts(proposal)}
        return {pk: proposal for pk, proposal in given.items() if proposal.person in counting}


@dataclass(frozen=True, eq=False)
class RunFacts:
    """A run with its head, its open waits, and the versions that living workers serve.
    A missing head is None; then no action is possible. If the versions were not read, they are None."""

    run: Run
    head: Head | None
    waits: Sequence[Wait]
    served: frozenset[str] | None
    related: Related = field(default_factory=Related)

    @cached_property
    def blocked(self) -> str | None:
        """Return why no worker drives the run although it is ready."""
        return agent_versions.why_not_driven(self.run, self.served or frozenset()) or self.missing_key

    @property
    def missing_key(self) -> str | None:
        return agent_versions.missing_key_of(self.run, self.head)

    @property
    def is_unserved(self) -> bool:
        """Return whether the run is parked and no living worker has its version."""
        return self.served is not None and agent_versions.is_left_alone(self.run, self.served)

    @cached_property
    def wait(self) -> Wait | None:
        return main_wait(self.waits)

    @property
    def asked(self) -> list[str]:
        """Return the queues or roles that the run's main wait asks."""
        return [] if self.wait is None else authority.asked_of(self.wait.detail, self.wait.also)

    @property
    def proposal(self) -> Proposal | None:
        """Return the proposed verdict on the run's unknown outcome, if it is still in force and two people are
        needed."""
        return None if self.wait is None else self.related.proposals.get(self.wait.pk)

    @property
    def ahead(self) -> UUID | None:
        return self.related.ahead.get(self.run.pk)

    @property
    def may_be_paused(self) -> bool:
        is_requested = self.head is not None and self.head.is_pause_requested and self.run.state not in ENDED
        return is_requested or self.run.state == State.PAUSED

    @cached_property
    def paused_by(self) -> str | None:
        """Return who paused the run or requested a pause; None if only its budget holds it."""
        return self.related.paused_by.get(self.run.pk) if self.may_be_paused else None

    @property
    def cancelled_by(self) -> str | None:
        """Return who cancelled the run; None if it isn't cancelled."""
        return self.related.cancelled_by.get(self.run.pk)

    @cached_property
    def stand(self) -> RunConditions:
        kinds = [str(wait.kind) for wait in self.waits]
        return stand_of(
            self.run,
            pause_asked=bool(self.head and self.head.is_pause_requested),
            cancel_asked=bool(self.head and self.head.is_cancel_requested),
            kinds=kinds,
            is_held=Wait.Kind.BUDGET in kinds and self.paused_by is not None,
        )


def facts_of(
    runs: Iterable[Run], heads: Mapping[UUID, Head], waits: Mapping[UUID, Sequence[Wait]]
) -> dict[UUID, RunFacts]:
    """Return the facts of these runs, by id, from heads of `families` and open waits."""
    runs = list(runs)
    served = next((frozenset(one) for head in heads.values() if (one := getattr(head, "drivable", None))), None)
    if served is None and any(run.wants_driving for run in runs):
        served = agent_versions.drivable()
    related = Related()
    related.facts = [
        RunFacts(run, heads.get(run.pk), () if run.state in ENDED else waits.get(run.pk, ()), served, related)
        for run in runs
    ]
    return {each.run.pk: each for each in related.facts}


def read_facts(run_id: UUID) -> RunFacts:
    """Read the facts of one run. Raises NotFound."""
    run = Run.objects.filter(pk=run_id).first()
    if run is None:
        raise NotFound("run", run_id)
    waits = {} if run.state in ENDED else families.open_waits([run_id])
    return facts_of([run], families.heads([run_id]), waits)[run_id]
