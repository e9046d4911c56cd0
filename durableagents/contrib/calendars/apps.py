"""Business hours, reminders, escalation, absences and deputies. See README.md."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig


class CalendarsConfig(AppConfig):
    name = "durableagents.contrib.calendars"
    label = "calendars"
    # durableagents/grants.py reads these.
    append_only_tables = ("approvals_calendar", "approvals_timing")
    frozen_columns = {
        "approvals_absence": {"id", "person", "deputy_id", "starts_at", "ends_at", "reason", "set_by", "made_at"}
    }
    # Read by durableagents/urls_apps.py.
    urls = "durableagents.contrib.calendars.urls"

    def demo_settings(self, *, by: Any, justification: str) -> Any:
        """Return the settings for the demo (read by durableagents/demo/oversight.py)."""
        from durableagents.contrib.calendars.demo import demo_settings

        return demo_settings(by=by, justification=justification)

    def ready(self) -> None:
        """Register this app's feature."""
        from durableagents.contrib.calendars.models import Absence, Calendar, Timing
        from durableagents.contrib.calendars.own_features import feature
        from ledger.protected import protect
        from runs import features

        protect(Absence, "absence", named_by="id")
        protect(Calendar, "calendar", named_by="name")
        protect(Timing, "deadlines of queue", named_by="queue_id")
        features.install(feature())
