"""`manage.py drill restore [--report FILE]`."""

from __future__ import annotations

import signal
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import psycopg
from django.core.management.base import BaseCommand, CommandError

from durableagents.contrib.restore_hold.drill import DrillImpossible, drill
from ledger.errors import first_line


class Command(BaseCommand):
    help = "Practise a restore next to the running installation: exit code 0 if the copy verifies and holds, else 1."

    def add_arguments(self, parser: ArgumentParser) -> None:
        kinds = parser.add_subparsers(dest="kind", required=True)
        restore = kinds.add_parser("restore", help="back up, restore, verify, measure RTO and RPO, clean up")
        restore.add_argument("--report", type=Path, help="write FILE.json and FILE.md")
        restore.add_argument("--folder", type=Path, help="where the copy is kept meanwhile (default: temporary files)")

    def handle(self, *, report: Path | None, folder: Path | None, **_: Any) -> None:
        """Perform the drill, and print and store the report."""
        for signum in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, lambda *_: sys.exit(2))  # so that the copy is removed
        try:
            if report is not None and not report.parent.is_dir():
                raise DrillImpossible(f"{report.parent} is not a folder: name a file in one that exists")
            done = drill(lambda text: self.stderr.write(f"drill: {text}"), folder)
            if report is not None:
                stem = report.with_suffix("") if report.suffix in (".json", ".md") else report
                stem.with_name(f"{stem.name}.json").write_text(done.to_json())
                stem.with_name(f"{stem.name}.md").write_text(done.to_markdown())
        except (DrillImpossible, psycopg.Error) as problem:
            raise CommandError(
                str(problem) if isinstance(problem, DrillImpossible) else first_line(problem), returncode=2
            ) from None
        except OSError as error:
            raise CommandError(str(error), returncode=2) from None
        self.stdout.write(done.to_markdown())
        if not done.is_passed:
            raise SystemExit(1)
