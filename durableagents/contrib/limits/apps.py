"""Limits on calls: rates, concurrency, circuit breakers, shares, and shared budgets. See README.md."""

from __future__ import annotations

from typing import Any, ClassVar

from django.apps import AppConfig


class LimitsConfig(AppConfig):
    name = "durableagents.contrib.limits"
    label = "limits"
    default_auto_field = "django.db.models.BigAutoField"
    # Read by durableagents/grants.py.
    append_only_tables = ("runs_poolnotice",)
    frozen_columns: ClassVar[dict[str, set[str]]] = {
        "runs_pool": {"id", "scope", "of", "resource", "period", "zone", "set_by", "made_at"},
        "runs_poolmeter": {"pool_id", "resource", "period", "zone"},
        "runs_poolperiod": {"id", "pool_id", "starts_at", "ends_at", "most"},
        "runs_poolcharge": {"run_id", "slot", "attempt", "n", "pool_id", "starts_at", "reserved"},
    }
    # Read by durableagents/urls_apps.py.
    urls = "durableagents.contrib.limits.urls"

    def sections(self) -> list[Any]:
        """Return this app's entries in the navigation (read by durableagents/apps.py)."""
        from ledger.web.navigation import Section
        from ledger.web.roles import AUDITOR, INTEGRATOR, OPERATOR

        readers = frozenset({OPERATOR, AUDITOR, INTEGRATOR})
        return [
            Section(
                "shared_budgets", "Shared budgets", "shared_budgets", is_rare=True, help="how-to/budgets-and-limits"
            ),
            Section("limits", "Limits", "limits", roles=readers, is_rare=True, help="how-to/budgets-and-limits"),
        ]

    def ready(self) -> None:
        """Install this app's feature."""
        from durableagents.contrib.limits.own_features import feature
        from ledger import change_control
        from runs import features

        change_control.declare_family("limits", "limits of calls at runtime, and shared budgets")
        features.install(feature())
