"""Retention of runs: policies, archives and legal holds. See README.md."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate

_SETS_RULES = "approvals.change_queue"


class RetentionConfig(AppConfig):
    name = "durableagents.contrib.retention"
    label = "retention"
    default_auto_field = "django.db.models.BigAutoField"
    # Read by durableagents/grants.py.
    append_only_tables = (
        "retention_policy",
        "retention_policyend",
        "retention_hold",
        "retention_holdend",
        "retention_archive",
        "retention_restoration",
        "retention_deletion",
        "retention_checkpointexpiry",
        "retention_round",
    )
    read_only_tables = ("retention_allowance", "retention_runtable")
    # Read by durableagents/urls_apps.py.
    urls = "durableagents.contrib.retention.urls"

    def sections(self) -> list[Any]:
        """Return this app's entry in the navigation (read by durableagents/apps.py)."""
        from ledger.web.navigation import Section
        from ledger.web.roles import AUDITOR, OPERATOR

        readers = frozenset({OPERATOR, AUDITOR})
        return [
            Section(
                "retention",
                "Retention",
                "retention",
                roles=readers,
                permission=_SETS_RULES,
                is_rare=True,
                help="how-to/retention-and-erasure",
            )
        ]

    def ready(self) -> None:
        """Install this app's feature, and register how archived runs are found."""
        from durableagents.contrib.retention import listed, register, restoring, tables
        from durableagents.contrib.retention.own_features import feature
        from durableagents.contrib.retention.policies import FAMILY
        from ledger import change_control
        from ledger.verification import archives
        from ledger.web.seeing import viewers
        from runs import features

        features.install(feature())
        change_control.declare_family(FAMILY, "how long runs are kept, and the lifting of legal holds")
        archives.register(restoring.archived, listed.search)
        viewers.explain_missing(register.explain)
        post_migrate.connect(tables.write_down, sender=self)
