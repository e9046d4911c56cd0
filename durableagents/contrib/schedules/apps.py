"""Runs that start at planned times. See README.md."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig


class SchedulesConfig(AppConfig):
    name = "durableagents.contrib.schedules"
    label = "schedules"
    default_auto_field = "django.db.models.BigAutoField"
    # Read by durableagents/grants.py.
    append_only_tables = ("runs_firing",)
    frozen_columns = {"runs_schedule": {"id"}}
    # Read by durableagents/urls_apps.py.
    urls = "durableagents.contrib.schedules.urls"

    def sections(self) -> list[Any]:
        """Return this app's entry in the navigation (read by durableagents/apps.py)."""
        from ledger.web.navigation import Section

        return [Section("schedules", "Schedules", "schedules", is_rare=True, help="how-to/schedules-and-business-keys")]

    def ready(self) -> None:
        """Install this app's feature."""
        from durableagents.contrib.schedules import starting
        from durableagents.contrib.schedules.verify import ScheduledStarts
        from runs import features
        from runs.background import Duty

        features.install(
            features.Feature(
                name="schedules",
                periodic=(Duty("schedules", starting.IS_DUE, starting.start_all_due),),
                run_checks=(ScheduledStarts,),
            )
        )
