"""Two-person rules: one person proposes a change of rules, another person applies it. See README.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django.apps import AppConfig


class ChangeControlConfig(AppConfig):
    name = "durableagents.contrib.change_control"
    label = "change_control"
    default_auto_field = "django.db.models.BigAutoField"
    # durableagents/grants.py reads these.
    append_only_tables = ("ledger_foureyes",)
    frozen_columns: ClassVar[Mapping[str, set[str]]] = {
        "ledger_rulechange": {
            *("id", "family", "act", "given", "told", "why", "by", "person", "role", "auth", "address", "made_at")
        },
    }
    # Read by durableagents/urls_apps.py.
    urls = "durableagents.contrib.change_control.urls"

    def sections(self) -> list[Any]:
        """Return this app's entry in the navigation (read by durableagents/apps.py)."""
        from ledger.web.navigation import Number, Section
        from ledger.web.roles import AUDITOR, OPERATOR

        return [
            Section(
                "changes",
                "Rule changes",
                "rule_changes",
                roles=frozenset({OPERATOR, AUDITOR}),
                number=Number("changes", "waiting for a second person"),
                permission="approvals.change_queue",
                help="how-to/administer-queues-and-approvers",
            )
        ]

    def ready(self) -> None:
        """Register this app's feature, and make changes of rules need a second person."""
        from durableagents.contrib.change_control import queries, services, setting
        from durableagents.contrib.change_control.verify import TwoPeople, check_changes
        from ledger import change_control
        from runs import features

        change_control.install(
            change_control.ChangeControl(
                is_guarded=setting.is_guarded, hold=setting.hold, propose=services.propose, find=queries.find_change
            )
        )
        features.install(
            features.Feature(name="change control", run_checks=(TwoPeople,), record_checks=(check_changes,))
        )
