"""Report on outcomes of runs: completion rate, times, tokens and money, by agent and version."""

from __future__ import annotations

from typing import Any

from durableagents.contrib.reports.reports import Content, Definition, ReportKind, Request
from durableagents.contrib.reports.statements import rows_of, seen_run
from durableagents.contrib.reports.tables import Column, Figure, Table, Value
from ledger.web.roles import EVERY

# Waits that only a person can end.
_HUMAN = "'approval', 'input', 'reconcile', 'operator', 'budget'"
# Selects the runs of the period. A run and its continuations count as one, with the values of the last run.
_RUNS = f"""
    SELECT r.id, r.agent, r.version, r.state, r.created_at, r.ended_at,
           h.tokens_in + h.tokens_out AS tokens, h.usd_micro, h.unpriced_calls, h.steps,
           (SELECT count(*) FROM runs_incident i WHERE i.run_id = r.id) AS recoveries,
           EXISTS (SELECT 1 FROM runs_wait w WHERE w.run_id = r.id AND w.kind IN ({_HUMAN}))
           OR EXISTS (SELECT 1 FROM ledger_overriderecord o WHERE o.run_id = r.id) AS had_human,
           r.ended_at IS NULL AND EXISTS (
               SELECT 1 FROM runs_wait w WHERE w.run_id = r.id AND w.resolved_at IS NULL
               AND w.kind IN ({_HUMAN}) AND w.deadline < %(now)s) AS is_left_waiting,
           r.state = 'cancelled' AND EXISTS (
               SELECT 1 FROM ledger_event e WHERE e.run_id = r.id AND e.seq = r.end_seq AND e.kind = 'RunCancelled'
               AND convert_from(e.clear, 'UTF8')::jsonb ->> 'by' LIKE 'system:%%'
               AND convert_from(e.clear, 'UTF8')::jsonb ->> 'by' <> 'system:family') AS is_cancelled_by_time
    FROM runs_run r LEFT JOIN ledger_head h ON h.run_id = r.id
    WHERE r.created_at >= %(start)s AND r.created_at < %(end)s AND r.goes_on_as IS NULL AND {{seen}}"""
_ABANDONED = "(is_left_waiting OR is_cancelled_by_time)"
_GROUPS = f"""
WITH runs AS ({_RUNS})
SELECT agent, version, count(*) AS runs,
       count(*) FILTER (WHERE state = 'completed') AS completed,
       count(*) FILTER (WHERE state = 'failed') AS failed,
       count(*) FILTER (WHERE state = 'cancelled') AS cancelled,
       count(*) FILTER (WHERE ended_at IS NULL) AS open,
       round(100.0 * count(*) FILTER (WHERE state = 'completed')
             / nullif(count(*) FILTER (WHERE state IN ('completed', 'failed')), 0), 2) AS completion,
       round((percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM ended_at - created_at))
              FILTER (WHERE state = 'completed'))::numeric, 3) AS median_seconds,
       round(avg(tokens) FILTER (WHERE state = 'completed'), 1) AS tokens,
       round(avg(usd_micro) FILTER (WHERE state = 'completed') / 1000000, 6) AS usd,
       count(*) FILTER (WHERE state = 'completed' AND unpriced_calls > 0) AS unpriced,
       round(100.0 * count(*) FILTER (WHERE state = 'completed' AND NOT had_human)
             / nullif(count(*) FILTER (WHERE state = 'completed'), 0), 2) AS without_human,
       count(*) FILTER (WHERE {_ABANDONED}) AS abandoned,
       round(100.0 * count(*) FILTER (WHERE {_ABANDONED}) / nullif(count(*), 0), 2) AS abandoned_percent,
       round(avg(steps) FILTER (WHERE ended_at IS NOT NULL), 1) AS steps, sum(recoveries) AS recoveries,
       round(avg(usd_micro) FILTER (WHERE ended_at IS NOT NULL AND recoveries > 0) / 1000000, 6) AS usd_recovered,
       round(avg(usd_micro) FILTER (WHERE ended_at IS NOT NULL AND recoveries = 0) / 1000000, 6) AS usd_undisturbed
FROM runs GROUP BY GROUPING SETS ((), (agent, version))
ORDER BY grouping(agent) DESC, agent, version"""
_WAITS = f"""
SELECT r.agent, r.version, count(*),
       round((percentile_cont(0.95) WITHIN GROUP (
           ORDER BY extract(epoch FROM w.resolved_at - w.opened_at)))::numeric, 3) AS p95_seconds
FROM runs_run r JOIN runs_wait w ON w.run_id = r.id
WHERE r.created_at >= %(start)s AND r.created_at < %(end)s AND r.goes_on_as IS NULL AND {{seen}}
      AND w.kind IN ({_HUMAN}) AND w.resolved_at IS NOT NULL AND w.resolution <> 'withdrawn'
GROUP BY GROUPING SETS ((), (r.agent, r.version))
ORDER BY grouping(r.agent) DESC, r.agent, r.version"""
_COLUMNS = (
    Column("agent", "Agent"),
    Column("version", "Version"),
    Column("runs", "Runs", "number"),
    Column("completed", "Completed", "number"),
    Column("failed", "Failed", "number"),
    Column("cancelled", "Cancelled", "number"),
    Column("open", "Not ended", "number"),
    Column("completion_percent", "Completion %", "percent"),
    Column("median_seconds", "Median time, s", "seconds"),
    Column("wait_p95_seconds", "Wait p95, s", "seconds"),
    Column("tokens_per_completed", "Tokens per run", "number"),
    Column("usd_per_completed", "USD per run", "usd"),
    Column("without_human_percent", "Without a person %", "percent"),
    Column("abandoned", "Abandoned", "number"),
    Column("abandoned_percent", "Abandoned %", "percent"),
    Column("steps_per_ended", "Steps per run", "number"),
    Column("recoveries", "Recoveries", "number"),
    Column("usd_per_recovered", "USD, recovered", "usd"),
    Column("usd_per_undisturbed", "USD, others", "usd"),
)

_COUNTS = 5  # the counts are: runs, completed, failed, cancelled, open


def make(request: Request) -> Content:
    """Count the runs that began in the period."""
    seen, who = seen_run()
    params: dict[str, Any] = {"start": request.period.start, "end": request.period.end, "now": request.now, **who}
    waits = {(agent, version): (count, p95) for agent, version, count, p95 in rows_of(_WAITS.format(seen=seen), params)}
    rows: list[tuple[Value, ...]] = []
    unpriced = 0
    for agent, version, *counts_and_rest in rows_of(_GROUPS.format(seen=seen), params):
        counts, rest = counts_and_rest[:_COUNTS], counts_and_rest[_COUNTS:]
        completion, median, tokens, usd, without_price, *last = rest
        p95 = waits.get((agent, version), (0, None))[1]
        rows.append((agent, version, *counts, completion, median, p95, tokens, usd, *last))
        unpriced = max(unpriced, without_price)
    total, groups = rows[0], rows[1:]
    names = [column for column in _COLUMNS if column.name not in ("agent", "version")]
    figures = [
        Figure(c.name, _LABELS.get(c.name, c.label), value, c.kind) for c, value in zip(names, total[2:], strict=True)
    ]
    figures.append(Figure("waits_for_people", "Waits for people that ended", waits.get((None, None), (0, None))[0]))
    notes = [f"{unpriced} completed runs used a model without a price, so the real cost is higher."] if unpriced else []
    return Content(figures, [Table.of("agents", "By agent and version", _COLUMNS, groups)], notes)


_LABELS = {
    "completion_percent": "Completion rate",
    "median_seconds": "Median time of a completed run",
    "wait_p95_seconds": "95 % of waits for people were shorter than",
    "tokens_per_completed": "Tokens per completed run",
    "usd_per_completed": "Cost per completed run",
    "without_human_percent": "Completed without a person",
    "abandoned_percent": "Abandoned rate",
    "steps_per_ended": "Steps of a run that ended",
    "usd_per_recovered": "Cost of a run with a recovery",
    "usd_per_undisturbed": "Cost of a run without a recovery",
}

REPORT = ReportKind(
    name="outcomes",
    title="Outcomes and cost",
    about="Completion rate, times, tokens and money per completed run, and abandoned runs.",
    definition=Definition(
        counts="All runs that were started in the period, by the agent and version that they have now. The completion "
        "rate is completed runs among those that completed or failed, as in alerts: cancelled ones don't count. "
        "The time of a run is from its start until its end, waits "
        "included. A wait counts if only a person can end it: an approval, a question, an unknown outcome, an "
        "operator's look, a budget. A run counts as unattended if it had no such wait and no override. A run is "
        "abandoned if it still waits for a person whose deadline has passed, or if the system cancelled it because "
        "nobody answered in time or it was not begun by its latest start. Steps, and cost with and without "
        "recoveries, are averages of runs that ended.",
        leaves_out="A run that continues as another one (renewal, handoff) is left out; only the last one counts. "
        "Child runs count as runs of their own, and their tokens and cost also count for their parent. Model requests "
        "without a price cost nothing here.",
        period="By the time when a run was started. Everything until the report is made counts.",
    ),
    queries={"Runs, by agent and version": _GROUPS, "Waits for people that ended": _WAITS},
    roles=EVERY,
    make=make,
)
