"""Finds the run heads that moved since the last seal, and seals them."""

# How moved heads are found, without a scan of all runs and without work on the path that appends:
#
# 1. Events since the last seal, by a BRIN index on their time (a few pages, see ledger/models.py). An event gets its
#    time before its transaction commits, so a late commit has an earlier time than the seal that could not see it. Each
#    seal therefore records which transactions were open. The search begins at the newest seal that was made before any
#    of those began, however long they took.
# 2. If the clock was set back since the last seal, or no seal helps (the first one, a database restored from a dump),
#    all heads.
# 3. In addition, always a few hundred heads in the order of their ids. That finds heads that a clock jumping back and
#    forth between two seals would hide; a full walk takes hours for a million runs.
#
# A head counts as moved if its number is above the run's last sealed one.

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from heapq import merge
from itertools import groupby, islice
from operator import attrgetter
from typing import Any
from uuid import UUID, uuid4

from django.db import connection, transaction

from durableagents.contrib.seals.keyring import LOCK, SealKeyProblem, signing_key
from durableagents.contrib.seals.merkle import merkle_root
from durableagents.contrib.seals.models import Seal, SealKey
from durableagents.contrib.seals.records import NO_SEAL, Leaf, SealRecord
from ledger.models import Event

log = logging.getLogger("durableagents.contrib.seals")
INTERVAL_SECONDS = 5
# A seal is delivered to a witness in one piece, of about a megabyte.
MAX_LEAVES = 10_000
WALKED_HEADS = 300
# The longest time between reading the clock and the first row of a transaction.
_MARGIN = timedelta(seconds=1)
_COMPLAINT_SECONDS = 60.0
# The job is due unless a seal was made in the last few seconds. A seal with a time in the future, written while the
# clock was ahead, is ignored.
IS_DUE = (
    "NOT EXISTS (SELECT 1 FROM (SELECT at FROM seals_seal ORDER BY number DESC LIMIT 1) last "
    f"WHERE at BETWEEN statement_timestamp() - interval '{INTERVAL_SECONDS} s' AND statement_timestamp())"
)
_MOVED = """
    SELECT h.run_id, h.seq, h.chain FROM {heads} h
    LEFT JOIN LATERAL (
        SELECT s.seq FROM seals_sealedhead s WHERE s.run_id = h.run_id ORDER BY s.seq DESC LIMIT 1
    ) sealed ON true
    WHERE h.seq > coalesce(sealed.seq, 0)
    ORDER BY h.run_id"""
# MATERIALIZED makes the planner read the events of the last seconds first, by their index, and then look up each run.
SINCE = (
    """WITH recent AS MATERIALIZED (SELECT DISTINCT run_id FROM ledger_event WHERE at >= %(since)s)"""
    + _MOVED.format(heads="(SELECT l.* FROM recent JOIN ledger_head l USING (run_id))")
)
_ALL = _MOVED.format(heads="ledger_head")
_WALK = _MOVED.format(heads="(SELECT * FROM ledger_head WHERE run_id > %(after)s ORDER BY run_id LIMIT %(walked)s)")
_WALKED_TO = """
    SELECT run_id FROM ledger_head WHERE run_id > %s ORDER BY run_id OFFSET %s LIMIT 1"""
_OPEN = """
    SELECT pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint FROM pg_current_snapshot() AS s"""


class SealsDamaged(Exception):
    """The last seal was not made by this installation, so no further seals may follow it."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The time at which heads were read, and the transactions that were open then."""

    at: datetime
    oldest_open_xid: int
    next_xid: int

    @classmethod
    def now(cls) -> Moment:
        """Return the current moment.

        The clock is read first, so that rows invisible to later statements were written after `at` or by an open
        transaction."""
        with connection.cursor() as cursor:
            cursor.execute("SELECT clock_timestamp()")
            (at,) = cursor.fetchone()
            cursor.execute(_OPEN)
            return cls(at, *cursor.fetchone())


# The position of this process in its walk over the heads. Each process begins at a random position.
_walked_to = uuid4()
_due_at = _complain_at = 0.0


def seal_when_due() -> int:
    """Seal all moved heads, at most once in `INTERVAL_SECONDS` in this process; return the number of seals.

    A problem with the key is logged once a minute, and nothing is sealed until it is solved."""
    global _due_at, _complain_at
    now = time.monotonic()
    if now < _due_at:
        return 0
    _due_at = now + INTERVAL_SECONDS
    try:
        return seal_all()
    except (SealKeyProblem, SealsDamaged) as error:
        if now >= _complain_at:
            _complain_at = now + _COMPLAINT_SECONDS
            log.error("nothing is sealed: %s", error)
        return 0


@transaction.atomic
def seal_all() -> int:
    """Seal all moved heads; return the number of seals.

    It is 0 if no head moved, or if another process is sealing. Raises SealKeyProblem, SealsDamaged."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT pg_try_advisory_xact_lock({LOCK})")
        if cursor.fetchone() == (False,):
            return 0
    last = Seal.objects.order_by("-number").first()
    moment, number = Moment.now(), 0 if last is None else last.number
    previous = NO_SEAL
    key, private = None, None
    moved = find_moved(moment, last)
    while leaves := list(islice(moved, MAX_LEAVES)):
        if key is None or private is None:
            key, private = signing_key()
            previous = NO_SEAL if last is None else _checked(last).hash
        number += 1
        root = merkle_root(leaf.data for leaf in leaves)
        record = SealRecord(number, moment.at, key.number, previous, root, len(leaves))
        record = replace(record, signature=private.sign(record.message))
        _store(record, leaves, moment)
        previous = record.hash
    made = number - (0 if last is None else last.number)
    if made and last is not None and moment.at < last.at:
        log.warning("seal %s: the clock was set back by %s since the seal before", number, last.at - moment.at)
    return made


def _checked(last: Seal) -> SealRecord:
    """Return the last seal. Raises SealsDamaged if no recorded key signed the last seal."""
    key = SealKey.objects.filter(number=last.key).first()
    if key is None or not last.record.is_signed_by(bytes(key.public_key)):
        raise SealsDamaged(
            f"the last seal, {last.number}, was not made with this installation's key: run manage.py seals verify"
        )
    return last.record


def _store(record: SealRecord, leaves: Sequence[Leaf], moment: Moment) -> None:
    Seal.objects.create(
        number=record.number,
        at=record.at,
        key=record.key,
        previous=record.previous,
        root=record.root,
        count=record.count,
        signature=record.signature,
        oldest_open_xid=moment.oldest_open_xid,
        next_xid=moment.next_xid,
    )
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO seals_sealedhead (run_id, seq, hash, seal) "
            "SELECT *, %s FROM unnest(%s::uuid[], %s::bigint[], %s::bytea[])",
            [record.number, *(list(column) for column in zip(*leaves, strict=True))],
        )


# --- which heads moved ------------------------------------------------------------------------------------------------


def find_moved(moment: Moment, last: Seal | None) -> Iterator[Leaf]:
    """Yield the heads that moved since they were last sealed, sorted by run."""
    global _walked_to
    since = search_start(moment, last)
    if since is None:
        yield from _read(_ALL)
        return
    walked, _walked_to = _walked_to, _next_stop(_walked_to)
    heads = merge(_read(SINCE, since=since), _read(_WALK, after=walked, walked=WALKED_HEADS))
    for _, same in groupby(heads, key=attrgetter("run_id")):
        yield max(same)  # the second statement may read later events of the same run


def has_moved(moment: Moment, last: Seal | None, *, older_than: datetime) -> bool:
    """Return whether there is an unsealed head whose last event is older than `older_than`."""
    moved = _read(_ALL) if (since := search_start(moment, last)) is None else _read(SINCE, since=since)
    events = Event.objects.filter(at__lt=older_than)
    return any(events.filter(run_id=leaf.run_id, seq=leaf.seq).exists() for leaf in moved)


def search_start(moment: Moment, last: Seal | None) -> datetime | None:
    """Return a time before which all moved heads are known to be sealed; None if all heads have to be searched."""
    if last is None or moment.at < last.at:
        return None
    began = Seal.objects.filter(next_xid__lte=last.oldest_open_xid).order_by("-number")
    start = began.values_list("number", flat=True).first()
    if start is None:
        return None
    times = Seal.objects.filter(number__gte=start).values_list("at", flat=True)
    return min(moment.at, *times) - _MARGIN


def _next_stop(after: UUID) -> UUID:
    with connection.cursor() as cursor:
        cursor.execute(_WALKED_TO, [after, WALKED_HEADS - 1])
        row = cursor.fetchone()
    return row[0] if row else UUID(int=0)


def _read(statement: str, **parameters: Any) -> Iterator[Leaf]:
    with connection.cursor() as settings:
        # The planner's statistics lag behind the newest events, which are the ones that are read.
        settings.execute("SET LOCAL enable_seqscan = off")
        with connection.chunked_cursor() as cursor:  # the first round may read a million runs
            cursor.execute(statement, parameters)
            settings.execute("SET LOCAL enable_seqscan = on")
            for run_id, seq, chain in cursor:
                yield Leaf(run_id, seq, bytes(chain))
