"""`manage.py checkpoints export --limit 50 --since 24h --out DIR` exports recorded visits of real runs.

New code replays them before its release. `manage.py checkpoints key` prints the key of encrypted exports."""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from durableagents.contrib.replay.exporting import MODES, ExportFailed, ExportOptions, export
from durableagents.contrib.replay.files import ENCRYPTED, derive_export_key
from durableagents.contrib.replay.redaction import Redaction
from ledger.clock import database_now

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
MAX_LIMIT = 5_000


def parse_span(text: str) -> timedelta:
    """Parse a duration such as 24h, 90m, 7d. Raises ArgumentTypeError."""
    found = re.fullmatch(r"([1-9][0-9]{0,5})([mhdw])", text)
    if found is None:
        raise ArgumentTypeError(f"{text!r} is not a duration such as 90m, 24h, 7d or 4w")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def parse_count(text: str) -> int:
    """Parse a positive number. Raises ArgumentTypeError."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MAX_LIMIT:
        raise ArgumentTypeError(f"{text!r} is not a number from 1 to {MAX_LIMIT}")
    return int(text)


class Command(BaseCommand):
    help = (
        "Export checkpoints for replays: exit code 0 if some were exported, 1 if none, "
        "2 for an error, with nothing written."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        verbs.add_parser("key", help="print the key of encrypted exports, needed to replay them")
        out = verbs.add_parser("export", help="write representative checkpoints of each agent, version and node")
        out.add_argument("--limit", type=parse_count, default=50, help="maximum number (default: 50)")
        out.add_argument(
            "--since",
            type=parse_span,
            default=timedelta(hours=24),
            help="of ended runs: started within this time (default: 24h)",
        )
        out.add_argument("--out", type=Path, required=True, metavar="DIR", help="a new or empty folder")
        out.add_argument("--agent", default="", help="name, or name@version")
        out.add_argument("--payloads", choices=MODES, default=MODES[0], help="default: redacted")
        out.add_argument(
            "--redact", action="append", default=[], metavar="PATH", help="a private field, such as customer.iban"
        )
        out.add_argument("--refresh", action="store_true", help="replace an earlier export")

    def handle(self, *, verb: str, **options: Any) -> None:
        """Print one line for each agent version and node, and one for each checkpoint that was left out."""
        if verb == "key":
            self.stdout.write(self._key())
            return
        paths = (*settings.DURABLEAGENTS.redact, *options["redact"])
        try:
            Redaction(paths)
        except ValueError as error:
            raise self._refusal(str(error), 2) from None
        wanted = ExportOptions(
            options["limit"],
            self._since(options["since"]),
            options["agent"],
            options["payloads"],
            paths,
            self._key() if options["payloads"] == ENCRYPTED else "",
        )
        try:
            done = export(options["out"].absolute(), wanted, refresh=options["refresh"])
        except ExportFailed as error:
            raise self._refusal(str(error), 1 if "no checkpoint to export" in str(error) else 2) from None
        for stratum, number in sorted(done.strata().items()):
            self.stdout.write(f"{number:4}  {stratum}")
        for left in done.left_out:
            self.stderr.write(f"checkpoints: left out: {left}")
        self.stdout.write(f"{len(done.files)} checkpoint(s) in {options['out']}, {len(done.left_out)} left out")

    def _since(self, ago: timedelta) -> datetime:
        try:
            return database_now() - ago
        except OverflowError:
            raise self._refusal("--since goes back before the year 1", 2) from None

    def _key(self) -> str:
        try:
            return derive_export_key(Path(settings.DURABLEAGENTS_MASTER_KEY_FILE).read_bytes().strip())
        except OSError as error:
            raise self._refusal(f"cannot read the master key: {error.strerror}", 2) from None

    def _refusal(self, why: str, code: int) -> SystemExit:
        self.stderr.write(f"checkpoints: {why}")
        return SystemExit(code)
