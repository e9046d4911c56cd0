"""The console's sections, in the order of the navigation: one entry each."""

from __future__ import annotations

from ledger.web.navigation import Number, Section
from ledger.web.roles import AUDITOR, INTEGRATOR, OPERATOR, READS_AUDIT

SECTIONS = (
    Section("overview", "Overview", "overview"),
    Section("inbox", "Inbox", "inbox", number=Number("inbox", "waiting for you")),
    Section("runs", "Runs", "runs"),
    Section("schedules", "Schedules", "schedules"),
    Section("pools", "Pools", "pools"),
    Section("reconcile", "Reconcile", "reconcile", number=Number("steering", "waiting for an operator", "unsure")),
    Section("queues", "Queues", "queues"),
    Section("policies", "Policies", "policies"),
    Section("audit", "Audit", "audit", roles=frozenset(READS_AUDIT)),
    Section("agents", "Agents", "agents"),
    Section("limits", "Limits", "limits", roles=frozenset({OPERATOR, AUDITOR, INTEGRATOR})),
    Section("fleet", "Fleet", "fleet", roles=frozenset({OPERATOR, AUDITOR})),
)
