"""Report on overrides: people's acts that changed the course of a run."""

from __future__ import annotations

from typing import Any

from durableagents.contrib.reports.reports import Content, Definition, ReportKind, Request
from durableagents.contrib.reports.statements import of_seen_run, rows_of
from durableagents.contrib.reports.tables import MAX_ROWS, Column, Figure, Table
from ledger.models import OverrideRecord
from ledger.web.roles import READS_AUDIT

_WHERE = "o.at >= %(start)s AND o.at < %(end)s AND {seen}"
_ROWS = f"""
SELECT o.* FROM ledger_overriderecord o WHERE {_WHERE} ORDER BY o.at DESC, o.id DESC LIMIT %(limit)s"""
_COUNTS = f"""
SELECT o.action, o.by, count(*), count(DISTINCT o.run_id)
FROM ledger_overriderecord o WHERE {_WHERE}
GROUP BY GROUPING SETS ((), (o.action), (o.by)) ORDER BY 3 DESC, 1, 2"""
_AGENTS = "SELECT id, graph_id FROM runs_run WHERE id = ANY(%(runs)s)"
_COLUMNS = (
    Column("at", "When", "time"),
    Column("action", "Action"),
    Column("run", "Run", "run"),
    Column("agent", "Agent"),
    Column("by", "Who"),
    Column("role", "Role"),
    Column("auth", "Signed in by"),
    Column("before", "State before"),
    Column("after", "State after"),
    Column("justification", "Why"),
    Column("seq", "After event", "number"),
    Column("is_authentic", "Authentic"),
)


def make(request: Request) -> Content:
    """List the overrides in the period, newest first."""
    seen, who = of_seen_run("o.run_id")
    params: dict[str, Any] = {"start": request.period.start, "end": request.period.end, "limit": MAX_ROWS, **who}
    counts = rows_of(_COUNTS.format(seen=seen), params)
    total, runs = next((n, of) for action, by, n, of in counts if action is None and by is None)
    rows = list(OverrideRecord.objects.raw(_ROWS.format(seen=seen), params))
    agents = dict(rows_of(_AGENTS, {"runs": [row.run_id for row in rows]}))
    listed = [
        (
            row.at,
            row.action,
            row.run_id,
            agents.get(row.run_id, ""),
            row.by,
            row.role,
            row.auth,
            _state(row.before),
            _state(row.after),
            row.justification,
            row.seq,
            row.is_authentic,
        )
        for row in rows
    ]
    by_action = [(action, n, of) for action, by, n, of in counts if action is not None]
    by_person = [(by, n, of) for action, by, n, of in counts if by is not None]
    return Content(
        [Figure("overrides", "Overrides", total), Figure("runs", "Runs with an override", runs)],
        [
            Table.of("actions", "By action", _counted("action", "Action"), by_action),
            Table.of("people", "By person", _counted("by", "Who"), by_person),
            Table.of("overrides", "Overrides", _COLUMNS, listed, total),
        ],
    )


def _counted(name: str, label: str) -> tuple[Column, ...]:
    return Column(name, label), Column("overrides", "Overrides", "number"), Column("runs", "Runs", "number")


def _state(values: Any) -> str:
    return str(values.get("state") or "") if isinstance(values, dict) else ""


REPORT = ReportKind(
    name="overrides",
    title="Overrides",
    about="Acts of people that changed a run, with the person, the reason, and the state before and after.",
    definition=Definition(
        counts="Every pause, resumption, cancellation, retry, settled outcome, raised budget, change of models, fork, "
        "new start, migration, injected context and return to the queue, with the given reason.",
        leaves_out="Decisions of approvals, which have a report of their own, and acts that change no run's course, "
        "such as starts, answers and signals: the audit page lists those.",
        period="Overrides count by the time of the act.",
    ),
    queries={"Overrides": _ROWS, "Counts": _COUNTS, "The runs' agents": _AGENTS},
    roles=READS_AUDIT,
    make=make,
)
