"""Verification of checkpoints, signals and incidents against their events."""

from __future__ import annotations

from collections.abc import Iterator

from ledger import events as e
from ledger.verification.runs import EventLine, ReadJournal, at_most_once, compared
from runs import features
from runs.engine.tape import payload_of
from runs.journal.reader import checksum, cut_digest
from runs.models import Checkpoint, Incident, Signal


class Checkpoints:
    """Checks that each visit has exactly one checkpoint, whose digest is in the visit's event.

    Only the oldest may be missing, and exactly as many as are recorded as expired."""

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal
        self.visits: dict[int, tuple[str, int, str | None]] = {}

    def see(self, line: EventLine) -> None:
        if isinstance(line.event, e.VisitEntered):
            self.visits[line.seq] = (line.event.node, line.event.visit, payload_of(line.event).get("checkpoint"))

    def problems(self) -> Iterator[str]:
        missing = dict(self.visits)
        for row in self.journal.rows(Checkpoint, "seq", batch=20):
            what, state = f"the checkpoint at event {row.seq}", bytes(row.state)
            if checksum(row.node, row.visit, state) != bytes(row.checksum):
                yield f"{what} fails its checksum"
            entered = missing.pop(row.seq, None)
            if entered is None:
                yield f"{what} does not belong to the beginning of a node"
                continue
            node, visit, digest = entered
            yield from compared(what, row, {"node": node, "visit": visit, "schema_version": 1})
            if digest != cut_digest(row.generation, row.node, row.visit, row.fingerprint, state):
                yield f"{what} is not the one that its event names"
            if not self.journal.is_just_after(row.seq, row.at):
                yield f"{what}: its time, {row.at.isoformat()}, differs from that of its event"
        if missing and (expired := features.expired_checkpoints(self.journal.run_id)) is not None:
            gone = [seq for seq in missing if seq <= expired.last_seq]
            if len(gone) != expired.number:
                what = f"{len(gone)} of its checkpoints up to event {expired.last_seq} are missing"
                yield f"{what}, but {expired.number} expired"
            self.journal.notes.append(f"{expired}, and could not be compared")
            missing = {seq: visit for seq, visit in missing.items() if seq > expired.last_seq}
        for seq in missing:
            yield f"event {seq} enters a node, but its checkpoint is missing"


class Signals:
    """Compares the rows of signals with the events that recorded their arrival and the calls that took them."""

    NEEDS_NO_CONTENT = True

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal
        self.sent: dict[tuple[str, int], int] = {}
        self.taken: dict[tuple[str, int], str | None] = {}

    def see(self, line: EventLine) -> None:
        if isinstance(line.event, (e.SignalReceived, e.SignalCarried)):
            self.sent[line.event.name, line.event.n] = line.seq
        if isinstance(line.event, e.SignalTaken):
            self.taken[line.event.name, line.event.n] = line.event.slot

    def problems(self) -> Iterator[str]:
        rows = list(self.journal.rows(Signal, "id"))
        yield from at_most_once("the row of signal", [(row.name, row.n) for row in rows])
        missing = dict(self.sent)
        for row in rows:
            what, key = f"signal {row.name} number {row.n}", (row.name, row.n)
            if key not in self.sent:
                yield f"{what} has no event"
                continue
            missing.pop(key, None)
            yield from compared(what, row, {"seq": self.sent[key], "taken_by": self.taken.get(key)})
        for name, n in missing:
            yield f"signal {name} number {n} has no row"


class Incidents:
    """Compares the rows of incidents (lost workers, runs cut off by a drain) with their events."""

    NEEDS_NO_CONTENT = True

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal
        self.lost: dict[int, e.WorkerLost] = {}
        self.released: set[int] = set()

    def see(self, line: EventLine) -> None:
        if isinstance(line.event, e.WorkerLost):
            self.lost[line.seq] = line.event
        if isinstance(line.event, e.RunReleased):
            self.released.add(line.seq)

    def problems(self) -> Iterator[str]:
        rows = list(self.journal.rows(Incident, "id"))
        yield from at_most_once("the incident at event", [row.seq for row in rows])
        missing = dict(self.lost)
        for row in rows:
            what, lost = f"the incident at event {row.seq}", self.lost.get(row.seq)
            missing.pop(row.seq, None)
            if lost is None:
                if row.cause != Incident.Cause.DRAIN_CUT or row.seq not in self.released:
                    yield f"{what} has no event"
                continue
            right = {
                "cause": lost.cause,
                "proof": lost.proof,
                "host": lost.host,
                "pid": lost.pid,
                "epoch": lost.epoch,
                "reached": lost.reached,
                "is_counted": lost.is_counted,
                "deaths": lost.deaths,
            }
            yield from compared(what, row, right)
            if str(row.worker) != lost.worker or not self.journal.is_about(row.seq, row.at):
                yield f"{what}: its worker or time differs from that of its event"
        for seq in missing:
            yield f"event {seq}, WorkerLost, has no incident"
