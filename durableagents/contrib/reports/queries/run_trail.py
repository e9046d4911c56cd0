"""One run's audit trail: steps, effects, approvals, overrides and recoveries, without the contents of payloads."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from approvals.models import Decision
from durableagents.contrib.reports.reports import Content, Definition, ReportKind, Request
from durableagents.contrib.reports.statements import rows_of
from durableagents.contrib.reports.tables import MAX_ROWS, Column, Figure, Table, Value
from ledger.models import OverrideRecord
from ledger.web.roles import EVERY
from ledger.web.seeing.viewers import must_see
from runs.fleet.incidents import described
from runs.models import Incident
from runs.services import lifecycle

_EVENTS = """
SELECT e.seq, e.at, e.kind, e.epoch, e.slot, e.attempt, e.clear
FROM ledger_event e WHERE e.run_id = %(run)s ORDER BY e.seq LIMIT %(limit)s"""
_COUNTS = """
SELECT count(*), count(*) FILTER (WHERE e.kind = 'VisitEntered'), count(*) FILTER (WHERE e.kind = 'ModelResponded')
FROM ledger_event e WHERE e.run_id = %(run)s"""
_EFFECTS = """
SELECT l.slot, l.attempt, max(l.tool), max(l.replay_class),
       (array_agg(l.fact ORDER BY l.id DESC))[1],
       min(l.at) FILTER (WHERE l.fact = 'pending'), max(l.at) FILTER (WHERE l.fact <> 'pending'),
       (array_agg(l.actor ORDER BY l.id DESC))[1], max(l.external_id)
FROM ledger_ledgerentry l WHERE l.run_id = %(run)s
GROUP BY l.slot, l.attempt ORDER BY min(l.seq) LIMIT %(limit)s"""
_DECISIONS = """
SELECT d.* FROM approvals_decision d JOIN approvals_approval a ON a.id = d.approval_id
WHERE a.run_id = %(run)s ORDER BY d.id LIMIT %(limit)s"""
_OVERRIDES = """
SELECT o.* FROM ledger_overriderecord o WHERE o.run_id = %(run)s ORDER BY o.id LIMIT %(limit)s"""
_RECOVERIES = """
SELECT i.* FROM runs_incident i WHERE i.run_id = %(run)s ORDER BY i.id LIMIT %(limit)s"""
_EVENT_COLUMNS = (
    Column("event", "Event", "number"),
    Column("at", "When", "time"),
    Column("what", "What happened"),
    Column("about", "Details"),
    Column("call", "Call"),
    Column("epoch", "Claim", "number"),
)
_EFFECT_COLUMNS = (
    Column("call", "Call"),
    Column("attempt", "Attempt", "number"),
    Column("tool", "Tool"),
    Column("class", "Replay class"),
    Column("state", "State"),
    Column("sent_at", "Sent from", "time"),
    Column("settled_at", "Last fact", "time"),
    Column("by", "Recorded by"),
    Column("external_id", "External id"),
)
_DECISION_COLUMNS = (
    Column("at", "When", "time"),
    Column("queue", "Queue"),
    Column("tool", "Tool"),
    Column("verdict", "Vote"),
    Column("by", "Who"),
    Column("role", "Role"),
    Column("auth", "Signed in by"),
    Column("justification", "Why"),
    Column("is_authentic", "Authentic"),
    Column("plan_hash", "Plan"),
)
_OVERRIDE_COLUMNS = (
    Column("at", "When", "time"),
    Column("action", "Action"),
    Column("by", "Who"),
    Column("role", "Role"),
    Column("justification", "Why"),
    Column("seq", "After event", "number"),
    Column("is_authentic", "Authentic"),
)
_RECOVERY_COLUMNS = (
    Column("at", "When", "time"),
    Column("cause", "Cause"),
    Column("proof", "Proof"),
    Column("down_seconds", "Downtime, s", "seconds"),
    Column("reused", "Results reused", "number"),
    Column("in_progress", "Calls in progress and their outcomes"),
)
# Fields of events that mean nothing to readers of a report.
_LEFT_OUT = frozenset(
    "kind slot attempt n requested_hash executed_hash request_hash input_hash plan_hash fingerprint".split()
)
_MAX_TEXT = 300


def make(request: Request) -> Content:
    """Build the trail of a run from its record. Raises NotFound."""
    assert request.run_id is not None
    must_see(request.run_id)
    run = lifecycle.find(request.run_id)
    params: dict[str, Any] = {"run": run.pk, "limit": MAX_ROWS}
    ((events, visits, answers),) = rows_of(_COUNTS, params)
    effects = rows_of(_EFFECTS, params)
    decisions = list(Decision.objects.raw(_DECISIONS, params).prefetch_related("approval"))
    overrides = list(OverrideRecord.objects.raw(_OVERRIDES, params))
    recoveries = described(list(Incident.objects.raw(_RECOVERIES, params)))
    figures = [
        Figure("agent", "Agent", run.graph_id, "text"),
        Figure("state", "State", str(run.state), "text"),
        Figure("started_by", "Started by", run.created_by, "text"),
        Figure("created_at", "Started", run.created_at, "time"),
        Figure("ended_at", "Ended", run.ended_at, "time"),
        Figure("events", "Events", events),
        Figure("visits", "Steps of the agent", visits),
        Figure("model_requests", "Answered model requests", answers),
        Figure("effects", "Calls with effects", len(effects)),
        Figure("unknown", "Of unknown outcome now", sum(row[4] == "unknown" for row in effects)),
        Figure("votes", "Votes on approvals", len(decisions)),
        Figure("overrides", "Overrides", len(overrides)),
        Figure("recoveries", "Recoveries", len(recoveries)),
    ]
    tables = [
        Table.of("effects", "Effects", _EFFECT_COLUMNS, effects),
        Table.of("decisions", "Approvals", _DECISION_COLUMNS, [_decision(each) for each in decisions]),
        Table.of("overrides", "Overrides", _OVERRIDE_COLUMNS, [_override(each) for each in overrides]),
        Table.of("recoveries", "Recoveries", _RECOVERY_COLUMNS, [_recovery(each) for each in recoveries]),
        Table.of("events", "Timeline", _EVENT_COLUMNS, [_event(row) for row in rows_of(_EVENTS, params)], events),
    ]
    return Content(figures, tables, subject=str(run.pk))


def _event(row: tuple[Any, ...]) -> tuple[Value, ...]:
    seq, at, kind, epoch, slot, attempt, clear = row
    call = f"{slot}, attempt {attempt + 1}" if slot and attempt else slot or ""
    return seq, at, words(kind), _fields(clear), call, epoch


def words(kind: str) -> str:
    """Return the name of a kind of event in plain words: "ToolReturned" becomes "Tool returned"."""
    spaced = "".join(f" {c.lower()}" if c.isupper() and n else c for n, c in enumerate(kind))
    return spaced[:_MAX_TEXT]


def _fields(clear: bytes) -> str:
    """Return the unencrypted fields of an event (which contain no payload) as text; empty if they can't be read."""
    try:
        fields = json.loads(bytes(clear).decode())
    except (ValueError, RecursionError):
        return "its fields can't be read"
    if not isinstance(fields, dict):
        return "its fields can't be read"
    texts = [
        f"{name.replace('_', ' ')}: {value}"
        for name, value in fields.items()
        if name not in _LEFT_OUT and isinstance(value, str | int) and value not in ("", False)
    ]
    return "; ".join(texts)[:_MAX_TEXT]


def _decision(row: Decision) -> tuple[Value, ...]:
    approval = row.approval
    who = row.at, approval.queue, approval.tool, row.verdict, row.by, row.role, row.auth
    return (*who, row.justification, row.is_authentic, row.plan_hash)


def _override(row: OverrideRecord) -> tuple[Value, ...]:
    return row.at, row.action, row.by, row.role, row.justification, row.seq, row.is_authentic


def _recovery(row: Any) -> tuple[Value, ...]:
    in_progress = "; ".join(f"{call.tool} {call.fate}: {call.why}" for call in row.calls)
    down = None if row.down_seconds is None else Decimal(str(row.down_seconds))
    return row.freed_at, str(row.cause), row.proof, down, row.skipped, in_progress


REPORT = ReportKind(
    name="run-audit-trail",
    title="Audit trail of a run",
    about="The complete record of one run, for printing: steps, effects, approvals, overrides and recoveries.",
    definition=Definition(
        counts="Every event of the run's journal in order, every call with an effect and its last recorded fact, every "
        "vote on an approval, every override and every recovery.",
        leaves_out="The contents of payloads: input, arguments, results and messages are on the run's page, for "
        "readers with access to run data. So even the report of a run with erased content is complete. Child runs "
        "have reports of their own.",
        period="The whole run, up to the time of the report.",
    ),
    queries={
        "Timeline": _EVENTS,
        "Counts": _COUNTS,
        "Effects": _EFFECTS,
        "Approvals": _DECISIONS,
        "Overrides": _OVERRIDES,
        "Recoveries": _RECOVERIES,
    },
    roles=EVERY,
    make=make,
    of_run=True,
    is_scheduled=False,
)
