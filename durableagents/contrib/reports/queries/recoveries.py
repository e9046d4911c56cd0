"""Report on recoveries: runs taken over from lost workers, their cost, and the repeated work."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from durableagents.contrib.reports.reports import Content, Definition, ReportKind, Request
from durableagents.contrib.reports.statements import of_seen_run, rows_of
from durableagents.contrib.reports.tables import MAX_ROWS, Column, Figure, Table, Value
from ledger.web.roles import AUDITOR, OPERATOR
from runs.fleet.incidents import IncidentRow, described
from runs.models import Incident

_WHERE = "i.at >= %(start)s AND i.at < %(end)s AND {seen}"
_ROWS = f"""
SELECT i.* FROM runs_incident i WHERE {_WHERE} ORDER BY i.at DESC, i.id DESC LIMIT %(limit)s"""
_CAUSES = f"""
SELECT i.cause, count(*), count(DISTINCT i.run_id), count(*) FILTER (WHERE i.is_counted),
       count(*) FILTER (WHERE i.is_stopped), sum(i.replayed),
       round(avg(extract(epoch FROM i.at - i.last_sign_at))::numeric, 3)
FROM runs_incident i WHERE {_WHERE}
GROUP BY GROUPING SETS ((), (i.cause)) ORDER BY grouping(i.cause) DESC, 2 DESC, 1"""
# Adds up the charges for model requests whose answer was lost. The charge is the reservation, since the real cost is
# unknown.
_LOST = """
SELECT i.id, sum((convert_from(e.clear, 'UTF8')::jsonb ->> 'usd_micro')::numeric) / 1000000,
       sum((convert_from(e.clear, 'UTF8')::jsonb ->> 'tokens_in')::numeric
           + (convert_from(e.clear, 'UTF8')::jsonb ->> 'tokens_out')::numeric)
FROM runs_incident i
CROSS JOIN LATERAL jsonb_to_recordset(
    CASE jsonb_typeof(i.in_doubt) WHEN 'array' THEN i.in_doubt ELSE '[]' END)
    AS d(slot text, attempt int, replay_class text)
JOIN ledger_event e ON e.run_id = i.run_id AND e.slot = d.slot AND e.attempt = d.attempt
     AND e.kind = 'BudgetDebited' AND e.seq > i.seq
WHERE i.id = ANY(%(ids)s) AND d.replay_class = 'model'
      AND (convert_from(e.clear, 'UTF8')::jsonb ->> 'is_estimate')::boolean
GROUP BY i.id"""
_COLUMNS = (
    Column("at", "When", "time"),
    Column("cause", "Cause"),
    Column("run", "Run", "run"),
    Column("event", "Event", "number"),
    Column("worker", "Lost worker"),
    Column("proof", "Proof"),
    Column("reached", "Run had reached"),
    Column("silent_seconds", "Silent before, s", "seconds"),
    Column("down_seconds", "Downtime, s", "seconds"),
    Column("reused", "Results reused", "number"),
    Column("calls_repeated", "Calls repeated", "number"),
    Column("requests_repeated", "Model requests repeated", "number"),
    Column("lost_tokens", "Tokens paid twice", "number"),
    Column("lost_usd", "USD paid twice", "usd"),
    Column("in_progress", "Calls in progress and their outcomes"),
    Column("is_stopped", "Stopped for an operator"),
)
_CAUSE_COLUMNS = (
    Column("cause", "Cause"),
    Column("recoveries", "Recoveries", "number"),
    Column("runs", "Runs", "number"),
    Column("counted", "Counted as a death", "number"),
    Column("stopped", "Stopped for an operator", "number"),
    Column("reused", "Results reused", "number"),
    Column("silent_seconds", "Average silence before recovery (s)", "seconds"),
)


def make(request: Request) -> Content:
    """List the recoveries in the period, newest first."""
    seen, who = of_seen_run("i.run_id")
    params: dict[str, Any] = {"start": request.period.start, "end": request.period.end, "limit": MAX_ROWS, **who}
    causes = rows_of(_CAUSES.format(seen=seen), params)
    rows = described(list(Incident.objects.raw(_ROWS.format(seen=seen), params)))
    lost = {id: (usd, tokens) for id, usd, tokens in rows_of(_LOST, {"ids": [row.id for row in rows]})}
    listed = [_row(row, *lost.get(row.id, (Decimal(0), 0))) for row in rows]
    down = sorted(Decimal(str(row.down_seconds)) for row in rows if row.down_seconds is not None)
    names = [column.name for column in _COLUMNS]

    def total(name: str) -> Any:
        return sum(values[names.index(name)] or 0 for values in listed)  # type: ignore[misc]

    _, count, runs, _, stopped, reused, _ = causes[0]
    figures = [
        Figure("recoveries", "Recoveries", count),
        Figure("runs", "Runs", runs),
        Figure("stopped", "Runs stopped for an operator", stopped),
        Figure("median_down_seconds", "Median downtime", down[len(down) // 2] if down else None, "seconds"),
        Figure("longest_down_seconds", "Longest downtime", down[-1] if down else None, "seconds"),
        Figure("reused", "Recorded results reused", reused or 0),
        Figure("calls_repeated", "Calls repeated", total("calls_repeated")),
        Figure("requests_repeated", "Model requests repeated", total("requests_repeated")),
        Figure("lost_usd", "Paid twice", total("lost_usd"), "usd"),
        Figure("not_resumed", "Not resumed yet", sum(row.stepped_at is None for row in rows)),
    ]
    return Content(
        figures,
        [
            Table.of("causes", "By cause", _CAUSE_COLUMNS, causes[1:]),
            Table.of("recoveries", "Recoveries", _COLUMNS, listed, count),
        ],
    )


def _row(row: IncidentRow, usd: Decimal, tokens: int) -> tuple[Value, ...]:
    repeated = [call for call in row.calls if call.fate == "repeated"]
    requests = sum(call.replay_class == "model" for call in repeated)
    return (
        row.freed_at,
        str(row.cause),
        row.run_id,
        row.seq,
        f"pid {row.pid} on {row.host}",
        row.proof,
        str(row.reached),
        _seconds(row.silent_seconds),
        _seconds(row.down_seconds),
        row.skipped,
        len(repeated) - requests,
        requests,
        int(tokens),
        round(Decimal(usd), 6),
        "; ".join(f"{call.tool} {call.fate}: {call.why}" for call in row.calls),
        row.is_stopped,
    )


def _seconds(value: float | None) -> Decimal | None:
    return None if value is None else Decimal(str(value))


REPORT = ReportKind(
    name="recoveries",
    title="Recoveries",
    about="Runs taken over from lost workers: cause, downtime, repeated work and its cost.",
    definition=Definition(
        counts="Every time a run was taken from a worker that had not released it: because the worker ended, gave no "
        "sign of life, was declared dead, was cut off while draining, or because an operator returned the run to the "
        "queue. Downtime is the time from when other workers could take the run until its next step. Repeated are the "
        "calls and model requests that were in progress and were made again. Paid twice is what was charged for model "
        "requests whose answer was lost: the estimate, since the bill of such a request is not known.",
        leaves_out="Lost workers that had no run, and regular handovers at a shutdown. Sums and the median of "
        "the downtime cover the recoveries that are listed.",
        period="Recoveries count by the time when the run was taken from its worker.",
    ),
    queries={"Recoveries": _ROWS, "By cause": _CAUSES, "Paid twice": _LOST},
    roles=(OPERATOR, AUDITOR),
    make=make,
)
