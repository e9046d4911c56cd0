"""`manage.py declare_dead --host NAME --reason WHY`: an operator's word that nothing runs on a host any more.

Its runs go on elsewhere without waiting for the TTL, and unsafe calls that it may have sent may be sent again where a
person settles them as *it did not happen*: also those of a host that the watchdog has given up already. So who said it,
and why, is a record.
"""

from __future__ import annotations

import os
import pwd
import socket
from argparse import ArgumentParser
from typing import Any, NoReturn

from django.core.management.base import BaseCommand
from django.db import transaction
from django.db.models import F, Func, Q
from django.db.models.functions import Coalesce

from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.clock import database_now
from ledger.errors import JustificationRequired
from runs.models import Incident, Process

# A process whose last heartbeat is younger than this can't be declared dead: it says otherwise.
SILENT_SECONDS = 10


class Command(BaseCommand):
    help = (
        "Say that nothing runs on a host any more: its workers' runs are driven again elsewhere, within about a second."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", required=True, help="as the fleet page names it")
        parser.add_argument("--reason", required=True, help="how you know; it goes on the record")

    @transaction.atomic
    def handle(self, *, host: str, reason: str, **_: Any) -> None:
        """Exit code 2, and nothing changed, for an unknown host, for one that still shows a sign of life, and without a
        reason."""
        try:
            why = justified("declare_dead", reason)
        except JustificationRequired as error:
            self._refuse(f"--reason: {error.detail}")
        given_up = Q(end_cause__in=[Incident.Cause.SUSPICION, Incident.Cause.HOST_GONE])
        rows = Process.objects.filter(Q(ended_at=None) | given_up, host=host).annotate(
            silence=Func(
                F("last_heartbeat_at"), template="extract(epoch FROM clock_timestamp() - %(expressions)s)::float"
            )
        )
        processes = list(rows)
        if not processes:
            self._refuse(f"no process of host {host!r} is on record as alive or given up")
        alive = [p for p in processes if p.silence < SILENT_SECONDS]
        if alive:
            names = ", ".join(f"{p.kind} {p.pid}" for p in alive[:5])
            self._refuse(
                f"host {host!r} shows signs of life within the last {SILENT_SECONDS} s ({names}): stop it first"
            )
        word = {
            "end_cause": Incident.Cause.OPERATOR,
            "end_proof": f"an operator declared that nothing runs on {host} any more",
        }
        Process.objects.filter(pk__in=[p.pk for p in processes]).update(
            ended_at=Coalesce("ended_at", database_now()), **word
        )
        acted(
            "declare_dead", by=somebody(), subject=host, justification=why,
            before={"processes": [_shown(p) for p in processes]}, after={"end_cause": str(Incident.Cause.OPERATOR)},
        )  # fmt: skip
        self.stdout.write(f"{len(processes)} process(es) of {host} are on record as ended; their runs go on elsewhere.")

    def _refuse(self, why: str) -> NoReturn:
        self.stderr.write(f"declare_dead: {why}")
        raise SystemExit(2)


def somebody() -> Actor:
    """Who types: the operating system's account, which no environment variable can change, and whom sudo names."""
    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:  # an account that only the container's starter knows
        name = str(uid)
    through = os.environ.get("SUDO_USER", "") if uid == 0 else ""
    who = f"{name}@{socket.gethostname()}{f' (sudo by {through})' if through else ''}"
    return Actor(kind="os", name=who, auth="shell")


def _shown(process: Process) -> dict[str, Any]:
    """A process as the record names it."""
    return {
        "id": str(process.pk), "kind": process.kind, "pid": process.pid,
        "last_heartbeat_at": process.last_heartbeat_at.isoformat(), "end_cause": process.end_cause,
    }  # fmt: skip
