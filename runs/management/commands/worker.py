from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


class Command(BaseCommand):
    help = "Drives runs: starts worker processes, watches them and replaces what dies. SIGTERM drains; a second one stops at once."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        known = settings.DURABLEAGENTS
        parser.add_argument("--processes", type=_count, default=known.workers, help="worker processes (default: %(default)s)")
        parser.add_argument("--slots", type=_count, default=known.slots, help="runs per worker process (default: %(default)s)")

    def handle(self, *args: Any, **options: Any) -> None:
        from runs.supervisor import Supervisor

        # The clusters are started by exec and read their settings from the environment, as this process did.
        os.environ["DURABLEAGENTS_SLOTS"] = str(options["slots"])
        sys.exit(Supervisor(processes=options["processes"], slots=options["slots"]).run())
