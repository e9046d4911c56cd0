"""Report on approvals: how fast they were decided, by whom, and who approved which amounts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

from approvals.models import Approval
from durableagents.contrib.reports.reports import Content, Definition, ReportKind, Request
from durableagents.contrib.reports.statements import of_seen_run, rows_of
from durableagents.contrib.reports.tables import MAX_ROWS, Column, Figure, Table, Value
from ledger.web.roles import READS_AUDIT
from runs.engine.gating.fields import Amount, amount_in
from runs.seen import readable

_IN_PERIOD = "a.state <> 'open' AND a.decided_at >= %(start)s AND a.decided_at < %(end)s AND {seen}"
# Joins the decision that closed the approval; there is none if it expired or was withdrawn.
_CLOSING = "LEFT JOIN approvals_decision d ON d.approval_id = a.id AND d.closes"
_SECONDS = "extract(epoch FROM a.decided_at - a.opened_at)"
_SAME = """CASE WHEN a.requester IS NOT NULL AND d.person IS NOT NULL THEN a.requester = d.person
                   ELSE a.requested_by = d.by END"""
_QUEUES = f"""
SELECT a.queue, count(*),
       count(*) FILTER (WHERE a.state = 'approved') AS approved,
       count(*) FILTER (WHERE a.state = 'rejected') AS rejected,
       count(*) FILTER (WHERE a.state = 'amended') AS amended,
       count(*) FILTER (WHERE a.state = 'expired') AS expired,
       count(*) FILTER (WHERE a.state = 'withdrawn') AS withdrawn,
       round(100.0 * count(*) FILTER (WHERE a.state IN ('approved', 'rejected', 'amended')
                                      AND a.decided_at <= a.deadline)
             / nullif(count(*) FILTER (WHERE a.state <> 'withdrawn'), 0), 2) AS in_time,
       round((percentile_cont(0.5) WITHIN GROUP (ORDER BY {_SECONDS})
              FILTER (WHERE a.state IN ('approved', 'rejected', 'amended')))::numeric, 3) AS median_seconds,
       round((percentile_cont(0.95) WITHIN GROUP (ORDER BY {_SECONDS})
              FILTER (WHERE a.state IN ('approved', 'rejected', 'amended')))::numeric, 3) AS p95_seconds,
       count(*) FILTER (WHERE d.id IS NOT NULL AND {_SAME}) AS by_requester
FROM approvals_approval a {_CLOSING} WHERE {_IN_PERIOD}
GROUP BY GROUPING SETS ((), (a.queue)) ORDER BY grouping(a.queue) DESC, a.queue"""
_ROWS = f"""
SELECT a.id FROM approvals_approval a WHERE {_IN_PERIOD} ORDER BY a.decided_at DESC, a.id DESC LIMIT %(limit)s"""
_OVERDUE = """
SELECT count(*) FROM approvals_approval a WHERE a.state = 'open' AND a.deadline < %(now)s AND {seen}"""
_COLUMNS = (
    Column("opened_at", "Asked", "time"),
    Column("decided_at", "Closed", "time"),
    Column("queue", "Queue"),
    Column("outcome", "Outcome"),
    Column("run", "Run", "run"),
    Column("tool", "Tool"),
    Column("requested_by", "Requested by"),
    Column("decided_by", "Decided by"),
    Column("role", "Role"),
    Column("duties", "Separation of duties"),
    Column("amount", "Amount", "amount"),
    Column("currency", "Currency"),
    Column("wait_seconds", "Wait, s", "seconds"),
    Column("deadline", "Deadline", "time"),
    Column("in_time", "In time"),
    Column("justification", "Why"),
)
_QUEUE_COLUMNS = (
    Column("queue", "Queue"),
    Column("closed", "Closed", "number"),
    Column("approved", "Approved", "number"),
    Column("rejected", "Rejected", "number"),
    Column("amended", "Amended", "number"),
    Column("expired", "Expired", "number"),
    Column("withdrawn", "Withdrawn", "number"),
    Column("in_time_percent", "In time %", "percent"),
    Column("median_seconds", "Median wait, s", "seconds"),
    Column("wait_p95_seconds", "Wait p95, s", "seconds"),
    Column("by_requester", "By the requester", "number"),
)
_PEOPLE_COLUMNS = (
    Column("by", "Who"),
    Column("approved", "Approved", "number"),
    Column("rejected", "Rejected", "number"),
    Column("currency", "Currency"),
    Column("sum_approved", "Sum approved", "amount"),
)
DIFFERENT, SAME, NOBODY, UNKNOWN = "different people", "same person", "nobody decided", "not known"


def make(request: Request) -> Content:
    """List the approvals that were closed in the period, newest first."""
    seen, who = of_seen_run("a.run_id")
    params: dict[str, Any] = {
        "start": request.period.start,
        "end": request.period.end,
        "now": request.now,
        "limit": MAX_ROWS,
        **who,
    }
    queues = rows_of(_QUEUES.format(seen=seen), params)
    overdue = rows_of(_OVERDUE.format(seen=seen), params)[0][0]
    ids = [id for (id,) in rows_of(_ROWS.format(seen=seen), params)]
    found = Approval.objects.select_related("run").prefetch_related("decisions").in_bulk(ids)
    approvals = [found[id] for id in ids if id in found]
    may_read = readable({each.run_id: each.run.creator for each in approvals})
    listed = [_row(each, may_read) for each in approvals]
    names = _QUEUE_COLUMNS[1:]
    figures = [
        Figure(c.name, _LABELS.get(c.name, c.label), value, c.kind)
        for c, value in zip(names, queues[0][1:], strict=True)
    ]
    figures.append(Figure("overdue", "Open past their deadline now", overdue))
    hidden = sum(each.run_id not in may_read for each in approvals)
    notes = [f"The amounts of {hidden} approvals are not shown to you: ask an administrator for access to run data."]
    return Content(
        figures,
        [
            Table.of("queues", "By queue", _QUEUE_COLUMNS, queues[1:]),
            Table.of("people", "By person, for the approvals listed below", _PEOPLE_COLUMNS, _people(listed)),
            Table.of("approvals", "Approvals", _COLUMNS, listed, queues[0][1]),
        ],
        notes if hidden else (),
    )


def _row(approval: Approval, may_read: Iterable[UUID]) -> tuple[Value, ...]:
    closing = next((each for each in approval.decisions.all() if each.closes), None)
    amount = amount_in(approval.planned()) if approval.run_id in may_read else None
    value, currency = (amount.value, amount.currency) if isinstance(amount, Amount) else (None, amount or "")
    decided_at = approval.decided_at or approval.opened_at
    is_decided = closing is not None
    return (
        approval.opened_at,
        decided_at,
        approval.queue,
        str(approval.state),
        approval.run_id,
        approval.tool,
        approval.requested_by,
        closing.by if closing else "",
        closing.role if closing else "",
        _duties(approval, closing),
        value,
        currency,
        round(Decimal(str((decided_at - approval.opened_at).total_seconds())), 3),
        approval.deadline,
        is_decided and decided_at <= approval.deadline if approval.state != "withdrawn" else None,
        closing.justification if closing else "",
    )


def _duties(approval: Approval, closing: Any) -> str:
    """Return whether requester and decider differ.

    They are compared by account, or by name if a program made the request or the decision."""
    if closing is None:
        return NOBODY
    if approval.requester is not None and closing.person is not None:
        return SAME if approval.requester == closing.person else DIFFERENT
    return SAME if approval.requested_by == closing.by else DIFFERENT if approval.requested_by else UNKNOWN


def _people(listed: Sequence[tuple[Value, ...]]) -> list[tuple[Value, ...]]:
    """Count the decisions and add up the approved amounts, by person and currency."""
    names = [column.name for column in _COLUMNS]
    counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    sums: dict[tuple[str, str], Decimal] = {}
    for row in (dict(zip(names, each, strict=True)) for each in listed):
        if not row["decided_by"]:
            continue
        amount = row["amount"]
        of = str(row["decided_by"]), str(row["currency"]) if isinstance(amount, Decimal) else ""
        counts[of][0] += row["outcome"] == "approved"
        counts[of][1] += row["outcome"] == "rejected"
        if row["outcome"] == "approved" and isinstance(amount, Decimal):
            sums[of] = sums.get(of, Decimal(0)) + amount
    return [(by, *counts[by, currency], currency, sums.get((by, currency))) for by, currency in sorted(counts)]


_LABELS = {
    "in_time_percent": "Decided in time",
    "median_seconds": "Median wait for a decision",
    "wait_p95_seconds": "95 % of waits were shorter than",
    "by_requester": "Decided by the requester",
}

REPORT = ReportKind(
    name="approvals",
    title="Approvals",
    about="How fast approvals were decided, whether requester and decider differ, and who approved which amounts.",
    definition=Definition(
        counts="Every question to a queue that was closed in the period: approved, rejected, amended, expired or "
        "withdrawn. In time means decided before its deadline, as it is after extensions; the rate leaves withdrawn "
        "questions out and counts expired ones as missed. The decider is the person whose vote closed the question. "
        "Requester and decider are compared by account; if a program made the request, by the recorded names.",
        leaves_out="Questions that are still open (only those past their deadline are counted), and earlier votes of "
        "decisions by several people: the run's report lists these. Amounts are those that the gate declares; they "
        "are shown to readers with access to run data only. Sums cover the approvals that are listed.",
        period="Questions count by the time when they were closed.",
    ),
    queries={"By queue": _QUEUES, "Approvals": _ROWS, "Open past their deadline": _OVERDUE},
    roles=READS_AUDIT,
    make=make,
)
