"""`manage.py up`: start everything, keep it alive, drain it. See durableagents/dev/launcher.py."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from io import StringIO
from typing import Any

from django.conf import settings
from django.core.management import call_command, get_commands
from django.core.management.base import BaseCommand
from django.db import Error

from durableagents.env import EnvironmentProblem
from ledger.errors import first_line
from runs import features


class Command(BaseCommand):
    help = "Start database, sandbox, web and workers; Ctrl-C drains and stops them."
    # The other checks need a database and all URLs. `up` migrates first.
    requires_system_checks = ["start"]

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--restart", action="store_true", help="restart web and workers of the running `up`, without an outage"
        )
        parser.add_argument(
            "--hold",
            action="store_true",
            help="hold all runs until an operator lifts the hold: see manage.py restore_hold",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        from durableagents.demo.companion import Demo
        from durableagents.dev import restart
        from durableagents.dev.launcher import Alone, Launcher

        environment = settings.DURABLEAGENTS
        if options["restart"]:
            restart.ask(environment.data)
            self.stdout.write("web and workers are restarted, with the environment that `up` was started with")
            return
        if environment.is_production:
            raise EnvironmentProblem(
                "up makes demo users and a sandbox; with DURABLEAGENTS_ENV=production run"
                " migrate, web and worker under a process manager"
            )
        companion = Demo(environment) if environment.has_demo else Alone(environment)
        before = _hold if options["hold"] else None
        sys.exit(Launcher(environment, companion, before_serving=before, notice=hold_lines).run())


def hold_lines() -> str:
    """Return a line for each reason why the installation doesn't execute runs."""
    try:
        notices = [each for read in features.parts_of_all(lambda each: each.start_notices) for each in read()]
    except Error as error:
        return f"  Whether it is halted is unknown: {first_line(error)}\n"
    return "".join(f"  {each}\n" for each in notices)


def _hold() -> None:
    """Hold the installation, using the command of the app that provides holds. Raises EnvironmentProblem."""
    if "restore_hold" not in get_commands():
        raise EnvironmentProblem("up --hold needs durableagents.contrib.restore_hold in INSTALLED_APPS")
    call_command("restore_hold", "place", reason="Started with up --hold.", stdout=StringIO())
