"""Starts, ends and recoveries over time, for the Insights page."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from durableagents.contrib.reports.period import Period
from durableagents.contrib.reports.statements import of_seen_run, rows_of, seen_run

# Divides the period into spans of equal length, numbered from 0.
_SPAN = """least(floor(extract(epoch FROM {at} - %(start)s::timestamptz)
    / extract(epoch FROM %(end)s::timestamptz - %(start)s::timestamptz) * %(spans)s)::int, %(spans)s - 1)"""
_STATES = f"""
SELECT {_SPAN.format(at="r.created_at")} AS span, count(*) FILTER (WHERE r.state = 'completed'),
       count(*) FILTER (WHERE r.state = 'failed'), count(*) FILTER (WHERE r.state NOT IN ('completed', 'failed'))
FROM runs_run r WHERE r.created_at >= %(start)s AND r.created_at < %(end)s AND r.goes_on_as IS NULL AND {{seen}}
GROUP BY 1"""
_RECOVERIES = f"""
SELECT {_SPAN.format(at="i.at")} AS span, count(*) FROM runs_incident i
WHERE i.at >= %(start)s AND i.at < %(end)s AND {{seen}} GROUP BY 1"""


@dataclass(frozen=True, slots=True)
class Span:
    """The runs that were started in a span of time, by their current state, and the recoveries in that span."""

    start: datetime
    completed: int
    failed: int
    other: int
    recoveries: int

    @property
    def runs(self) -> int:
        return self.completed + self.failed + self.other


def over_time(period: Period, spans: int) -> list[Span]:
    """Return the period in spans of equal length, counting only runs that the reader may see."""
    params: dict[str, Any] = {"start": period.start, "end": period.end, "spans": spans}
    seen, who = seen_run()
    states = {n: counts for n, *counts in rows_of(_STATES.format(seen=seen), {**params, **who})}
    seen, who = of_seen_run("i.run_id")
    recoveries = dict(rows_of(_RECOVERIES.format(seen=seen), {**params, **who}))
    length = (period.end - period.start) / spans
    found = []
    for n in range(spans):
        completed, failed, other = states.get(n, (0, 0, 0))
        found.append(Span(period.start + length * n, completed, failed, other, recoveries.get(n, 0)))
    return found
