"""A periodic job that counts events and measures current figures, in one worker at a time.

Facts are removed in the transaction that counts them, so the counts stay right if a worker is killed or a second one
runs, whatever the clocks show and in whatever order transactions commit."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from durableagents.contrib.metrics.counting import Increments
from durableagents.contrib.metrics.models import Fact, Snapshot
from durableagents.contrib.metrics.stock import count_ended, take_stock
from ledger.clock import database_now
from runs.fleet.incidents import IncidentRow, described
from runs.models import Incident, Run

PERIOD_SECONDS = 10
# Measuring current figures, and counting ended runs, take at most these shares of the time.
STOCK_SHARE, ENDED_SHARE, ENDED_SECONDS = 0.05, 0.01, 15.0
# A snapshot from the future is replaced: it was taken before the clock was set back.
IS_DUE = f"""NOT EXISTS (
    SELECT FROM metrics_snapshot WHERE at < clock_timestamp() + interval '1 second'
    AND at > clock_timestamp() - make_interval(secs => greatest({PERIOD_SECONDS}, seconds / {STOCK_SHARE})))"""
PASS_SECONDS = 20.0
FACTS_BATCH, RECOVERIES_BATCH = 5000, 500
_LOCK = 0x4D45545249435331  # "METRICS1" in ASCII
_ENDS = {"RunCompleted": "completed", "RunFailed": "failed", "RunCancelled": "cancelled"}

_TAKE = """
    WITH taken AS (
        DELETE FROM metrics_fact WHERE id = ANY(ARRAY(
            SELECT id FROM metrics_fact WHERE kind = ANY(%s) ORDER BY id LIMIT %s))
        RETURNING *)
    SELECT t.kind, t.run_id, t.seq, t.name, t.queue, t.seconds, r.agent, extract(epoch FROM e.at - r.created_at)::float,
           CASE WHEN t.name = ANY(%s) THEN e.clear END
    FROM taken t LEFT JOIN runs_run r ON r.id = t.run_id
    LEFT JOIN ledger_event e ON e.run_id = t.run_id AND e.seq = t.seq AND t.kind = 'event'"""
_WITH_FIELDS = ["BudgetDebited", "ModelRouted", "ModelFailed"]


def collect() -> None:
    """Count all facts, for at most PASS_SECONDS, then measure current figures.

    Returns at once if another process is doing so."""
    until = time.monotonic() + PASS_SECONDS
    is_last = False
    while not is_last:
        with transaction.atomic():
            if not _has_lock():
                return
            increments = Increments()
            is_last = _count_facts(increments) < FACTS_BATCH or time.monotonic() > until
            if is_last:
                _settle_recoveries(increments)
                _finish(increments)
            increments.store()


def _has_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [_LOCK])
        return bool(cursor.fetchone()[0])


# --- facts ------------------------------------------------------------------------------------------------------------


def _count_facts(increments: Increments) -> int:
    """Count and remove the oldest facts; return their number."""
    with connection.cursor() as cursor:
        cursor.execute(_TAKE, [[Fact.Kind.EVENT, Fact.Kind.WAIT, Fact.Kind.INCIDENT], FACTS_BATCH, _WITH_FIELDS])
        rows = cursor.fetchall()
    recovering = []
    for kind, run_id, seq, name, queue, seconds, agent, age, clear in rows:
        if kind == Fact.Kind.WAIT:
            increments.observe("wait_seconds", name, queue, seconds=seconds)
        elif kind == Fact.Kind.INCIDENT:
            increments.add("recoveries", name)
            recovering.append(Fact(kind=Fact.Kind.RECOVERING, run_id=run_id, seq=seq, name=name))
        else:
            _count_event(increments, name, agent or "", age, {} if clear is None else json.loads(bytes(clear)))
    Fact.objects.bulk_create(recovering)
    return len(rows)


def _count_event(increments: Increments, kind: str, agent: str, age: float | None, fields: Mapping[str, Any]) -> None:
    """Count one event, by its kind and clear fields. `age` is the age of the run when the event was written."""
    match kind:
        case "RunCreated":
            increments.add("runs_created", agent)
        case "RunCompleted" | "RunFailed" | "RunCancelled":
            increments.add("runs_ended", agent, _ENDS[kind])
            if age is not None:
                increments.observe("run_seconds", agent, _ENDS[kind], seconds=age)
        case "BudgetDebited" if fields:
            _count_debit(increments, agent, fields)
        case "ModelRouted" if fields.get("n", 0) > 1:
            increments.add("model_requests_repeated", fields["model"])
        case "ModelFailed":
            increments.add("model_errors", fields.get("code", ""))
        case "ToolOutcomeUnknown":
            increments.add("unknown_outcomes")
        case "ToolRedispatched":
            increments.add("calls_repeated")
        case _:
            pass


def _count_debit(increments: Increments, agent: str, debit: Mapping[str, Any]) -> None:
    model = debit["model"]
    increments.add("model_requests", model, by=debit["model_calls"])
    for direction, n in (("in", debit["tokens_in"]), ("out", debit["tokens_out"])):
        increments.add("tokens", agent, model, direction, by=n)
    if debit["usd_micro"] is None:
        increments.add("unpriced_requests", model, by=debit["model_calls"])
    else:
        increments.add("cost_usd", agent, model, by=debit["usd_micro"] / 1_000_000)


# --- recoveries -------------------------------------------------------------------------------------------------------


def _settle_recoveries(increments: Increments) -> None:
    """Count the outcomes of recoveries.

    They are examined in random order, so that runs that make no progress don't keep others from being counted."""
    facts = list(Fact.objects.filter(kind=Fact.Kind.RECOVERING).order_by("?")[:RECOVERIES_BATCH])
    if not facts:
        return
    runs = {fact.run_id for fact in facts}
    rows = {(row.run_id, row.seq): row for row in described(list(Incident.objects.filter(run_id__in=runs)))}
    ended = set(Run.objects.filter(id__in=runs, ended_at__isnull=False).values_list("id", flat=True))
    settled = []
    for fact in facts:
        row = rows.get((fact.run_id, fact.seq or 0))
        if outcome := _outcome(row, rows, is_over=row is None or fact.run_id in ended):
            increments.add("recoveries_settled", fact.name, outcome)
            if outcome == "resumed" and row is not None and row.stepped_at is not None:
                since = row.last_sign_at or row.freed_at
                seconds = (row.stepped_at - since).total_seconds()
                increments.observe("recovery_seconds", fact.name, seconds=seconds)
            settled.append(fact.pk)
    Fact.objects.filter(pk__in=settled).delete()


def _outcome(row: IncidentRow | None, rows: Mapping[tuple[UUID, int], IncidentRow], *, is_over: bool) -> str:
    """Return the outcome of a recovery; empty if it is not known yet.

    `row` is None once retention has removed the run."""
    if row is not None and row.is_stopped:
        return "stopped"
    if row is not None and row.stepped_at is not None:
        return "resumed"
    if row is not None and any(run == row.run_id and seq > row.seq for run, seq in rows):
        return "lost_again"
    return "ended" if is_over else ""


# --- effects and stock ------------------------------------------------------------------------------------------------

# Reads the last entry number and the transactions in progress at the same moment. An entry gets its number after its
# transaction has an id, because the transaction locks the run's head first.
_PLACE = """
    SELECT (SELECT coalesce(max(id), 0) FROM ledger_ledgerentry), pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
           pg_snapshot_xmax(pg_current_snapshot())::text::bigint"""
_EFFECTS = """
    SELECT tool, count(*) FROM ledger_ledgerentry WHERE id > %s AND id <= %s AND fact = 'committed' GROUP BY tool"""


def _finish(increments: Increments) -> None:
    """Count the effects of complete ledger entries, and store the current figures."""
    snapshot = Snapshot.objects.filter(pk=1).first() or Snapshot(pk=1)
    with connection.cursor() as cursor:
        cursor.execute(_PLACE)
        newest, oldest_xid, next_xid = cursor.fetchone()
        if oldest_xid >= snapshot.next_xid:
            cursor.execute(_EFFECTS, [snapshot.entry, snapshot.next_entry])
            for tool, n in cursor.fetchall():
                increments.add("effects", tool, by=n)
            snapshot.entry = snapshot.next_entry
            snapshot.next_entry, snapshot.next_xid = max(newest, snapshot.entry), next_xid
        now, began = database_now(), time.monotonic()
        snapshot.at, snapshot.samples = now, _stored(take_stock())
        snapshot.seconds = time.monotonic() - began
        pause = max(ENDED_SECONDS, snapshot.ended_seconds / ENDED_SHARE)
        if snapshot.ended_at is None or not 0 <= (now - snapshot.ended_at).total_seconds() < pause:
            began = time.monotonic()
            snapshot.ended, snapshot.ended_at = _stored(count_ended()), now
            snapshot.ended_seconds = time.monotonic() - began
    snapshot.save()


def _stored(samples: Iterable[tuple[str, Sequence[str], float]]) -> list[list[Any]]:
    return [[name, list(labels), value] for name, labels, value in samples]
