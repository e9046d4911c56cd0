from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from runs.management.start import refuse_what_does_not_fit


class Command(BaseCommand):
    help = (
        "Drives runs: starts worker processes, watches them and replaces what dies. "
        "SIGTERM drains; a second one stops at once."
    )
    requires_system_checks = ["start"]  # see durableagents/checks.py

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        known = settings.DURABLEAGENTS
        parser.add_argument("--processes", default=known.workers, help="worker processes (default: %(default)s)")
        parser.add_argument("--slots", default=known.slots, help="runs per worker process (default: %(default)s)")
        parser.add_argument("--report-fd", type=int, help="write a line here at each renewal's end")

    def handle(self, *args: Any, **options: Any) -> None:
        from runs.workers.supervisor import Supervisor

        refuse_what_does_not_fit()
        processes, slots = _count("--processes", options["processes"]), _count("--slots", options["slots"])
        # Clusters are forked from here, or from a process that reads its settings from the environment, as this one
        # did.
        os.environ["DURABLEAGENTS_SLOTS"] = str(slots)
        settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"slots": slots})
        sys.exit(Supervisor(processes=processes, slots=slots, report_fd=options["report_fd"]).run())


def _count(name: str, value: object) -> int:
    text = str(value)
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= 10_000):
        raise CommandError(f"{name} {text!r}: expected a whole number from 1 to 10000", returncode=2)
    return int(text)
