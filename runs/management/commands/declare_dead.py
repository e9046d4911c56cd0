"""`manage.py declare_dead --host NAME`: an operator's word that nothing runs on a host any more.

Its runs go on elsewhere without waiting for the TTL, and unsafe calls that it may have sent may be sent again where a person
settles them as *it did not happen*: also those of a host that the watchdog has given up already.
"""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from django.db.models import F, Func, Q
from django.db.models.functions import Coalesce

from ledger.clock import database_now
from runs.models import Incident, Process

# A process whose last heartbeat is younger than this can't be declared dead: it says otherwise.
SILENT_SECONDS = 10


class Command(BaseCommand):
    help = "Say that nothing runs on a host any more: its workers' runs are driven again elsewhere, within about a second."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", required=True, help="as the fleet page names it")

    def handle(self, *, host: str, **_: Any) -> None:
        """Exit code 2, and nothing changed, for an unknown host and for one that still shows a sign of life."""
        given_up = Q(end_cause__in=[Incident.Cause.SUSPICION, Incident.Cause.HOST_GONE])
        rows = Process.objects.filter(Q(ended_at=None) | given_up, host=host).annotate(
            silence=Func(F("last_heartbeat_at"), template="extract(epoch FROM clock_timestamp() - %(expressions)s)::float")
        )
        found = list(rows)
        if not found:
            self._refuse(f"no process of host {host!r} is on record as alive or given up")
        alive = [p for p in found if p.silence < SILENT_SECONDS]
        if alive:
            told = ", ".join(f"{p.kind} {p.pid}" for p in alive[:5])
            self._refuse(f"host {host!r} shows signs of life within the last {SILENT_SECONDS} s ({told}): stop it first")
        word = {"end_cause": Incident.Cause.OPERATOR, "end_proof": f"an operator declared that nothing runs on {host} any more"}
        Process.objects.filter(pk__in=[p.pk for p in found]).update(ended_at=Coalesce("ended_at", database_now()), **word)
        self.stdout.write(f"{len(found)} process(es) of {host} are on record as ended; their runs go on elsewhere.")

    def _refuse(self, why: str) -> None:
        self.stderr.write(f"declare_dead: {why}")
        raise SystemExit(2)
