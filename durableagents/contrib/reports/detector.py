"""A periodic job that finds duplicate effects in the record.

It continues where the last pass ended, within a time limit. Each finding is stored under a key of its own, so a fact
that is read again, late or in another order adds no second finding. Facts are evaluated in the order of the journal,
not by the order in which they are read."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.apps import apps
from django.db import connection, transaction

from durableagents.contrib.reports.models import DetectorPlace, Finding, PendingCheck
from ledger import events as e
from ledger.clock import database_now
from ledger.codec import ContentUnavailable, unpack
from ledger.events import decode
from ledger.models import Event
from runs.engine.tape import CALLED_BACK, Tape, payload_of

log = logging.getLogger("durableagents.contrib.reports.detector")

Kind = Finding.Kind
# The kinds of events that are read. An index covers them (migration 0001).
KINDS = ("ToolAnsweredLate", "CallbackArrivedLate", "ToolOutcomeUnknown", "ToolRedispatched")
IS_DUE = """NOT EXISTS (
    SELECT FROM reports_detectorplace WHERE checked_at > clock_timestamp() - interval '1 minute' AND NOT is_behind)"""
# Rows newer than this are read again by the next pass, because transactions that were still open may have written rows
# with an earlier time or number.
EVENTS_OVERLAP, ENTRIES_OVERLAP = timedelta(minutes=10), timedelta(minutes=1)
# A late answer is examined again until the call has a recorded answer, but no longer than this.
PENDING_FOR = timedelta(days=30)
PASS_SECONDS = 20.0
EVENTS_BATCH, ENTRIES_BATCH, PENDING_BATCH = 500, 5000, 500
_LOCK = 0x5245504F52545331  # "REPORTS1" in ASCII
_FIRST_MOMENT = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact about a call, with the kind of finding that it suggests."""

    kind: Kind
    key: str
    tool: str
    what: str
    at: datetime
    run_id: UUID | None = None
    seq: int | None = None
    slot: str = ""
    attempt: int | None = None


@dataclass(slots=True)
class _Pass:
    """The positions up to which this pass has read, which may be ahead of the stored ones."""

    event: tuple[datetime, UUID, int] | None = None
    entry: int | None = None
    found: int = 0
    is_done: bool = False


def detect() -> int:
    """Read new events, entries and probes for at most PASS_SECONDS; return the number of new findings.

    Only one process reads at a time."""
    until = time.monotonic() + PASS_SECONDS
    reading = _Pass()
    while _step(reading) and not reading.is_done and time.monotonic() < until:
        pass
    return reading.found


@transaction.atomic
def _step(reading: _Pass) -> bool:
    """Read one batch of each kind of fact. Returns False if another process is reading."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [_LOCK])
        if not cursor.fetchone()[0]:
            return False
    place, _ = DetectorPlace.objects.get_or_create(pk=1)
    now = database_now()
    facts: list[Fact] = []
    are_more_events = _read_events(place, reading, now, facts)
    are_more_entries = _read_entries(place, reading, now, facts)
    _read_probes(place, facts)
    _read_pending(now, facts)
    reading.found += _store(facts, now)
    reading.is_done = not (are_more_events or are_more_entries)
    place.is_behind, place.checked_at = not reading.is_done, now
    place.save()
    return True


def _store(facts: Sequence[Fact], now: datetime) -> int:
    """Store new findings; return their number."""
    keys = {fact.key for fact in facts}
    known = set(Finding.objects.filter(key__in=keys).values_list("key", flat=True))
    new = {fact.key: fact for fact in facts if fact.key not in known}
    rows = [
        Finding(
            kind=fact.kind,
            key=fact.key,
            run_id=fact.run_id,
            seq=fact.seq,
            slot=fact.slot,
            attempt=fact.attempt,
            tool=fact.tool,
            what=fact.what,
            fact_at=fact.at,
            found_at=now,
        )
        for fact in new.values()
    ]
    Finding.objects.bulk_create(rows, ignore_conflicts=True)
    for fact in new.values():
        log.error("run %s: a duplicate effect is suspected: %s", fact.run_id or "–", fact.what)
    return len(rows)


# --- events -----------------------------------------------------------------------------------------------------------

_EVENTS = """
    SELECT e.run_id, e.seq, e.at, e.kind, e.slot, e.attempt FROM ledger_event e
    WHERE e.kind IN ('ToolAnsweredLate', 'CallbackArrivedLate', 'ToolOutcomeUnknown', 'ToolRedispatched')
      AND (e.at, e.run_id, e.seq) > (%s, %s, %s)
    ORDER BY e.at, e.run_id, e.seq LIMIT %s"""


def _read_events(place: DetectorPlace, reading: _Pass, now: datetime, facts: list[Fact]) -> bool:
    """Examine the next events; return whether there may be more."""
    after = reading.event or (place.event_at or _FIRST_MOMENT, UUID(int=0), 0)
    with connection.cursor() as cursor:
        cursor.execute(_EVENTS, [*after, EVENTS_BATCH])
        rows = cursor.fetchall()
    for run_id, seq, at, kind, slot, attempt in rows:
        if kind != "ToolRedispatched" and slot is not None:
            facts.extend(_judged(run_id, seq, at, slot, attempt))
    is_full = len(rows) == EVENTS_BATCH
    if rows:
        run_id, seq, at, *_ = rows[-1]
        reading.event = at, run_id, seq
    place.event_at = min(reading.event[0] if is_full and reading.event else now, now - EVENTS_OVERLAP)
    return is_full


def _judged(run_id: UUID, seq: int, at: datetime, slot: str, attempt: int) -> list[Fact]:
    """Return the findings that an event of a call suggests.

    If its key or a stored value is unavailable, the event is put aside for later, so that it doesn't delay others."""
    try:
        return list(_judge(run_id, seq, at, slot, attempt))
    except ContentUnavailable as error:
        log.warning("run %s: event %s can't be examined yet: %s", run_id, seq, error)
        PendingCheck.objects.bulk_create([PendingCheck(run_id=run_id, seq=seq)], ignore_conflicts=True)
        return []


def _judge(run_id: UUID, seq: int, at: datetime, slot: str, attempt: int) -> Iterator[Fact]:
    """Yield the findings that an event of a call suggests, looking at all events of that attempt."""
    rows = Event.objects.filter(run_id=run_id, slot=slot, attempt=attempt).order_by("seq")
    on_record: list[tuple[int, e.Event]] = []
    for number, clear, sealed in rows.values_list("seq", "clear", "sealed"):
        event = _decoded(clear, sealed)
        if event is not None:
            on_record.append((number, event))
    recorded_event = next((event for number, event in on_record if number == seq), None)
    before = Tape(event for number, event in on_record if number < seq).slot(slot).at(attempt)
    call: dict[str, Any] = {"run_id": run_id, "seq": seq, "slot": slot, "attempt": attempt, "at": at}
    match recorded_event:
        case e.ToolAnsweredLate():
            if recorded_event.contradicts:
                reported, recorded = _outcome_text(recorded_event.outcome), _finding_of(recorded_event.contradicts)
                what = f"The sending worker reports {reported}, but the record says {recorded}."
                yield Fact(Kind.CONTRADICTION, f"late:{run_id}:{seq}", recorded_event.tool, what, **call)
            elif recorded_event.outcome == "happened":
                yield from _compare(run_id, seq, [event for _, event in on_record], recorded_event, call)
        case e.CallbackArrivedLate():
            if contradicted := before.finding.contradicted_by(CALLED_BACK):
                what = f"The upstream system answered late, but the record says {_finding_of(contradicted)}."
                yield Fact(Kind.CONTRADICTION, f"late:{run_id}:{seq}", recorded_event.tool, what, **call)
        case e.ToolOutcomeUnknown():
            if isinstance(recorded_event.payload, dict) and "key_rejected" in recorded_event.payload:
                what = "The upstream system rejected the key of the call, as it does with a key that was already used."
                yield Fact(Kind.KEY_REJECTED, f"key:{run_id}:{seq}", recorded_event.tool, what, **call)


def _compare(
    run_id: UUID, seq: int, on_record: Sequence[e.Event], late: e.ToolAnsweredLate, call: dict[str, Any]
) -> Iterator[Fact]:
    """Yield a finding if the call was sent twice and the answers differ.

    If there is no recorded answer yet, the event is put aside for later."""
    returned = next((event for event in on_record if isinstance(event, e.ToolReturned)), None)
    if returned is None:
        if not any(event.fact == "result" or isinstance(event, e.ToolReconciled) for event in on_record):
            PendingCheck.objects.bulk_create([PendingCheck(run_id=run_id, seq=seq)], ignore_conflicts=True)
        return
    answer, recorded = payload_of(late).get("result"), payload_of(returned).get("result")
    if answer is None or recorded is None or _is_same_effect(answer, recorded, returned.external_id):
        return
    what = "The call was sent twice under one key, and the upstream system answered the two differently."
    yield Fact(Kind.DIFFERENT_ANSWER, f"answer:{run_id}:{seq}", late.tool, what, **call)


def _is_same_effect(late: Any, recorded: Any, external_id: str | None) -> bool:
    """Return whether two answers describe the same effect: they are equal, or both contain its external id."""
    return late == recorded or (external_id is not None and external_id in _texts(late))


def _texts(value: Any) -> set[str]:
    match value:
        case dict():
            return {text for each in value.values() for text in _texts(each)}
        case list():
            return {text for each in value for text in _texts(each)}
        case str() | int():
            return {str(value)}
        case _:
            return set()


def _decoded(clear: bytes | memoryview, sealed: bytes | memoryview | None) -> e.Event | None:
    """Return an event; without its payload if that was erased or damaged; None if nothing can be read.

    Raises ContentUnavailable if this process can't access the payload now."""
    try:
        payload = unpack(sealed)
    except (ValueError, RecursionError):
        payload = None
    try:
        return decode(clear, payload)
    except (KeyError, TypeError, ValueError, RecursionError):
        return None


_OUTCOMES = {"happened": "that the call happened", "refused": "that it was refused", "accepted": "that it was accepted"}
_ON_RECORD = {
    "happened": "that it happened",
    "did_not": "that it did not happen",
    "fail": "the verdict to fail the run",
    "refused": "that it was refused",
}


def _outcome_text(outcome: str) -> str:
    return _OUTCOMES.get(outcome, outcome)


def _finding_of(outcome: str) -> str:
    return _ON_RECORD.get(outcome, outcome)


def _read_pending(now: datetime, facts: list[Fact]) -> None:
    """Examine again the events that were put aside.

    The order is random, so that events that can't be examined don't block others."""
    for row in list(PendingCheck.objects.order_by("?")[:PENDING_BATCH]):
        event = Event.objects.filter(run_id=row.run_id, seq=row.seq).values_list("at", "slot", "attempt").first()
        PendingCheck.objects.filter(run_id=row.run_id, seq=row.seq).delete()
        at, slot, attempt = event or (now, None, 0)
        if slot is not None and at > now - PENDING_FOR:
            # puts the event aside again if there is still no answer
            facts.extend(_judged(row.run_id, row.seq, at, slot, attempt))


# --- entries and probes -----------------------------------------------------------------------------------------------

_ENTRIES = "SELECT id, run_id, at, external_id IS NOT NULL FROM ledger_ledgerentry WHERE id > %s ORDER BY id LIMIT %s"
# Finds two external ids of one attempt of a call, which were created with the same key.
_TWO_IDS = """
    SELECT l.run_id, l.slot, l.attempt, max(l.tool), max(l.seq), max(l.at),
           array_agg(DISTINCT l.external_id ORDER BY l.external_id)
    FROM ledger_ledgerentry l WHERE l.run_id = ANY(%s) AND l.external_id IS NOT NULL
    GROUP BY l.run_id, l.slot, l.attempt HAVING count(DISTINCT l.external_id) > 1"""


def _read_entries(place: DetectorPlace, reading: _Pass, now: datetime, facts: list[Fact]) -> bool:
    """Examine the next ledger entries. Return whether there may be more."""
    with connection.cursor() as cursor:
        cursor.execute(_ENTRIES, [place.entry if reading.entry is None else reading.entry, ENTRIES_BATCH])
        rows = cursor.fetchall()
        runs = list({run_id for _, run_id, _, has_id in rows if has_id})
        cursor.execute(_TWO_IDS, [runs])
        for run_id, slot, attempt, tool, seq, at, ids in cursor.fetchall():
            what = f"One key got {len(ids)} external ids: {', '.join(json.dumps(each)[:80] for each in ids[:5])}."
            key = f"ids:{run_id}:{slot}:{attempt}"
            facts.append(Fact(Kind.TWO_IDS, key, tool, what, at, run_id, seq, slot, attempt))
    if rows:
        reading.entry = rows[-1][0]
    if settled := [id for id, _, at, _ in rows if at < now - ENTRIES_OVERLAP]:
        place.entry = max(place.entry, settled[-1])
    return len(rows) == ENTRIES_BATCH


def _read_probes(place: DetectorPlace, facts: list[Fact]) -> None:
    """Add a fact for each new probe that showed that an effect can happen twice."""
    if not apps.is_installed("durableagents.contrib.certify"):
        return
    from durableagents.contrib.certify.models import Probe

    bad = {
        Probe.Verdict.IGNORES: "A probe sent one key twice, and the upstream system executed both.",
        Probe.Verdict.HOOK_DENIES: "A probe showed that the hook denies calls that did happen, so they are repeated.",
    }
    for row in Probe.objects.filter(pk__gt=place.probe).order_by("pk")[:EVENTS_BATCH]:
        if what := bad.get(Probe.Verdict(row.verdict)):
            facts.append(Fact(Kind.PROBE, f"probe:{row.tool}:{row.agent}:{row.made_of}", row.tool, what, row.at))
        place.probe = row.pk
