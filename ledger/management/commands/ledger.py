"""`manage.py ledger verify RUN|--all` checks the record; `manage.py ledger confirm` accepts a changed row."""

from __future__ import annotations

import os
import time
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from datetime import datetime
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand
from django.db import DatabaseError, DataError, transaction

from ledger.actors import Actor, os_account
from ledger.append import acted, justified
from ledger.errors import JustificationRequired, NotFound, first_line
from ledger.protected import Protected, confirm, is_changed_outside, name_of, registry
from ledger.verification import jobs
from ledger.verification.registers import Listed, verify_registers
from ledger.verification.runs import Verification, verify, verify_all

PROGRESS_SECONDS = 10.0
MAX_NOTES = 100  # printed by one verification; each erased run has one, and each with expired checkpoints


class Command(BaseCommand):
    help = (
        "Check the record of one run or of all: "
        "exit code 0 if it is intact, 1 with a line for each problem, 2 if something can't be checked."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        check = verbs.add_parser(
            "verify",
            help="check journal, codes and every table derived from them; with --all, what belongs to no run too",
        )
        which = check.add_mutually_exclusive_group(required=True)
        which.add_argument("run", nargs="?", help="the run's id")
        which.add_argument("--all", action="store_true", help="every run that any table mentions")
        which.add_argument("--job", action="store_true", help="carry out the verification requested in the console")
        check.add_argument(
            "--since", metavar="TIME", help="with --all: only runs with events since then, such as 2026-11-30T00:00Z"
        )
        check.add_argument("--after", metavar="RUN", help="with --all: continue after this run")
        check.add_argument(
            "--processes", type=int, default=1, metavar="N", help="with --all: number of parallel processes"
        )
        confirm = verbs.add_parser("confirm", help="accept a row that was changed outside the application")
        confirm.add_argument("table", choices=sorted(registry), help="table of the row, as named by `verify`")
        confirm.add_argument("key", help="key of the row in that table")
        confirm.add_argument("--reason", required=True, help="why the row is right; recorded")

    def handle(self, *, verb: str, **given: Any) -> None:
        """Run the chosen subcommand."""
        if verb == "confirm":
            self._confirm(registry[given["table"]], given["key"], given["reason"])
        elif given["job"]:
            self._job()
        elif given["processes"] < 1:
            raise self._refusal("--processes must be at least 1")
        elif given["all"]:
            self._all(given["since"], given["after"], given["processes"])
        elif given["since"] or given["after"]:
            raise self._refusal("--since and --after are for --all")
        else:
            self._tell([self._one(str(given["run"]))], [])

    def _one(self, run: str) -> Verification:
        try:
            return verify(UUID(run))
        except ValueError:
            raise self._refusal(f"{run!r} isn't a run id") from None
        except NotFound as error:
            raise self._refusal(error.detail) from None

    def _all(self, since: str | None, after: str | None, processes: int) -> None:
        try:
            begins = datetime.fromisoformat(since) if since else None
        except ValueError:
            raise self._refusal(f"--since {since!r} isn't a time such as 2026-11-30T00:00Z") from None
        if begins is not None and begins.tzinfo is None:
            raise self._refusal(f"--since {since} lacks its time zone: add Z for UTC")
        try:
            last = UUID(after) if after else None
        except ValueError:
            raise self._refusal(f"--after {after!r} isn't a run id") from None
        self._tell(
            self._with_progress(verify_all(last, since=begins, processes=processes)),
            verify_registers() if last is None else [],
        )

    def _with_progress(self, verifications: Iterable[Verification]) -> Iterator[Verification]:
        """Yield the results; print progress every few seconds and, after an interruption, how to continue."""
        runs, events, last, printed_at = 0, 0, None, time.monotonic()
        try:
            for each in verifications:
                yield each
                runs, events, last = runs + 1, events + each.events, each.run_id
                if time.monotonic() - printed_at > PROGRESS_SECONDS:
                    printed_at = time.monotonic()
                    self.stderr.write(f"ledger: {runs} run(s), {events} event(s) so far, up to {last}")
        except (KeyboardInterrupt, BrokenProcessPool) as interruption:
            why = "interrupted" if isinstance(interruption, KeyboardInterrupt) else "one of its processes was killed"
            raise self._refusal(f"{why}. Continue with --after {last}" if last else f"{why}. Start again") from None

    def _tell(self, verifications: Iterable[Verification], lists: Iterable[Listed]) -> None:
        runs = events = problems = notes = 0
        for one in lists:
            problems += len(one.problems)
            for problem in one.problems:
                self.stdout.write(f"{one.name}: {_in_one_line(problem)}")
            last = f", the last hash is {one.hash}" if one.hash else ""
            self.stdout.write(f"{one.name}: {one.records} record(s){last}")
        for each in verifications:
            runs, events, problems = runs + 1, events + each.events, problems + len(each.problems)
            for problem in each.problems:
                self.stdout.write(f"{each.run_id}: {_in_one_line(problem)}")
            for note in each.notes[: max(MAX_NOTES - notes, 0)]:
                self.stdout.write(f"{each.run_id}: note: {_in_one_line(note)}")
            notes += len(each.notes)
        if notes > MAX_NOTES:
            self.stdout.write(f"{notes - MAX_NOTES} further note(s): `ledger verify RUN` prints those of a run")
        self.stdout.write(f"{runs} run(s), {events} event(s), {problems} problem(s)")
        if problems:
            raise SystemExit(1)

    def _job(self) -> None:
        os.nice(10)  # it isn't urgent
        job = jobs.carry_out(max(1, (os.cpu_count() or 1) // 2))
        if job is None:
            raise self._refusal("no verification was requested, or another process is running it")
        self.stdout.write(f"{job.runs} run(s), {job.events} event(s), {job.problems} problem(s)")
        if job.problems:
            raise SystemExit(1)

    def _confirm(self, protected: Protected, key: str, reason: str) -> None:
        """Accept a row that was changed outside the application: renew its code, and record the act."""
        by = Actor("os", os_account(), auth="shell")
        try:
            why = justified("Confirming a row", reason)
            is_changed = is_changed_outside(protected, key)
        except JustificationRequired as error:
            raise self._refusal(error.detail) from None
        except DataError:
            raise self._refusal(f"{protected.table} has no row {key!r}") from None
        if not is_changed:
            raise self._refusal(f"{protected.table} {key} was not changed: there is nothing to confirm")
        with transaction.atomic():
            what = name_of(protected, key)
            try:
                confirm(protected, key)
            except DatabaseError as error:
                raise self._refusal(
                    f"the {what} can't be confirmed, because rows of {protected.table} never change "
                    f"({first_line(error)}). Restore the former values with their code, or set the values again"
                ) from None
            acted("row_confirm", by=by, subject=f"{protected.table} {key}", justification=why, after={"row": what})
        self.stdout.write(f"The {what} is confirmed with its present values.")

    def _refusal(self, why: str) -> SystemExit:
        self.stderr.write(f"ledger: {why}")
        return SystemExit(2)


def _in_one_line(problem: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in problem)
