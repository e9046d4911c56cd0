from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from ledger.errors import DurableAgentsError
from runs.engine.agents import registry
from runs.management.shell import refuse_what_does_not_fit


class Command(BaseCommand):
    help = (
        "Executes runs: starts worker processes, monitors them and replaces dead ones. "
        "SIGTERM drains; a second one stops at once."
    )
    requires_system_checks = ["start"]  # see durableagents/checks.py

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        known = settings.DURABLEAGENTS
        parser.add_argument("--processes", default=known.workers, help="worker processes (default: WORKERS)")
        parser.add_argument("--slots", default=known.slots, help="runs per worker process (default: SLOTS)")
        parser.add_argument(
            "--only",
            action="append",
            metavar="AGENT",
            help="only execute runs of name@version, or of name; may be repeated",
        )
        parser.add_argument("--drain-only", action="store_true", help="continue existing runs only; start none")
        parser.add_argument("--report-fd", type=int, help="write a line here at each renewal's end")

    def handle(self, *args: Any, **options: Any) -> None:
        from runs.workers.supervisor import Supervisor

        refuse_what_does_not_fit()
        processes, slots = _count("--processes", options["processes"]), _count("--slots", options["slots"])
        # Clusters are forked from here, or from a process that reads its settings from the environment, like this one.
        only = options["only"] or settings.DURABLEAGENTS.serve
        drains = options["drain_only"] or settings.DURABLEAGENTS.drain_only
        for reference in only:
            _check(reference)
        options_given = {"slots": slots, "serve": list(only), "drain_only": drains}
        settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update=options_given)
        os.environ["DURABLEAGENTS_SLOTS"] = str(slots)
        os.environ |= {"DURABLEAGENTS_SERVE": ",".join(only), "DURABLEAGENTS_DRAIN_ONLY": str(drains)}
        sys.exit(Supervisor(processes=processes, slots=slots, report_fd=options["report_fd"]).run())


def _check(reference: str) -> None:
    """Check that this process has the agent or version.
    Raises CommandError if not, because the worker would then silently drive nothing."""
    try:
        registry.find(reference)
    except DurableAgentsError as unknown:
        raise CommandError(f"--only {reference}: {unknown.detail}", returncode=2) from None


def _count(name: str, value: object) -> int:
    text = str(value)
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= 10_000):
        raise CommandError(f"{name} {text!r}: expected a whole number from 1 to 10000", returncode=2)
    return int(text)
