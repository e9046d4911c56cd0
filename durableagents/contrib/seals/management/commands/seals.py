"""`manage.py seals status|verify|rotate|export`: manages and verifies the seals."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand
from django.db.models import Max

from durableagents.contrib.seals import status, verification, witnesses
from durableagents.contrib.seals.keyring import SealKeyProblem, key_path, rotate
from durableagents.contrib.seals.models import Seal
from durableagents.env import EnvironmentProblem
from durableagents.seal_witness import SealWitness, read_witness
from ledger.actors import os_account
from ledger.errors import JustificationRequired, NotFound
from ledger.verification import runs


class Command(BaseCommand):
    help = "Seals of the record: exit code 0 without problems, 1 with a line for each, 2 if they can't be checked."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        verbs.add_parser("status", help="keys, the last seal, and the seals of each witness")
        check = verbs.add_parser("verify", help="check seals, sealed heads, and the record of each sealed run")
        check.add_argument(
            "--witness",
            type=_copy,
            action="append",
            default=[],
            metavar="FILE",
            help="a witness's copy, or storage:ALIAS",
        )
        turn = verbs.add_parser("rotate", help="replace the private key; the old one signs the new one")
        turn.add_argument("--reason", required=True, help="why; on record")
        out = verbs.add_parser("export", help="print seals as a witness keeps them, one line each")
        out.add_argument("--after", type=int, default=0, metavar="NUMBER", help="only seals above this number")

    def handle(self, *, verb: str, **given: Any) -> None:
        """Run the chosen verb."""
        match verb:
            case "status":
                self._status()
            case "verify":
                self._verify(given["witness"])
            case "rotate":
                self._rotate(given["reason"])
            case _:
                self._export(given["after"])

    def _status(self) -> None:
        for line in status.lines():
            self.stdout.write(line)
        problems = status.problems()
        for problem in problems:
            self.stdout.write(f"problem: {_in_one_line(problem)}")
        if problems:
            raise SystemExit(1)

    def _verify(self, copies: list[Path | SealWitness]) -> None:
        problems = 0
        with runs.snapshot():
            seals, heads = Seal.objects.count(), verification.SealedHead.objects.count()
            try:
                for finding in self._findings(copies):
                    problems += 1
                    self.stdout.write(_in_one_line(finding))
            except verification.WitnessUnreadable as error:
                raise self._refusal(str(error)) from None
        self.stdout.write(f"{seals} seal(s), {heads} sealed head(s), {problems} problem(s)")
        if problems:
            raise SystemExit(1)

    def _findings(self, copies: list[Path | SealWitness]) -> Iterator[str]:
        yield from map(str, verification.check_database())
        for copy in copies:
            yield from map(str, verification.check_witness(copy))
        for run_id in verification.sealed_runs():
            try:
                yield from (f"run {run_id}: {problem}" for problem in runs.verify(run_id).problems)
            except NotFound:
                continue  # `check_database` reports missing runs

    def _rotate(self, reason: str) -> None:
        try:
            key = rotate(reason, f"os:{os_account()}")
        except (SealKeyProblem, EnvironmentProblem) as error:
            raise self._refusal(str(error)) from None
        except JustificationRequired as error:
            raise self._refusal(error.detail) from None
        self.stdout.write(f"Seal key {key.number} is in use: {key_path()}. Back it up, and copy it to every host.")

    def _export(self, after: int) -> None:
        last = Seal.objects.aggregate(last=Max("number"))["last"] or 0
        for first in range(after + 1, last + 1, witnesses.BATCH):
            for line in witnesses.read_lines(range(first, min(first + witnesses.BATCH, last + 1))):
                self.stdout.write(line.to_json())

    def _refusal(self, why: str) -> SystemExit:
        self.stderr.write(f"seals: {why}")
        return SystemExit(2)


def _copy(text: str) -> Path | SealWitness:
    return read_witness(text) if text.startswith("storage:") else Path(text)


def _in_one_line(problem: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in problem)
