"""Verifies starts assigned by ramps against journals, and ramps and closed versions against acts."""

from __future__ import annotations

from collections.abc import Iterator

from durableagents.contrib.releases.models import Ramp, RampStart, VersionGate
from durableagents.contrib.releases.services import ACTIONS, recorded, subject_of
from ledger import events as e
from ledger.models import ActRecord
from ledger.verification.registers import Listed
from ledger.verification.runs import EventLine, ReadJournal, compared


class Assigned:
    """Checks that a start's assignment row and its event agree, and that the run has the assigned version."""

    NEEDS_NO_CONTENT = True

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal
        self.version = ""
        self.events: list[tuple[int, e.VersionAssigned]] = []

    def see(self, line: EventLine) -> None:
        match line.event:
            case e.RunCreated(version=version) if not self.version:
                self.version = version
            case e.VersionAssigned() as event:
                self.events.append((line.seq, event))
            case _:
                pass

    def problems(self) -> Iterator[str]:
        row = self.journal.row(RampStart)
        if not self.events:
            if row is not None:
                yield f"ramp {row.ramp_id} has a row for its start, but the journal has no event"
            return
        for seq, event in self.events:
            side = event.to_version if event.is_new else event.from_version
            if side != self.version and not self.journal.is_start_unreadable:
                yield f"event {seq} assigns version {side}, but the run began on {self.version}"
            if event.why == "share" and event.is_new is not (event.place < event.share):
                yield f"event {seq} assigns the wrong side: place {event.place}, share {event.share}"
        if len(self.events) > 1:
            yield f"{len(self.events)} events assign a version"
        _, event = self.events[0]
        if row is None:
            yield f"its assignment by ramp {event.ramp} has no row"
            return
        values = {"ramp_id": event.ramp, "is_new": event.is_new, "why": event.why, "place": event.place}
        yield from compared("its start by a ramp", row, values)


def every_release() -> Listed | None:
    """Check ramps and closed versions against their last recorded acts; None if there are none."""
    ramps, gates = list(Ramp.objects.order_by("id")), list(VersionGate.objects.order_by("id"))
    if not ramps and not gates:
        return None
    # Acts without a valid number in their list are ignored here, because they prove nothing.
    acts = ActRecord.objects.filter(run_id__isnull=True, n__gt=0, action__in=ACTIONS).order_by("n")
    last = {act.subject: act for act in acts if isinstance(act.after, dict)}
    problems = [*_ramp_problems(ramps, last), *_gate_problems(gates, last)]
    return Listed("releases", len(ramps) + len(gates), "", problems)


def _ramp_problems(ramps: list[Ramp], acts: dict[str, ActRecord]) -> Iterator[str]:
    for ramp in ramps:
        last = acts.get(subject_of(ramp))
        if last is None:
            yield f"ramp {ramp.pk} has no recorded act"
            continue
        for name, value in recorded(ramp).items():
            if value != last.after.get(name):
                yield f"ramp {ramp.pk}: {name} is {value!r}, but {last.after.get(name)!r} in its last act"


def _gate_problems(gates: list[VersionGate], acts: dict[str, ActRecord]) -> Iterator[str]:
    for gate in gates:
        last = acts.get(f"version {gate.graph_id}")
        if last is None or last.after != {"is_closed": gate.is_closed} or last.by != gate.set_by:
            yield f"version {gate.graph_id} is {'closed' if gate.is_closed else 'open'} without a recorded act"
