"""`manage.py declare_dead --host NAME --reason WHY`: declares that nothing runs on a host any more.

The host's runs continue elsewhere without waiting for the TTL. Unsafe calls that the host may have sent can be sent
again once a person settles them as *it did not happen*. This also applies to a host that the watchdog has already
given up on. That is why the operator and the reason are recorded.
"""

from __future__ import annotations

import os
import socket
from argparse import ArgumentParser
from typing import Any, NoReturn

from django.core.management.base import BaseCommand

from ledger.actors import Actor, os_account
from ledger.errors import DurableAgentsError, JustificationRequired
from runs.services import fleet


class Command(BaseCommand):
    help = "Declare that nothing runs on a host any more. The host's runs continue elsewhere within about a second."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", required=True, help="name of the host as on the fleet page")
        parser.add_argument("--reason", required=True, help="evidence; recorded")

    def handle(self, *, host: str, reason: str, **_: Any) -> None:
        """Run the command.
        For an unknown host, one with recent heartbeats, or a missing reason, the exit code is 2 and nothing is
        changed."""
        try:
            count = fleet.declare_dead(host, by=somebody(), justification=reason)
        except JustificationRequired as error:
            self._refuse(f"--reason: {error.detail}")
        except DurableAgentsError as error:
            self._refuse(error.detail)
        self.stdout.write(f"{count} process(es) of {host} are recorded as ended; their runs continue on other workers.")

    def _refuse(self, why: str) -> NoReturn:
        self.stderr.write(f"declare_dead: {why}")
        raise SystemExit(2)


def somebody() -> Actor:
    """Return the operating system's account and, under sudo, the original user; environment variables can't change
    them."""
    uid = os.getuid()
    through = os.environ.get("SUDO_USER", "") if uid == 0 else ""
    who = f"{os_account()}@{socket.gethostname()}{f' (sudo by {through})' if through else ''}"
    return Actor(kind="os", name=who, auth="shell")
