"""Outgoing webhooks about runs and approvals. See README.md."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig

_SETS_RULES = "approvals.change_queue"


class WebhooksConfig(AppConfig):
    name = "durableagents.contrib.webhooks"
    label = "webhooks"
    default_auto_field = "django.db.models.BigAutoField"
    # Read by durableagents/grants.py.
    append_only_tables = ("webhooks_attempt",)
    # Read by durableagents/urls_apps.py.
    urls = "durableagents.contrib.webhooks.urls"

    def sections(self) -> list[Any]:
        """Return this app's entry in the navigation (read by durableagents/apps.py)."""
        from ledger.web.navigation import Section
        from ledger.web.roles import AUDITOR, OPERATOR

        readers = frozenset({OPERATOR, AUDITOR})
        return [
            Section(
                "webhooks",
                "Webhooks",
                "webhooks",
                roles=readers,
                permission=_SETS_RULES,
                is_rare=True,
                help="how-to/webhooks",
            )
        ]

    def ready(self) -> None:
        """Install this app's feature."""
        from durableagents.contrib.webhooks.own_features import feature
        from runs import features

        features.install(feature())
