"""Verification of messages, screenings and cached reads against the journal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from ledger import events as e
from ledger.chain import microseconds
from ledger.codec import unpack
from ledger.codes import is_rows_code
from ledger.keys import code_key
from ledger.kinds import CONTENT_REFUSED
from ledger.models import Event
from ledger.verification.runs import EventLine, ReadJournal, at_most_once, compared
from runs.engine.tape import payload_of
from runs.journal.cache import TABLE
from runs.models import CachedRead, Message

At = tuple[str | None, int]


@dataclass
class _Look:
    """One ContentScreened event, and its verdicts."""

    seq: int
    screened: e.ContentScreened
    found: list[e.ContentWithheld] = field(default_factory=list)


class Screened:
    """Compares screenings with their verdicts, and finds content that was refused but sent nevertheless."""

    def __init__(self, journal: ReadJournal) -> None:
        self.looks: dict[At, list[_Look]] = {}
        self.refused: dict[At, e.ContentWithheld] = {}
        self.wrong: list[str] = []

    def see(self, line: EventLine) -> None:
        event, at = line.event, (line.event.slot, line.event.attempt)
        match event:
            case e.ContentScreened():
                self.looks.setdefault(at, []).append(_Look(line.seq, event))
            case e.ContentWithheld():
                self._take(line.seq, at, event)
            case e.ToolInvoked() | e.ToolRead() | e.CachedReadTaken() | e.ApprovalRequested() | e.ModelRouted():
                no = self.refused.get(at)
                if no is not None and (event.KIND != "ModelRouted" or no.place == "0"):
                    self.wrong.append(
                        f"event {line.seq}, {event.KIND}: {no.hook} had refused the content that it sends"
                    )
            case e.ModelFailed(code=code) | e.ToolFailed(code=code) if code == CONTENT_REFUSED:
                # A tool that was called may also fail with the same code.
                if at not in self.refused and isinstance(event, e.ModelFailed):
                    self.wrong.append(f"event {line.seq}, {event.KIND}: no hook refused it")
            case _:
                pass

    def _take(self, seq: int, at: At, event: e.ContentWithheld) -> None:
        checks = self.looks.get(at)
        if not checks or event.verdict not in ("refused", "replaced"):
            self.wrong.append(f"event {seq}, ContentWithheld, belongs to no screening")
            return
        checks[-1].found.append(event)
        if f"{event.hook}@{event.version}" not in checks[-1].screened.hooks:
            self.wrong.append(f"event {seq}, ContentWithheld: {event.hook}@{event.version} was not called")
        is_whole = event.to.split(" ")[0] == "tool" or (event.to.split(" ")[0] == "model" and event.place == "0")
        if event.verdict == "refused" and is_whole and event.source.split(" ")[0] != "tool":
            self.refused[at] = event

    def problems(self) -> Iterator[str]:
        yield from self.wrong
        for checks in self.looks.values():
            for look in checks:
                yield from _counted(look)


def _counted(look: _Look) -> Iterator[str]:
    what, screened = f"event {look.seq}, ContentScreened,", look.screened
    verdicts = [each.verdict for each in look.found]
    if (screened.refused, screened.replaced) != (verdicts.count("refused"), verdicts.count("replaced")):
        yield f"{what} counts {screened.refused} refused and {screened.replaced} replaced pieces, unlike its verdicts"
    replaced = payload_of(screened).get("stands", {})
    unfounded = set(replaced) - {each.place for each in look.found} if isinstance(replaced, dict) else {"?"}
    if unfounded:
        yield f"{what} replaces content of {', '.join(sorted(unfounded))} that no hook replaced"


class Messages:
    """Compares message rows with events in both directions. Messages must be handled once and in order."""

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal
        self.known: dict[int, dict[str, object]] = {}
        self.wrong: list[str] = []

    def see(self, line: EventLine) -> None:
        match line.event:
            case e.MessageReceived() as came:
                self._see(line.seq, came)
            case e.MessageHandled() as handled:
                self._handled(line.seq, handled)
            case e.RunCompleted() | e.RunFailed() | e.RunCancelled():
                for known in self.known.values():
                    known["outcome"] = known["outcome"] or "ended"
            case _:
                pass

    def _see(self, seq: int, came: e.MessageReceived) -> None:
        if came.n != len(self.known) + 1:
            self.wrong.append(f"event {seq} brings message {came.n} after message {len(self.known)}")
        self.known[came.n] = {"name": came.name, "by": came.by, "seq": seq, "outcome": "", "answered_seq": None}

    def _handled(self, seq: int, handled: e.MessageHandled) -> None:
        waiting = [n for n, known in self.known.items() if not known["outcome"]]
        if not waiting or waiting[0] != handled.n or self.known[handled.n]["name"] != handled.name:
            self.wrong.append(f"event {seq} handles message {handled.n}, which was not the next to be handled")
        if handled.n in self.known:
            self.known[handled.n] |= {"outcome": handled.outcome, "answered_seq": seq}

    def problems(self) -> Iterator[str]:
        yield from self.wrong
        rows = list(self.journal.rows(Message, "id"))
        yield from at_most_once("the row of message", [row.n for row in rows])
        missing = dict(self.known)
        for row in rows:
            known = missing.pop(row.n, None)
            if known is None:
                yield f"message {row.n} has no event"
                continue
            yield from compared(f"message {row.n}", row, known)
        for n in missing:
            yield f"message {n} has no row"


_READS = ("ToolRead", "ToolReadAnew")
_SLACK = timedelta(hours=1)  # on the worker's own clock, a read begins before it is recorded


class CachedReads:
    """Compares cache hits with the journals they name, and this run's cache rows with its own journal."""

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal
        self.hits: list[tuple[int, e.CachedReadTaken]] = []
        self.read: dict[str | None, int] = {}

    def see(self, line: EventLine) -> None:
        match line.event:
            case e.CachedReadTaken():
                self.hits.append((line.seq, line.event))
            case e.ToolRead() | e.ToolReadAnew(code=""):
                self.read[line.event.slot] = line.seq
            case _:
                pass

    def problems(self) -> Iterator[str]:
        for seq, hit in self.hits:
            if (problem := _about(hit)) is not None:
                yield f"event {seq}, CachedReadTaken, {problem}"
        for row in self.journal.rows(CachedRead, "expires_at", "key"):
            what = f"the cache entry of {row.tool}, read at slot {row.slot},"
            if not is_rows_code(code_key(), TABLE, row.coded(), bytes(row.code)):
                yield f"{what} was not written with this installation's key, or was changed"
            elif row.slot not in self.read:
                yield f"{what} is not a read of this run"


def _about(hit: e.CachedReadTaken) -> str | None:
    """Return the problem with a cache hit; empty if its run was deleted."""
    try:
        of = UUID(hit.run_read)
    except ValueError:
        return f"names {hit.run_read[:80]!r}, which does not exist"
    rows = list(Event.objects.filter(run_id=of, slot=hit.slot_read, kind__in=_READS).order_by("seq"))
    if not rows:
        is_gone = not Event.objects.filter(run_id=of).exists()
        return None if is_gone else f"names a read of run {of} at slot {hit.slot_read} that is not in its journal"
    result = payload_of(hit).get("result")
    found = [row for row in rows if _result(row) == (hit.tool, result)]
    if not found:
        return f"differs from the value that run {of} read at slot {hit.slot_read}"
    read_at = [
        row
        for row in found
        if microseconds(row.at)
        + int(_SLACK.total_seconds() * 1000000)
        - microseconds(datetime.fromisoformat(hit.read_at))
        >= 0
    ]
    return (
        None if read_at else f"says that run {of} read it at {hit.read_at[:40]}, which is after the time of the event"
    )


def _result(row: Event) -> tuple[str, object]:
    event = e.decode(row.clear, unpack(row.sealed))
    return getattr(event, "tool", ""), payload_of(event).get("result")
