"""The console's sections in order, and the notices above every page."""

from __future__ import annotations

from ledger.web.navigation import Notice, Number, Section
from ledger.web.roles import AUDITOR, OPERATOR, READS_AUDIT

_SETS_RULES = "approvals.change_queue"

SECTIONS = (
    Section("overview", "Overview", "overview"),
    Section("inbox", "Inbox", "inbox", number=Number("inbox", "waiting for you")),
    Section("runs", "Runs", "runs"),
    Section("reconcile", "Reconcile", "reconcile", number=Number("steering", "waiting for an operator", "unsure")),
    Section("queues", "Queues", "queues", permission=_SETS_RULES, is_rare=True),
    Section(
        "changes",
        "Rule changes",
        "rule_changes",
        roles=frozenset({OPERATOR, AUDITOR}),
        number=Number("changes", "waiting for a second person"),
        permission=_SETS_RULES,
    ),
    Section("audit", "Audit", "audit", roles=frozenset(READS_AUDIT)),
    Section("agents", "Agents", "agents"),
    Section("halts", "Halts", "halts", roles=frozenset({OPERATOR, AUDITOR})),
    Section("fleet", "Fleet", "fleet", roles=frozenset({OPERATOR, AUDITOR}), is_rare=True),
)


def halted() -> list[Notice]:
    """Return the halts as notices for every page."""
    from runs.queries.halts import banner  # imported late: models aren't loaded yet
    from runs.services.halts.acts import named

    return [
        Notice(
            f"Halted: {named(one)}.", f"By {one.by}, since {one.since:%Y-%m-%d %H:%M} UTC: {one.why}", "halts", "Halts"
        )
        for one in banner()
        if one.kind != "starts"
    ]
