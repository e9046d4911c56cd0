"""`manage.py encryption status|rotate`: show or change the master keys of encrypted payloads."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from durableagents.contrib.encryption import master_keys, rotation
from ledger.append import acted, justified
from ledger.errors import DurableAgentsError
from runs.management.shell import command_actor


class Command(BaseCommand):
    help = "Show which master keys encrypt the runs' keys, or encrypt all of them under the current master key."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        verbs.add_parser("status", help="number of runs by master key; exit code 1 if a key is missing")
        rotate = verbs.add_parser("rotate", help="encrypt the keys of all runs under the first master key")
        rotate.add_argument("--reason", required=True, help="recorded in the audit trail")
        rotate.add_argument(
            "--known", action="store_true", help="confirm that every process has the key, although no run uses it yet"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if options["verb"] == "status":
                self._status()
            else:
                self._rotate(options["reason"], options["known"])
        except (DurableAgentsError, master_keys.KeyUnavailable, ValueError) as error:
            raise CommandError(str(error), returncode=2) from None

    def _status(self) -> None:
        current = master_keys.current()
        named = f"{current.id} ({master_keys.label(current.source)})" if current else "not encrypted"
        self.stdout.write(f"new runs: {named}")
        missing: list[master_keys.KeyUnavailable] = []
        for key_id, count in rotation.counts().items():
            try:
                source = master_keys.label(master_keys.find(key_id).source)
            except master_keys.KeyUnavailable as error:
                source, missing = "missing", [*missing, error]
            self.stdout.write(f"{key_id} ({source}): {count} runs")
        if missing:
            raise CommandError(str(missing[0]), returncode=1)

    def _rotate(self, reason: str, is_known: bool) -> None:
        why = justified("rotate", reason, field="--reason")
        progress = rotation.begin(is_known=is_known)
        acted(
            "key_rotation", by=command_actor(), subject="encryption", justification=why, after={"runs": progress.total}
        )
        try:
            for _ in rotation.go_on(progress):
                self.stdout.write(f"{progress.done} of {progress.total}")
        except KeyboardInterrupt:
            raise CommandError(
                f"interrupted after {progress.done}: start it again to continue", returncode=130
            ) from None
        needed = ", ".join(rotation.in_use()) or "no key"
        self.stdout.write(f"done: {progress.done} of {progress.total} runs changed; master keys needed now: {needed}")
        if progress.damaged:
            names = ", ".join(map(str, progress.damaged[:20]))
            raise CommandError(f"the keys of {len(progress.damaged)} runs are damaged: {names}", returncode=1)
