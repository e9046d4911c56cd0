"""Limits of calls: rates, concurrency, circuit breakers and shares. See README.md."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig


class LimitsConfig(AppConfig):
    name = "durableagents.contrib.limits"
    label = "limits"
    default_auto_field = "django.db.models.BigAutoField"
    # Read by durableagents/urls.py and durableagents/urls_console.py.
    api_urls = "durableagents.contrib.limits.api_urls"
    console_urls = "durableagents.contrib.limits.console_urls"

    def sections(self) -> list[Any]:
        """Return this app's entries in the navigation (read by durableagents/apps.py)."""
        from ledger.web.navigation import Section
        from ledger.web.roles import AUDITOR, INTEGRATOR, OPERATOR

        readers = frozenset({OPERATOR, AUDITOR, INTEGRATOR})
        return [Section("limits", "Limits", "limits", roles=readers, is_rare=True)]

    def ready(self) -> None:
        """Install this app's feature."""
        from durableagents.contrib.limits import services as services  # its acts can need two people
        from durableagents.contrib.limits.metrics import read_metrics
        from durableagents.contrib.limits.permits import WorkerLimits
        from ledger.four_eyes import known
        from runs import features

        known.declare_family("limits", "limits of calls at runtime, and pools")
        features.install(features.Feature(name="limits", limits=WorkerLimits, metrics=(read_metrics,)))
