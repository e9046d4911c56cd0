from __future__ import annotations

import os
import signal
import threading
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from durableagents.contrib.tracing.apps import is_on


class Command(BaseCommand):
    help = "Sends the spans of new events to the collector until stopped. Started by `manage.py worker`, not by hand."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        if not is_on():
            raise CommandError("No collector is configured: set DURABLEAGENTS_OTLP_ENDPOINT.", returncode=2)
        from durableagents.contrib.tracing.export import OTLPSender
        from durableagents.contrib.tracing.exporter import keep_exporting

        stop = threading.Event()
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(each, lambda *_: stop.set())
        os.nice(10)  # runs have priority
        known = settings.DURABLEAGENTS
        keep_exporting(OTLPSender(known.otlp_endpoint), known.trace_ratio, stop)
