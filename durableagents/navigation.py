"""Sections of the console, in order. Apps outside the core add their own (durableagents/apps.py)."""

from __future__ import annotations

from ledger.web.navigation import Number, Section
from ledger.web.roles import AUDITOR, OPERATOR, READS_AUDIT

_SETS_RULES = "approvals.change_queue"

SECTIONS = (
    Section("overview", "Overview", "overview"),
    Section("inbox", "Inbox", "inbox", number=Number("inbox", "waiting for you")),
    Section("runs", "Runs", "runs"),
    Section("reconcile", "Reconcile", "reconcile", number=Number("steering", "waiting for an operator", "unsure")),
    Section("queues", "Queues", "queues", permission=_SETS_RULES, is_rare=True),
    Section("audit", "Audit", "audit", roles=frozenset(READS_AUDIT)),
    Section("agents", "Agents", "agents"),
    Section("fleet", "Fleet", "fleet", roles=frozenset({OPERATOR, AUDITOR}), is_rare=True),
)
