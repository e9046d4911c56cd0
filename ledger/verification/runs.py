"""Verify the whole record of a run: its journal, and every table that repeats parts of it.

`runs` and `approvals` register their checks. A run is read from one snapshot, so concurrent writes don't disturb it.
"""

# One pass over the events checks chain, columns and codes and passes each event to the checks, which then compare their
# own tables. Only what a check needs is kept, so a long journal takes little memory.

from __future__ import annotations

import logging
import multiprocessing
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from itertools import islice
from typing import Any, Protocol, TypeVar
from uuid import UUID

import django
from django.db import connection, transaction
from django.db.models import Model

from ledger import events as e
from ledger.chain import Link, genesis
from ledger.codec import unpack
from ledger.codes import SQL_MADE, is_authentic, may_lack_code
from ledger.erasure import Erased, Erasure, erasure_of
from ledger.errors import NotFound
from ledger.keys import code_key
from ledger.models import ActRecord, Event, Head
from ledger.redacted import masked_text
from ledger.verification import archives

# Tolerance: a row and its event read the clock one after the other in one transaction.
SLACK = timedelta(minutes=1)
# All payloads of a batch are in memory at the same time.
_BATCH = 100
# Number of runs per unit of work.
_RUNS = 50
NO_RUN = UUID(int=0)  # the lowest id
# Maximum number of placeholders for missing events. No real journal loses more, and forged numbers can't exhaust
# memory.
_MAX_GAPS = 10**6

log = logging.getLogger("ledger.verification.runs")
_PRESENT = "SELECT array_remove(ARRAY[{parts}], NULL) FROM (SELECT %s::uuid) AS run (id)"
M = TypeVar("M", bound=Model)

# Errors that reading a row raises only if none of our processes wrote the row.
UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError)


@dataclass(frozen=True, slots=True)
class EventLine:
    """One event, in the form that is passed to checks."""

    seq: int
    epoch: int
    at: datetime
    hash: bytes
    event: e.Event


@dataclass
class ReadJournal:
    """The part of a journal that was read so far: hashes and times of events, and which workers held the run."""

    run_id: UUID
    head: Head | None = None
    at: list[datetime] = field(default_factory=list)
    hashes: list[bytes] = field(default_factory=list)
    claims: dict[int, e.RunClaimed] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    size: int = 0  # of all events, in bytes
    is_start_unreadable: bool = False  # its problem is reported, and nothing is compared with it
    is_erased: bool = False  # its payloads can't be read any more, so they are None
    notes: list[str] = field(default_factory=list)
    _row: dict[type[Model], Any] = field(default_factory=dict)

    @property
    def seq(self) -> int:
        """Return the last event's seq."""
        return len(self.at)

    @cached_property
    def present(self) -> frozenset[str]:
        """Return the tables that contain rows of this run.

        Most runs have rows in few tables, so the others aren't queried.
        """
        parts = [
            f"CASE WHEN EXISTS (SELECT FROM {table} WHERE {column} = run.id) THEN '{table}' END"
            for table, column in tables.items()
        ]
        with connection.cursor() as cursor:
            cursor.execute(_PRESENT.format(parts=", ".join(parts)), [self.run_id])
            return frozenset(cursor.fetchone()[0])

    def rows(
        self, model: type[M], *order: str, related: Sequence[str] = (), batch: int = 0, **where: Any
    ) -> Iterator[M]:
        """Yield the run's rows of a registered table, in chunks of `batch` if given. An empty table isn't queried."""
        table = model._meta.db_table
        if table in self.present:
            rows = model._default_manager.filter(**{tables[table]: self.run_id}, **where).order_by(*order)
            rows = rows.select_related(*related) if related else rows
            yield from rows.iterator(chunk_size=batch) if batch else rows

    def row(self, model: type[M]) -> M | None:
        """Return the run's first row of a registered table, read once."""
        if model not in self._row:
            self._row[model] = next(self.rows(model, model._meta.pk.name), None)
        found: M | None = self._row[model]
        return found

    @cached_property
    def acts(self) -> Sequence[ActRecord]:
        """Return the act records about this run."""
        return list(self.rows(ActRecord, "id"))

    @property
    def started_by(self) -> int | None:
        """Return the account that started the run, from the act record; None if the system did."""
        return next((act.person for act in self.acts if act.action == "start"), None)

    def hash_at(self, seq: int) -> bytes | None:
        """Return an event's hash, or the chain's genesis for 0."""
        return genesis(self.run_id) if seq == 0 else self.hashes[seq - 1] if 0 < seq <= self.seq else None

    def is_just_after(self, seq: int, at: datetime | None) -> bool:
        """Return whether a row with this time could have been written in the event's transaction, after the event.

        It can't be later than the next event. If that one is earlier than this event, because a clock was set back or
        another server's clock took over, it can't be more than SLACK later than this event.
        """
        if at is None or not 0 < seq <= self.seq:
            return False
        own = self.at[seq - 1]
        following = self.at[seq] if seq < self.seq else at
        return own <= at <= (own + SLACK if following < own else following)

    def is_about(self, seq: int, at: datetime | None) -> bool:
        """Return whether a time matches that of an event, within the duration of a transaction."""
        return at is not None and 0 < seq <= self.seq and abs(at - self.at[seq - 1]) <= SLACK

    def holder(self, line: EventLine) -> str:
        """Return the worker whose claim covers the event, in the form used in rows."""
        claimed = self.claims.get(line.epoch)
        return f"worker:{claimed.worker}" if claimed else ""


class Check(Protocol):
    """One check of one run: it is given each event in order, then reports the problems of its tables.

    On an erased run, only checks whose `NEEDS_NO_CONTENT` is true are run. There payloads are None, and texts by people
    are empty.
    """

    def __init__(self, journal: ReadJournal) -> None: ...

    def see(self, line: EventLine) -> None: ...

    def problems(self) -> Iterator[str]: ...


checks: list[Callable[[ReadJournal], Check]] = []
# Tables whose rows belong to runs, and the column with the run's id.
tables: dict[str, str] = {
    "ledger_head": "run_id",
    "ledger_event": "run_id",
    "ledger_ledgerentry": "run_id",
    "ledger_overriderecord": "run_id",
    "ledger_actrecord": "run_id",
}


def register(*more: Callable[[ReadJournal], Check], **of: str) -> None:
    """Add an app's checks, and its tables, each with the name of the column that has the run's id. Idempotent."""
    checks.extend(check for check in more if check not in checks)
    tables.update(of)


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of verifying one run. `problems` is empty if its record is intact."""

    run_id: UUID
    events: int
    first_at: datetime | None
    last_at: datetime | None
    head_hash: str
    problems: list[str]
    notes: list[str] = field(default_factory=list)


def verify(run_id: UUID, *, using: Sequence[Callable[[ReadJournal], Check]] | None = None) -> Verification:
    """Verify one run with all registered checks, or only `using`; an archived run from its archive.

    Raises NotFound if no table mentions it.
    """
    with snapshot():
        if (elsewhere := archives.archived([run_id]).get(run_id)) is not None:
            return elsewhere.verify()
        return _verify(run_id, checks if using is None else using)


def verify_all(
    after: UUID | None = None, *, since: datetime | None = None, processes: int = 1
) -> Iterator[Verification]:
    """Verify every run that any table mentions, ordered by id; with `since`, only runs with events since then.

    Several `processes` verify runs in parallel. Raises BrokenProcessPool if one of them dies; the runs yielded before
    that have been verified.
    """
    if processes == 1:
        for run_ids in _batches(after, since):
            yield from _verify_each(run_ids)
        return
    batches = _batches(after, since)
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), initializer=django.setup) as pool:
        # A few batches ahead, so that the processes never wait and the memory stays bounded.
        upcoming = deque(pool.submit(_verify_each, each) for each in islice(batches, 2 * processes))
        while upcoming:
            yield from upcoming.popleft().result()
            upcoming.extend(pool.submit(_verify_each, each) for each in islice(batches, 1))


def _verify_each(run_ids: Sequence[UUID]) -> list[Verification]:
    found = []
    elsewhere = archives.archived(run_ids)  # the registers' checks include these
    for run_id in run_ids:
        if run_id in elsewhere:
            continue
        with suppress(NotFound):  # the database's owner has deleted the run meanwhile
            found.append(verify(run_id))
    return found


def _batches(after: UUID | None, since: datetime | None) -> Iterator[list[UUID]]:
    if since is not None:
        moved = _moved_runs(after, since)
        yield from (moved[n : n + _RUNS] for n in range(0, len(moved), _RUNS))
        return
    while run_ids := known_runs(after, _RUNS):
        yield run_ids
        after = run_ids[-1]


def _moved_runs(after: UUID | None, since: datetime) -> list[UUID]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT run_id FROM ledger_event WHERE at >= %s AND run_id > %s ORDER BY run_id",
            [since, after or NO_RUN],
        )
        return [row[0] for row in cursor.fetchall()]


def known_runs(after: UUID | None, limit: int) -> list[UUID]:
    """Return the next runs (by id) that any table mentions, so that deleted heads or rows are noticed."""
    # Each table is read by index, so every page costs the same. The first page starts at the lowest id, which no run
    # has, to find rows forged with it.
    beyond = ">=" if after is None else ">"
    each = " UNION ".join(
        f"(SELECT {column} AS id FROM {table} WHERE {column} {beyond} %(after)s "
        f"GROUP BY {column} ORDER BY {column} LIMIT %(limit)s)"
        for table, column in tables.items()
    )
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT id FROM ({each}) AS every ORDER BY id LIMIT %(limit)s", {"after": after or NO_RUN, "limit": limit}
        )
        return [row[0] for row in cursor.fetchall()]


@contextmanager
def snapshot() -> Iterator[None]:
    """Read everything inside from one snapshot; within an open transaction, from that transaction's snapshot.

    The transaction takes no locks and nothing waits for it, so it may be idle longer than other transactions.
    """
    if connection.in_atomic_block:
        yield
        return
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(
                "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY; "
                "SET LOCAL idle_in_transaction_session_timeout = '2min'"
            )
        yield


def _verify(run_id: UUID, using: Sequence[Callable[[ReadJournal], Check]]) -> Verification:
    journal = ReadJournal(run_id, Head.objects.filter(pk=run_id).first())
    running = [make(journal) for make in using]
    problems = journal.problems
    for line in _read(journal, problems):
        if journal.is_erased and line.seq == 1:
            running = [check for check in running if getattr(check, "NEEDS_NO_CONTENT", False)]
        for check in running:
            try:
                check.see(line)
            except Erased as error:
                journal.notes.append(f"event {line.seq} could not be compared with another run. {error.detail}")
            except UNREADABLE as error:
                problems.append(no_sense(f"event {line.seq}, {type(check).__name__}", error))
    if not journal.present:
        raise NotFound("run", run_id)
    problems += _head_problems(journal)
    if journal.is_erased:
        problems += _erasure_problems(journal, erasure_of(run_id))
    for check in running:
        problems.extend(_problems_of(check, journal.notes))
    at, head = journal.at, journal.head
    return Verification(
        run_id,
        journal.seq,
        at[0] if at else None,
        at[-1] if at else None,
        bytes(head.chain).hex() if head else "",
        problems,
        journal.notes,
    )


def _erasure_problems(journal: ReadJournal, erasure: Erasure | None) -> Iterator[str]:
    """Note who erased the content. If the last event is not an erasure, report the missing content as a problem."""
    if erasure is None:
        yield "its content can't be read any more, but its last event is not an erasure"
        return
    journal.notes.append(f"{erasure}. Its chain, codes and everything that needs no content were checked")


def _problems_of(check: Check, notes: list[str]) -> list[str]:
    """Return a check's problems.

    An unreadable row is reported as a problem; the check's other problems and later runs are still reported. A
    reference to an erased run is reported as not checked.
    """
    problems: list[str] = []
    try:
        problems.extend(check.problems())
    except Erased as error:
        notes.append(f"{type(check).__name__} could not compare everything with another run. {error.detail}")
    except UNREADABLE as error:
        problems.append(no_sense(type(check).__name__, error))
    return problems


def no_sense(what: str, error: Exception) -> str:
    """Return the problem of a check that met an unreadable row."""
    log.warning("%s could not be finished", what, exc_info=error)
    return f"{what}: a row can't be interpreted: {type(error).__name__}: {error}"


def _head_problems(journal: ReadJournal) -> Iterator[str]:
    head = journal.head
    if head is None:
        yield "the run's head is missing"
    elif head.seq != journal.seq:
        yield f"the journal ends at event {journal.seq}, but the head says {head.seq}"
    elif head.bytes is not None and head.bytes != journal.size:
        yield f"the journal's events have {journal.size} bytes, but the head says {head.bytes}"
    elif bytes(head.chain) != journal.hash_at(journal.seq):
        yield "the last event's hash differs from the one in the head"


def _read(journal: ReadJournal, problems: list[str]) -> Iterator[EventLine]:
    """Yield every readable event, after checking chain, columns and code."""
    rows = Event.objects.filter(run_id=journal.run_id).order_by("seq")
    prev, used = genesis(journal.run_id), set[bytes]()
    last, left = 0, _MAX_GAPS
    for row in rows.iterator(chunk_size=_BATCH):
        if row.seq != last + 1:
            problems.append(f"event {last + 1} is missing: the next one found is {row.seq}")
        last = max(last, row.seq)
        journal.size += len(row.clear) + len(row.sealed or b"")
        # Missing events get placeholders, so that rows are compared with the event of their own number. Beyond the
        # maximum there are no placeholders.
        missing = row.seq - journal.seq - 1
        if 0 <= missing <= left:
            left -= missing
            journal.at.extend([row.at] * (missing + 1))
            journal.hashes.extend([*[b""] * missing, bytes(row.hash)])
        if bytes(row.prev_hash) != prev:
            problems.append(f"event {row.seq} does not link to the event before it")
        prev = bytes(row.hash)
        line = _check_event(journal, row, problems, used)
        if line is not None:
            if isinstance(line.event, e.RunClaimed):
                journal.claims[line.epoch] = line.event
            yield line


def _check_event(journal: ReadJournal, row: Event, problems: list[str], used: set[bytes]) -> EventLine | None:
    """Check one row and return it; None if unreadable."""
    link, code = Link.of(row), None if row.code is None else bytes(row.code)
    body = link.body()
    if not link.is_as_written(body):
        problems.append(f"event {row.seq} was changed: its content does not match its hash")
    try:
        event = e.decode(link.clear, _payload(journal, link.sealed))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        journal.is_start_unreadable |= row.seq == 1
        problems.append(f"event {row.seq} can't be read: {type(error).__name__}: {error}")
        return None
    if (event.KIND, event.slot, event.attempt, event.fact) != (row.kind, row.slot, row.attempt, row.fact):
        problems.append(f"event {row.seq}: its columns say {row.kind} at {row.slot}, which differs from its content")
    if code is None:
        if not may_lack_code(event):
            problems.append(f"event {row.seq}, {event.KIND}, has no code: this installation did not write it")
    elif code in used:
        problems.append(f"event {row.seq}, {event.KIND}, is a copy: its code was used before")
    elif event.KIND in SQL_MADE or not is_authentic(code_key(), journal.run_id, row.seq, body, code):
        problems.append(
            f"event {row.seq}, {event.KIND}, was not written with this installation's key, "
            "or not for its place in this run"
        )
    if code is not None:
        used.add(code)
    return EventLine(row.seq, row.epoch, row.at, link.hash, event)


def _payload(journal: ReadJournal, sealed: bytes | None) -> Any:
    """Return an event's payload; None if it was erased, which is recorded in the result. Raises ValueError."""
    try:
        return unpack(sealed)
    except Erased:
        journal.is_erased = True
        return None


def compared(what: str, row: Any, expected: dict[str, Any]) -> Iterator[str]:
    """Yield each column that differs from the journal. A set as the expected value lists all valid values."""
    for column, right in expected.items():
        value = getattr(row, column)
        value = bytes(value) if isinstance(value, memoryview) else value
        if value not in right if isinstance(right, (set, frozenset)) else value != right:
            yield f"{what}: {column} says {_format_value(value)}, the journal {_format_value(right)}"


def _format_value(value: Any) -> str:
    if isinstance(value, (set, frozenset)):
        return " or ".join(sorted(_format_value(each) for each in value)) or "nothing that fits"
    text = value.hex() if isinstance(value, bytes) else value.isoformat() if isinstance(value, datetime) else str(value)
    text = masked_text(text)
    return text if len(text) <= 80 else text[:77] + "…"


def at_most_once(what: str, keys: Sequence[Any]) -> Iterator[str]:
    """Report keys that occur more than once."""
    seen: set[Any] = set()
    for key in keys:
        if key in seen:
            yield f"{what} {key} exists more than once"
        seen.add(key)
