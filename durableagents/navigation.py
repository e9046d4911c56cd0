"""Sections of the console, in order. Apps outside the core add their own (durableagents/apps.py)."""

from __future__ import annotations

from ledger.web.navigation import Number, Section
from ledger.web.roles import AUDITOR, OPERATOR, READS_AUDIT

_SETS_RULES = "approvals.change_queue"

SECTIONS = (
    Section("overview", "Overview", "overview"),
    Section("inbox", "Inbox", "inbox", number=Number("inbox", "waiting for you"), help="how-to/approve"),
    Section("runs", "Runs", "runs", help="how-to/watch-and-repair-runs"),
    Section(
        "reconcile",
        "Reconcile",
        "reconcile",
        number=Number("steering", "waiting for an operator", "unsure"),
        help="how-to/unknown-outcomes",
    ),
    Section(
        "queues",
        "Queues",
        "queues",
        permission=_SETS_RULES,
        is_rare=True,
        help="how-to/administer-queues-and-approvers",
    ),
    Section("audit", "Audit", "audit", roles=frozenset(READS_AUDIT), help="how-to/evidence-and-audit"),
    Section("agents", "Agents", "agents", help="how-to/release-and-migrate-versions"),
    Section("fleet", "Fleet", "fleet", roles=frozenset({OPERATOR, AUDITOR}), is_rare=True, help="how-to/monitor"),
)
