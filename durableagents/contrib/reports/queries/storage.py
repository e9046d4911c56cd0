"""Report on storage: size by table, growth by day and agent, forecast, and checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.db import connection

from durableagents.contrib.reports.reports import Content, Definition, ReportKind, Request
from durableagents.contrib.reports.statements import rows_of
from durableagents.contrib.reports.tables import Column, Figure, Table, Value
from ledger.web.roles import AUDITOR, OPERATOR

_TABLES = """
SELECT c.relname, pg_total_relation_size(c.oid), pg_indexes_size(c.oid), greatest(c.reltuples, 0)::bigint
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p') ORDER BY 2 DESC, 1"""
_DATABASE = "SELECT pg_database_size(current_database())"
_SAMPLES = """
SELECT s.day, sum(s.bytes) FILTER (WHERE s.table_name = ''),
       sum(s.bytes) FILTER (WHERE s.table_name = 'runs_checkpoint')
FROM reports_storagesample s WHERE s.day >= %(start)s::date AND s.day <= %(end)s::date
GROUP BY s.day ORDER BY s.day"""
_AGENTS = """
SELECT r.agent, count(*), sum(h.seq), coalesce(sum(h.bytes), 0)
FROM runs_run r JOIN ledger_head h ON h.run_id = r.id
WHERE r.created_at >= %(start)s AND r.created_at < %(end)s GROUP BY r.agent ORDER BY 4 DESC, 1"""
_DAYS = """
SELECT to_char(r.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD'), count(*), sum(h.seq), coalesce(sum(h.bytes), 0)
FROM runs_run r JOIN ledger_head h ON h.run_id = r.id
WHERE r.created_at >= %(start)s AND r.created_at < %(end)s GROUP BY 1 ORDER BY 1"""
_CHECKPOINTS = """
SELECT r.agent, count(*), coalesce(sum(octet_length(c.state)), 0), max(octet_length(c.state))
FROM runs_run r JOIN runs_checkpoint c ON c.run_id = r.id
WHERE r.created_at >= %(start)s AND r.created_at < %(end)s GROUP BY r.agent ORDER BY 3 DESC, 1"""
_TABLE_COLUMNS = (
    Column("table", "Table"),
    Column("bytes", "Bytes", "bytes"),
    Column("index_bytes", "Of these, indexes", "bytes"),
    Column("rows", "Rows, estimated", "number"),
    Column("percent", "Share %", "percent"),
)
_JOURNAL = (
    Column("runs", "Runs", "number"),
    Column("events", "Events", "number"),
    Column("journal_bytes", "Journal bytes", "bytes"),
)
_FORECAST = (
    Column("day", "Day"),
    Column("database_bytes", "Database", "bytes"),
    Column("checkpoint_bytes", "Checkpoints", "bytes"),
)
FORECAST_DAYS = (30, 90, 365)
LARGEST = 30


def make(request: Request) -> Content:
    """Measure the tables now, and count the rows written by runs of the period."""
    params: dict[str, Any] = {"start": request.period.start, "end": request.period.end}
    tables = rows_of(_TABLES, {})
    ((database,),) = rows_of(_DATABASE, {})
    agents, days = rows_of(_AGENTS, params), rows_of(_DAYS, params)
    checkpoints = rows_of(_CHECKPOINTS, params)
    samples = rows_of(_SAMPLES, params)
    every = sum(bytes for _, bytes, *_ in tables) or 1
    listed: list[tuple[Value, ...]] = [
        (name, bytes, indexes, rows, _percent(bytes, every)) for name, bytes, indexes, rows in tables[:LARGEST]
    ]
    if rest := tables[LARGEST:]:
        sums = [int(sum(row[n] for row in rest)) for n in (1, 2, 3)]
        listed.append((f"{len(rest)} smaller tables", *sums, _percent(sums[0], every)))
    now = next((bytes for name, bytes, *_ in tables if name == "runs_checkpoint"), 0)
    growth, checkpoint_growth = _per_day(samples, 1), _per_day(samples, 2)
    figures = [
        Figure("database_bytes", "Database", database, "bytes"),
        Figure("checkpoint_bytes", "Checkpoints", now, "bytes"),
        Figure("database_growth", "Growth of the database per day", growth, "bytes"),
        Figure("checkpoint_growth", "Growth of the checkpoints per day", checkpoint_growth, "bytes"),
        Figure("runs", "Runs started in the period", sum(row[1] for row in agents)),
        Figure("journal_bytes", "Their journals", int(sum(row[3] for row in agents)), "bytes"),
        Figure("checkpoints", "Their checkpoints", sum(row[1] for row in checkpoints)),
    ]
    forecast: list[tuple[Value, ...]] = [
        (
            (request.now + timedelta(days=days)).date().isoformat(),
            max(0, database + growth * days),
            max(0, now + (checkpoint_growth or 0) * days),
        )
        for days in FORECAST_DAYS
        if growth is not None
    ]
    notes = [
        "There is no forecast yet: it needs sizes of two different days in the period, and one size is stored per day."
    ]
    return Content(
        figures,
        [
            Table.of("forecast", "Forecast", _FORECAST, forecast),
            Table.of("tables", "By table, now", _TABLE_COLUMNS, listed),
            Table.of("agents", "By agent", (Column("agent", "Agent"), *_JOURNAL), _whole(agents)),
            Table.of("days", "By day", (Column("day", "Day"), *_JOURNAL), _whole(days)),
            Table.of("checkpoints", "Checkpoints by agent", _CHECKPOINT_COLUMNS, _whole(checkpoints)),
            Table.of("samples", "Sizes kept", _FORECAST, [(str(day), *_whole([rest])[0]) for day, *rest in samples]),
        ],
        notes if growth is None else (),
    )


_CHECKPOINT_COLUMNS = (
    Column("agent", "Agent"),
    Column("checkpoints", "Checkpoints", "number"),
    Column("bytes", "Bytes", "bytes"),
    Column("largest", "Largest, bytes", "bytes"),
)


def _percent(part: int, whole: int) -> Decimal:
    return round(Decimal(100) * part / whole, 2)


def _whole(rows: Sequence[Sequence[Any]]) -> list[tuple[Value, ...]]:
    """Convert sums to whole numbers, because the database returns them as decimals."""
    return [tuple(int(value) if isinstance(value, Decimal) else value for value in row) for row in rows]


def _per_day(samples: Sequence[Sequence[Any]], column: int) -> int | None:
    """Return the growth per day between the first and the last sample; None with fewer than two samples."""
    known = [(day, int(values)) for day, values in ((row[0], row[column]) for row in samples) if values is not None]
    if len(known) < 2:
        return None
    (first, was), (last, now) = known[0], known[-1]
    return round((now - was) / (last - first).days)


# --- samples ----------------------------------------------------------------------------------------------------------

SAMPLE_IS_DUE = """NOT EXISTS (
    SELECT FROM reports_storagesample WHERE day = (now() AT TIME ZONE 'UTC')::date AND table_name = '')"""
_SAMPLE = """
INSERT INTO reports_storagesample (day, table_name, bytes)
SELECT (now() AT TIME ZONE 'UTC')::date, c.relname, pg_total_relation_size(c.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p')
UNION ALL SELECT (now() AT TIME ZONE 'UTC')::date, '', pg_database_size(current_database())
ON CONFLICT DO NOTHING"""


def sample() -> int:
    """Store today's sizes unless they are stored already. Return the number of rows written."""
    with connection.cursor() as cursor:
        cursor.execute(_SAMPLE)
        return cursor.rowcount


REPORT = ReportKind(
    name="storage",
    title="Storage",
    about="Size by table, growth per day and agent, checkpoints, and a forecast.",
    definition=Definition(
        counts="The current size of each table with its indexes, and an estimate of its rows. By agent and "
        "day: the stored size of the journals and checkpoints of the runs that were started in the period. The "
        "forecast is the size now plus the growth per day between the first and the last size stored in the period.",
        leaves_out="Files outside the database, its write-ahead log and backups. Space that was freed inside a table "
        "counts until the database gives it back.",
        period="Runs count by the time when they were started; sizes by the day (UTC) when they were stored.",
    ),
    queries={
        "By table": _TABLES,
        "Database": _DATABASE,
        "By agent": _AGENTS,
        "By day": _DAYS,
        "Checkpoints": _CHECKPOINTS,
        "Sizes kept": _SAMPLES,
    },
    roles=(OPERATOR, AUDITOR),
    make=make,
)
