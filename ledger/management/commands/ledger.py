"""`manage.py ledger verify RUN|--all` checks the record; `manage.py ledger confirm` accepts a changed row."""

from __future__ import annotations

import os
import pwd
from argparse import ArgumentParser
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand
from django.db import DatabaseError, DataError, transaction

from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.errors import JustificationRequired, NotFound, first_line
from ledger.protected import Protected, confirm, is_changed_outside, name_of, registry
from ledger.verification.registers import Listed, verify_registers
from ledger.verification.runs import Verification, verify, verify_all


class Command(BaseCommand):
    help = (
        "Check the record of one run or of all: "
        "exit code 0 if it holds, 1 with a line for each problem, 2 for what can't be checked."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        check = verbs.add_parser(
            "verify",
            help="check journal, codes and every table that tells the same story; "
            "with --all, what belongs to no run too",
        )
        which = check.add_mutually_exclusive_group(required=True)
        which.add_argument("run", nargs="?", help="the run's id")
        which.add_argument("--all", action="store_true", help="every run of which any table has a trace")
        confirm = verbs.add_parser("confirm", help="a row that was changed outside the application counts as it is now")
        confirm.add_argument("table", choices=sorted(registry), help="its table, as `verify` names it")
        confirm.add_argument("key", help="its number or name there")
        confirm.add_argument("--reason", required=True, help="why it is right as it is; on record")

    def handle(self, *, verb: str, run: str | None = None, all: bool = False, **given: Any) -> None:
        """Run the chosen verb."""
        if verb == "confirm":
            self._confirm(registry[given["table"]], given["key"], given["reason"])
        else:
            self._verify(verify_all() if all else [self._one(str(run))], verify_registers() if all else [])

    def _one(self, run: str) -> Verification:
        try:
            return verify(UUID(run))
        except ValueError:
            raise self._refusal(f"{run!r} isn't a run id") from None
        except NotFound as error:
            raise self._refusal(error.detail) from None

    def _verify(self, verifications: Iterable[Verification], lists: Iterable[Listed]) -> None:
        runs = events = problems = 0
        for one in lists:
            problems += len(one.problems)
            for problem in one.problems:
                self.stdout.write(f"{one.name}: {_in_one_line(problem)}")
            last = f", the last is {one.hash}" if one.hash else ""
            self.stdout.write(f"{one.name}: {one.records} record(s){last}")
        for each in verifications:
            runs, events, problems = runs + 1, events + each.events, problems + len(each.problems)
            for problem in each.problems:
                self.stdout.write(f"{each.run_id}: {_in_one_line(problem)}")
        self.stdout.write(f"{runs} run(s), {events} event(s), {problems} problem(s)")
        if problems:
            raise SystemExit(1)

    def _confirm(self, protected: Protected, key: str, reason: str) -> None:
        """Give a row that was changed outside the application the code of its present state, on record."""
        by = Actor("os", pwd.getpwuid(os.getuid()).pw_name, auth="shell")
        try:
            why = justified("Confirming a row", reason)
            is_changed = is_changed_outside(protected, key)
        except JustificationRequired as error:
            raise self._refusal(error.detail) from None
        except DataError:
            raise self._refusal(f"{key!r} is no key of {protected.table}") from None
        if not is_changed:
            raise self._refusal(f"{protected.table} {key} is as the application wrote it: there is nothing to confirm")
        with transaction.atomic():
            what = name_of(protected, key)
            try:
                confirm(protected, key)
            except DatabaseError as error:
                raise self._refusal(
                    f"the {what} can't be confirmed, because rows of {protected.table} never change "
                    f"({first_line(error)}). Put back its former values with their code, or set it again"
                ) from None
            acted("row_confirm", by=by, subject=f"{protected.table} {key}", justification=why, after={"row": what})
        self.stdout.write(f"The {what} counts as it is now.")

    def _refusal(self, why: str) -> SystemExit:
        self.stderr.write(f"ledger: {why}")
        return SystemExit(2)


def _in_one_line(problem: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in problem)
