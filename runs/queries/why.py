"""Explains why a run doesn't progress: its status, the evidence, and the caller's actions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from pydantic import Field

from ledger import events as e
from ledger.models import Event
from ledger.web.fields import RunId
from ledger.web.shapes import Shape
from runs import features
from runs.models import ENDED, Wait
from runs.queries.actions import Offer, Reader, how_many_more, offers_of
from runs.queries.display import name_of
from runs.queries.run_facts import RunFacts
from runs.queries.status import RunStatus, notes_of, status_of
from runs.services.continuation import newest

_MAX_WAITS = 20


class Evidence(Shape):
    """The record that supports a reason."""

    what: str = Field(description="Description of the record.")
    seq: int | None = Field(description="Event in the run's journal.")
    wait: UUID | None = Field(description="Id of the wait; null if there is none.")
    run: UUID | None = Field(description="Related run, such as a child; null if there is none.")
    at: datetime | None = Field(description="Time of the record; null if there is none.")
    until: datetime | None = Field(description="Time until which it applies; null if there is none.")


def evidence(
    what: str,
    seq: int | None = None,
    *,
    at: datetime | None = None,
    until: datetime | None = None,
    wait: UUID | None = None,
    run: UUID | None = None,
) -> Evidence:
    return Evidence(what=what, seq=seq, wait=wait, run=run, at=at, until=until)


class Why(Shape):
    """A run's status with its evidence and the caller's actions."""

    run: RunId
    seq: int | None = Field(
        description="Number of the last journal event when this was computed; null if the run's head is missing."
    )
    status: RunStatus = Field(description="What the run is doing, or why it does not continue.")
    also: str = Field(description="Further reasons; empty: none.")
    evidence: list[Evidence] = Field(description="Records that support the reason.")
    acts: list[Offer] = Field(description="Actions on the run.")


def why(facts: RunFacts, reader: Reader) -> Why:
    status = status_of(facts)
    also = [str(note) for note in notes_of(facts)]
    also += [text for remark in (how_many_more, *features.parts_of_all(lambda f: f.remarks)) if (text := remark(facts))]
    more = [one for offers in features.parts_of_all(lambda f: f.offers) for one in offers(facts, reader)]
    return Why.of(
        None,
        run=facts.run.pk,
        seq=None if facts.head is None else facts.head.seq,
        status=status,
        also=" ".join(also),
        evidence=[] if status.reason == "halted" else _evidence(status.reason, facts),
        acts=[*offers_of(facts, reader), *more],
    )


# The event that proves the reason, if there is no such wait.
_EVENTS: Mapping[str, tuple[str, ...]] = {
    "driven": (e.RunClaimed.KIND,),
    "undoing": (e.RunClaimed.KIND, "UndoBegun", "UndoAsked"),
    "paused": (e.RunPaused.KIND,),
    "pausing": (e.PauseRequested.KIND,),
    "cancelling": (e.CancelRequested.KIND,),
}
_OPENS = (e.WaitOpened.KIND, e.ApprovalRequested.KIND)


def _evidence(reason: str, facts: RunFacts) -> list[Evidence]:
    run = facts.run
    seqs = _opened(facts)
    found = [
        evidence(
            f"{wait.kind}: {name_of(wait)}",
            seq=seqs.get((wait.slot, wait.attempt, str(wait.kind), wait.n)),
            wait=wait.pk,
            at=wait.opened_at,
            until=wait.deadline,
        )
        for wait in facts.waits[:_MAX_WAITS]
    ]
    if kinds := _EVENTS.get(reason):
        rows = Event.objects.filter(run_id=run.pk, kind__in=kinds).order_by("-seq").only("seq", "kind", "at")
        found[:0] = [evidence(row.kind, row.seq, at=row.at) for row in rows[:1]]
    if run.state in ENDED and run.end_seq is not None:
        found.append(evidence("end", run.end_seq, at=run.ended_at))
    if reason in ("renewed", "handed_off"):
        found.append(evidence("goes on as", run=newest(run.pk).pk))
    if reason == "behind_key" and facts.ahead is not None:
        found.append(evidence("ahead of it", run=facts.ahead))
    if not found and facts.head is not None:
        found.append(evidence("last event", facts.head.seq, at=getattr(facts.head, "last_at", None)))
    if reason == "unknown_outcome" and (proposal := facts.proposal) is not None:
        found.append(evidence(f"{proposal.by} says {proposal.verdict}", proposal.seq, at=proposal.at))
    return found


def _opened(facts: RunFacts) -> dict[tuple[str, int, str, int], int]:
    """Return the events that opened the waits, by position. Damaged events are left out."""
    slots = [wait.slot for wait in facts.waits[:_MAX_WAITS]]
    if not slots:
        return {}
    rows = Event.objects.filter(run_id=facts.run.pk, slot__in=slots, kind__in=_OPENS).only("seq", "kind", "clear")
    found: dict[tuple[str, int, str, int], int] = {}
    for row in rows.order_by("seq"):
        try:
            event = e.decode(row.clear)
        except (ValueError, KeyError, TypeError):  # `verify` reports it
            continue
        kind = str(getattr(event, "wait", Wait.Kind.APPROVAL))
        found[event.slot or "", event.attempt, kind, getattr(event, "n", 0)] = row.seq
    return found
