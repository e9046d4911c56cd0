"""Halts: nothing starts in their scope until they are lifted. See README.md."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig


class HaltsConfig(AppConfig):
    name = "durableagents.contrib.halts"
    label = "halts"
    default_auto_field = "django.db.models.BigAutoField"
    # durableagents/grants.py reads these. A trigger writes the halts in force, as the owner.
    append_only_tables = ("runs_halt",)
    read_only_tables = ("runs_haltnow",)
    # Read by durableagents/urls_apps.py.
    urls = "durableagents.contrib.halts.urls"

    def sections(self) -> list[Any]:
        """Return this app's entry in the navigation (read by durableagents/apps.py)."""
        from ledger.web.navigation import Section
        from ledger.web.roles import AUDITOR, OPERATOR

        return [Section("halts", "Halts", "halts", roles=frozenset({OPERATOR, AUDITOR}), help="how-to/stop-everything")]

    def notices(self) -> list[Any]:
        """Return the halts as notices above every page (read by durableagents/apps.py)."""
        from durableagents.contrib.halts.queries import notices

        return notices()

    def ready(self) -> None:
        """Register this app's feature."""
        from durableagents.contrib.halts.queries import halt_note, halt_reason, start_notices
        from durableagents.contrib.halts.releasing import IS_DUE, release
        from durableagents.contrib.halts.verify import check_halts
        from durableagents.contrib.halts.worker import KnownHalts
        from runs import features

        features.install(
            features.Feature(
                name="halts",
                halts=KnownHalts,
                start_notices=(start_notices,),
                status_reasons=(halt_reason,),
                status_notes=(halt_note,),
                prompt_sweeps=(features.PromptSweep(is_due=IS_DUE, act=release),),
                record_checks=(check_halts,),
            )
        )
