"""`manage.py retention`: manages rules and legal holds, and archives, reads and restores runs."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError
from django.db import connection, transaction

from durableagents.contrib.retention import archiving, holds, policies, register, report, restoring
from durableagents.contrib.retention.models import Allowance
from ledger import events as e
from ledger.append import acted, justified
from ledger.clock import database_now
from ledger.codec import unpack
from ledger.erasure import Erased, erasure_of
from ledger.errors import DurableAgentsError, Forbidden, InvalidInput
from ledger.verification.archives import ArchiveDamaged
from ledger.verification.runs import UNREADABLE
from ledger.web.bodies import fit
from runs.management.shell import command_actor, operator

_MAY_ALLOW = "SELECT has_table_privilege('retention_allowance', 'INSERT')"


class Command(BaseCommand):
    help = "How long runs are kept: policies, legal holds, archives."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        run = verbs.add_parser("run", help="archive runs, remove old checkpoints and delete archives that are due")
        run.add_argument("--dry-run", action="store_true", help="only list them")
        run.add_argument("--limit", type=_positive, help="most runs to archive, and most to remove checkpoints of")
        verbs.add_parser("report", help="number of runs that are due, archived or held")
        policy = verbs.add_parser("policy", help="put a policy in force")
        for name in ("agent", "tag", "effects", "state"):
            policy.add_argument(f"--{name}", default="", help="only runs with this")
        policy.add_argument(
            "--checkpoint-days", type=int, help="days from end to removing old checkpoints; default: with the run"
        )
        policy.add_argument("--archive-days", type=int, help="days from end to archiving; default: never")
        policy.add_argument("--delete-days", type=int, help="days from archiving to deletion; default: never")
        hold = verbs.add_parser("hold", help="place a legal hold")
        hold.add_argument("--run", dest="run_id", help="one run, with those related to it")
        for name in ("agent", "tag", "business-key"):
            hold.add_argument(f"--{name}", default="", help="only runs with this")
        for name in ("created-from", "created-to"):
            hold.add_argument(f"--{name}", type=_moment, help="runs created in this period: 2026-01-31T00:00:00+00:00")
        end = verbs.add_parser("end", help="end a policy")
        lift = verbs.add_parser("lift", help="lift a legal hold")
        for each in (end, lift):
            each.add_argument("id", type=int)
        verbs.add_parser("policies", help="list policies and holds in force")
        show = verbs.add_parser("show", help="show an archived run, read from its archive")
        show.add_argument("--payloads", action="store_true", help="with the content of events")
        restore = verbs.add_parser("restore", help="restore an archived run, with those of the same archive")
        for each in (show, restore):
            each.add_argument("run")
        allow = verbs.add_parser("allow", help="let workers remove runs; for the owner's database role")
        allow.add_argument(
            "--days", type=_positive, help="only runs that ended at least this many days ago; default: none"
        )
        for each in (policy, hold, end, lift, restore, allow):
            each.add_argument("--reason", required=True, help="recorded in the audit trail")

    def handle(self, *, verb: str, **given: Any) -> None:
        acts: dict[str, Callable[..., None]] = {
            "run": self._run,
            "report": self._report,
            "policy": self._policy,
            "hold": self._hold,
            "end": self._end,
            "lift": self._lift,
            "policies": self._policies,
            "show": self._show,
            "restore": self._restore,
            "allow": self._allow,
        }
        try:
            acts[verb](given)
        except InvalidInput as error:
            text = "; ".join(f"{each['field']} {each['problem']}: {each['fix']}" for each in error.extra["errors"])
            raise CommandError(text or error.detail, returncode=2) from None
        except (DurableAgentsError, ArchiveDamaged) as error:
            raise CommandError(str(error), returncode=2) from None

    def _run(self, given: dict[str, Any]) -> None:
        progress = archiving.run(limit=given["limit"], is_dry=given["dry_run"])
        for line in progress.notes:
            self.stdout.write(line)
        for line in progress.problems:
            self.stderr.write(line)
        would = "would be " if given["dry_run"] else ""
        self.stdout.write(
            f"{progress.archived} run(s) {would}archived, {progress.deleted} archive(s) {would}deleted, "
            f"old checkpoints of {progress.expired} run(s) {would}removed, "
            f"{len(progress.problems)} problem(s)"
        )
        if progress.problems:
            raise CommandError("some runs stay: see above", returncode=1)

    def _report(self, given: dict[str, Any]) -> None:
        for name, value in dataclasses.asdict(report.report()).items():
            self.stdout.write(f"{name.replace('_', ' ')}: {value}")

    def _policy(self, given: dict[str, Any]) -> None:
        names = ("agent", "tag", "effects", "state", "checkpoint_days", "archive_days", "delete_days")
        body = fit(
            policies.RetentionPolicyBody, {name: given[name] for name in names} | {"justification": given["reason"]}
        )
        self.stdout.write(f"{policies.create(body, by=command_actor())} is in force")

    def _hold(self, given: dict[str, Any]) -> None:
        names = ("agent", "tag", "business_key", "created_from", "created_to")
        found = {name: given[name] for name in names}
        run = {"run_id": _run_id(given["run_id"])} if given["run_id"] else {}
        body = fit(holds.LegalHoldBody, found | run | {"justification": given["reason"]})
        row = holds.place(body, by=command_actor())
        self.stdout.write(f"{row} is in force. {holds.covered(row)}")

    def _end(self, given: dict[str, Any]) -> None:
        self.stdout.write(f"{policies.end(given['id'], by=command_actor(), justification=given['reason'])} was ended")

    def _lift(self, given: dict[str, Any]) -> None:
        self.stdout.write(f"{holds.lift(given['id'], by=command_actor(), justification=given['reason'])} was lifted")

    def _policies(self, given: dict[str, Any]) -> None:
        for row in policies.in_force():
            self.stdout.write(
                f"policy {row.pk}: {json.dumps(policies.policy_values(row))} ({row.set_by}: {row.reason})"
            )
        for hold in holds.in_force():
            self.stdout.write(f"hold {hold.pk}: {json.dumps(holds.hold_values(hold))} ({hold.set_by}: {hold.reason})")

    def _show(self, given: dict[str, Any]) -> None:
        row = register.find(_run_id(given["run"]))
        self.stdout.write(
            f"run {row.run_id}, {row.agent}@{row.version}, {row.state}, archived {row.at.isoformat()} by policy "
            f"{row.policy} in {row.place}, {row.seq} events"
        )
        if (erasure := erasure_of(row.run_id)) is not None:
            self.stdout.write(f"{erasure}. The run's events no longer have content")
        if (at := register.deleted_at(row)) is not None:
            self.stdout.write(f"the archive was deleted {at.isoformat()}")
            return
        for event in register.events_of(row):
            content = _content(event) if given["payloads"] else ""
            self.stdout.write(f"{event.seq} {event.at.isoformat()} {event.kind} {event.slot or ''} {content}".rstrip())

    def _restore(self, given: dict[str, Any]) -> None:
        found = restoring.restore(_run_id(given["run"]), by=operator(), justification=given["reason"])
        self.stdout.write(f"restored: {', '.join(map(str, found))}")

    @transaction.atomic
    def _allow(self, given: dict[str, Any]) -> None:
        why = justified("retention_allow", given["reason"], field="--reason")
        with connection.cursor() as cursor:
            cursor.execute(_MAY_ALLOW)
            if not cursor.fetchone()[0]:
                raise Forbidden("This database role may not allow that: run it with DURABLEAGENTS_DB_ROLE=owner.")
        before = Allowance.objects.values_list("days", flat=True).first()
        if given["days"] is None:
            Allowance.objects.all().delete()
        else:
            Allowance.objects.update_or_create(pk=1, defaults={"days": given["days"], "at": database_now()})
        acted(
            "retention_allow",
            by=command_actor(),
            subject="retention",
            justification=why,
            before={"days": before},
            after={"days": given["days"]},
        )
        self.stdout.write(f"workers remove after {given['days']} days" if given["days"] else "workers remove nothing")


def _content(event: Any) -> str:
    try:
        payload = e.decode(bytes(event.clear), unpack(event.sealed)).payload
    except Erased:
        return "(erased)"
    except UNREADABLE as error:
        return f"(unreadable: {type(error).__name__})"
    return json.dumps(payload, ensure_ascii=True, default=str)


def _run_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise CommandError(f"{text!r} is not a run id", returncode=2) from None


def _positive(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 10**9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = datetime.min
    if found.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time with a zone, such as 2026-01-31T00:00:00+00:00")
    return found
