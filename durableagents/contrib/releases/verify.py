"""Verification of ramps: starts match their journals, ramps and closed versions their acts."""

from __future__ import annotations

from collections.abc import Iterator

from durableagents.contrib.releases.models import Ramp, RampStart, VersionGate
from durableagents.contrib.releases.services import ACTIONS, recorded, subject_of
from ledger import events as e
from ledger.models import ActRecord
from ledger.verification.registers import Listed
from ledger.verification.runs import Line, ReadJournal, compared


class Assigned:
    """A start's assignment row against its event, both ways, and its version against the side."""

    NEEDS_NO_CONTENT = True

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal
        self.version = ""
        self.told: list[tuple[int, e.VersionAssigned]] = []

    def see(self, line: Line) -> None:
        match line.event:
            case e.RunCreated(version=version) if not self.version:
                self.version = version
            case e.VersionAssigned() as told:
                self.told.append((line.seq, told))
            case _:
                pass

    def problems(self) -> Iterator[str]:
        row = self.journal.row(RampStart)
        if not self.told:
            if row is not None:
                yield f"ramp {row.ramp_id} has a start that the journal doesn't tell of"
            return
        for seq, told in self.told:
            side = told.to_version if told.is_new else told.from_version
            if side != self.version and not self.journal.is_start_unreadable:
                yield f"event {seq} gives it version {side}, and it is of {self.version}"
            if told.why == "share" and told.is_new is not (told.place < told.share):
                yield f"event {seq} gives place {told.place} the wrong side of {told.share}"
        if len(self.told) > 1:
            yield f"{len(self.told)} events tell which version it was given"
        if row is None:
            yield f"its start by ramp {self.told[0][1].ramp} has no row"
            return
        _, told = self.told[0]
        yield from compared(
            "its start by a ramp",
            row,
            {
                "ramp_id": told.ramp,
                "is_new": told.is_new,
                "why": told.why,
                "place": told.place,
            },
        )


def every_release() -> Listed | None:
    """Check ramps and closed versions against their last acts; None if there are none."""
    ramps, gates = list(Ramp.objects.order_by("id")), list(VersionGate.objects.order_by("id"))
    if not ramps and not gates:
        return None
    # Only acts with a valid place in their list; others prove nothing here.
    about = ActRecord.objects.filter(run_id__isnull=True, n__gt=0, action__in=ACTIONS).order_by("n")
    last = {act.subject: act for act in about if isinstance(act.after, dict)}
    problems = [*_ramps(ramps, last), *_gates(gates, last)]
    return Listed("releases", len(ramps) + len(gates), "", problems)


def _ramps(ramps: list[Ramp], acts: dict[str, ActRecord]) -> Iterator[str]:
    for ramp in ramps:
        last = acts.get(subject_of(ramp))
        if last is None:
            yield f"ramp {ramp.pk} has no act on record"
            continue
        now, said = recorded(ramp), {name: value for name, value in last.after.items() if name != "figures"}
        yield from (
            f"ramp {ramp.pk}: {name} is {now[name]!r}, the last act says {said.get(name)!r}"
            for name in now
            if now[name] != said.get(name)
        )


def _gates(gates: list[VersionGate], acts: dict[str, ActRecord]) -> Iterator[str]:
    for gate in gates:
        last = acts.get(f"version {gate.graph_id}")
        if last is None or last.after != {"is_closed": gate.is_closed} or last.by != gate.set_by:
            yield f"version {gate.graph_id} is {'closed' if gate.is_closed else 'open'}, which no act says"
