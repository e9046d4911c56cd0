"""Report on idempotency violations: findings of duplicate effects, and their rate."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from decimal import Decimal
from typing import Any

from durableagents.contrib.reports.models import DetectorPlace, Finding
from durableagents.contrib.reports.period import iso
from durableagents.contrib.reports.reports import Content, Definition, ReportKind, Request
from durableagents.contrib.reports.statements import first_id, of_seen_run, rows_of
from durableagents.contrib.reports.tables import MAX_ROWS, Column, Figure, Table, Value
from ledger.web.roles import AUDITOR, OPERATOR

# Each call with an effect is counted once, however often its outcome was recorded. Entries are numbered as they are
# written; `first` and `last` bound the numbers of the entries in the period (see statements.py).
_EFFECTS = """
SELECT tool, count(*) FROM (
    SELECT DISTINCT l.tool, l.run_id, l.slot, l.attempt FROM ledger_ledgerentry l
    WHERE l.id >= %(first)s AND l.id < %(last)s AND l.at >= %(start)s AND l.at < %(end)s
      AND (l.fact = 'committed' OR (l.fact = 'reconciled' AND coalesce(l.digest, '') NOT IN ('did_not', 'fail')))
) AS effects GROUP BY tool ORDER BY 2 DESC, 1"""
_REPEATS = """
SELECT count(*) FROM ledger_event e
WHERE e.kind = 'ToolRedispatched' AND e.at >= %(start)s AND e.at < %(end)s"""
_COUNTS = """
SELECT f.kind, f.tool, CASE WHEN c.finding_id IS NULL THEN 'open' ELSE c.verdict END, count(*)
FROM reports_finding f LEFT JOIN reports_closure c ON c.finding_id = f.id
WHERE f.fact_at >= %(start)s AND f.fact_at < %(end)s AND (f.run_id IS NULL OR {seen})
GROUP BY 1, 2, 3"""
_FINDINGS = """
SELECT f.* FROM reports_finding f
WHERE f.fact_at >= %(start)s AND f.fact_at < %(end)s AND (f.run_id IS NULL OR {seen})
ORDER BY f.fact_at DESC, f.id DESC LIMIT %(limit)s"""
_OVERLAP = timedelta(hours=1)
_COLUMNS = (
    Column("finding", "No.", "number"),
    Column("at", "When", "time"),
    Column("kind", "Kind"),
    Column("tool", "Tool"),
    Column("run", "Run", "run"),
    Column("event", "Event", "number"),
    Column("what", "What is on record"),
    Column("found_by", "Found by"),
    Column("state", "State"),
    Column("verdict", "Verdict"),
    Column("root_cause", "Root cause"),
    Column("closed_by", "Closed by"),
    Column("closed_at", "Closed", "time"),
)
_STATES = (
    Column("open", "Open", "number"),
    Column("duplicate", "Happened twice", "number"),
    Column("no_duplicate", "Did not", "number"),
)
_TOOL_COLUMNS = (
    Column("tool", "Tool"),
    Column("effects", "Effects", "number"),
    *_STATES,
    Column("rate_percent", "Duplicate rate %", "percent"),
)


def make(request: Request) -> Content:
    """Count the effects and findings in the period."""
    seen, who = of_seen_run("f.run_id")
    start, end = request.period.start, request.period.end
    params: dict[str, Any] = {"start": start, "end": end, "limit": MAX_ROWS, **who}
    ids = {
        "first": first_id("ledger_ledgerentry", start - _OVERLAP),
        "last": first_id("ledger_ledgerentry", end + _OVERLAP),
    }
    effects = dict(rows_of(_EFFECTS, {**params, **ids}))
    ((repeats,),) = rows_of(_REPEATS, params)
    by_kind: Counter[tuple[str, str]] = Counter()
    by_tool: Counter[tuple[str, str]] = Counter()
    states: Counter[str] = Counter()
    for kind, tool, state, n in rows_of(_COUNTS.format(seen=seen), params):
        by_kind[kind, state] += n
        by_tool[tool, state] += n
        states[state] += n
    rows = Finding.objects.raw(_FINDINGS.format(seen=seen), params).prefetch_related("closure")
    place = DetectorPlace.objects.filter(pk=1).first()
    total = sum(effects.values())
    figures = [
        Figure("effects", "Effects", total),
        Figure("repeats", "Calls sent again", repeats),
        Figure("findings", "Findings", states.total()),
        Figure("open", "Open", states["open"]),
        Figure("duplicate", "Happened twice", states["duplicate"]),
        Figure("no_duplicate", "Did not happen twice", states["no_duplicate"]),
        Figure("confirmed_percent", "Duplicate rate, confirmed", _percent(states["duplicate"], total), "percent"),
        Figure(
            "rate_percent",
            "Highest possible duplicate rate, if all open findings are confirmed",
            _percent(states["duplicate"] + states["open"], total),
            "percent",
        ),
        Figure("checked_at", "Last pass of the detector", place.checked_at if place else None, "time"),
    ]
    return Content(
        figures,
        [
            Table.of("kinds", "By kind", (Column("kind", "Kind"), *_STATES), _kinds(by_kind)),
            Table.of("tools", "By tool", _TOOL_COLUMNS, _tools(effects, by_tool)),
            Table.of("findings", "Findings", _COLUMNS, [_row(each) for each in rows], states.total()),
        ],
        _notes(place, request),
    )


def _notes(place: DetectorPlace | None, request: Request) -> list[str]:
    if place is None or place.checked_at is None:
        return ["The detector has not run yet: it runs in workers, and no worker has run since it was installed."]
    if place.is_behind:
        return ["The detector has not examined all events yet, so findings may be missing."]
    if place.checked_at < min(request.now, request.period.end) - timedelta(minutes=15):
        return [f"The detector last ran at {iso(place.checked_at)}, so later facts are missing. Are workers running?"]
    return []


def _kinds(counts: Counter[tuple[str, str]]) -> list[tuple[Value, ...]]:
    return [(str(label), *(counts[value, state.name] for state in _STATES)) for value, label in Finding.Kind.choices]


def _tools(effects: dict[str, int], counts: Counter[tuple[str, str]]) -> list[tuple[Value, ...]]:
    found: list[tuple[Value, ...]] = []
    for tool in sorted({*effects, *(tool for tool, _ in counts)}):
        numbers = [counts[tool, state.name] for state in _STATES]
        done = effects.get(tool, 0)
        found.append((tool or "not known", done, *numbers, _percent(numbers[0] + numbers[1], done)))
    return found


def _percent(part: int, whole: int) -> Decimal | None:
    return round(Decimal(100) * part / whole, 4) if whole else None


def _row(row: Finding) -> tuple[Value, ...]:
    closure = getattr(row, "closure", None)
    return (
        row.pk,
        row.fact_at,
        str(Finding.Kind(row.kind).label),
        row.tool,
        row.run_id,
        row.seq,
        row.what,
        row.by or "detector",
        "closed" if closure else "open",
        closure.verdict if closure else "",
        closure.root_cause if closure else "",
        closure.by if closure else "",
        closure.at if closure else None,
    )


REPORT = ReportKind(
    name="idempotency-violations",
    title="Idempotency violations",
    about="Facts that suggest that an effect happened twice, with state and root cause, and the duplicate rate.",
    definition=Definition(
        counts="A finding is one of these facts: a late answer that contradicts the recorded outcome; two external ids "
        "under one key; a call that was sent twice and answered differently (equal answers, and answers that name the "
        "recorded external id, are no finding); an upstream system that rejected a key as used; a probe that showed a "
        "tool to ignore keys, or a hook to deny what happened; and what a person reports. An effect is a call whose "
        "record says that it happened, counted once. The rate is findings that are confirmed, or also those that are "
        "open, divided by effects.",
        leaves_out="Duplicates without a trace in record or answers, and that nobody reported. Calls that only read. "
        "Findings that were closed as not being duplicates are listed, but don't count for the rate.",
        period="Findings count by the time of their fact, effects by the time when their outcome was recorded.",
    ),
    queries={"Effects": _EFFECTS, "Calls sent again": _REPEATS, "Findings": _FINDINGS, "Counts": _COUNTS},
    roles=(OPERATOR, AUDITOR),
    make=make,
)
