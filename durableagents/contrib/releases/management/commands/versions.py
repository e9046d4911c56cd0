"""Lists and changes an agent's versions and ramps from a shell on the server."""

from __future__ import annotations

from argparse import ArgumentParser
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError
from pydantic import ValidationError

from durableagents.contrib.releases import migrating, services
from durableagents.contrib.releases.migrating import MovedRow
from durableagents.contrib.releases.migration_requests import MigrateBody, MigrationPreviewBody
from durableagents.contrib.releases.queries import BOUNDS, RampRow, VersionRow, active_ramp, ramp_row, versions_of
from durableagents.contrib.releases.services import RaiseBody, RampActBody, RampBody
from ledger.actors import Actor
from ledger.errors import DurableAgentsError
from runs.management.shell import operator

_RAMP_ACTS = {
    "resume": services.resume_ramp,
    "rollback": services.roll_back_ramp,
    "finish": services.finish_ramp,
}


class Command(BaseCommand):
    help = (
        "An agent's versions: list them with their active runs, close one to new starts or open it, "
        "move starts to a newer one by a ramp, migrate active runs. Changes are recorded."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        verbs.add_parser("list", help="versions, newest first").add_argument("agent", help="its name")
        close = verbs.add_parser("close", help="close a version to new starts")
        reopen = verbs.add_parser("open", help="open a version to new starts")
        for verb in (close, reopen):
            verb.add_argument("version", help="name@version")
        ramp = verbs.add_parser("ramp", help="send a share of the starts, or those with tags, to another version")
        ramp.add_argument("old", help="name@version")
        ramp.add_argument("new", help="name@version")
        ramp.add_argument("--share", help="percentage of the starts")
        ramp.add_argument("--tag", action="append", help="may be given several times")
        for name in BOUNDS:
            ramp.add_argument(
                f"--{name}",
                default=str(RampBody.model_fields[name].default),
                help="percentage above which it halts, or none",
            )
        ramp.add_argument(
            "--at-least", type=int, default=20, help="runs started before the bounds apply (default: %(default)s)"
        )
        move = verbs.add_parser("migrate", help="migrate active runs to another version, or preview it")
        move.add_argument("old", help="name@version")
        move.add_argument("new", help="name@version")
        move.add_argument(
            "--node", action="append", default=[], metavar="OLD=NEW", help="for each node of the old version"
        )
        move.add_argument(
            "--run", action="append", type=UUID, help="run to migrate (default: the oldest matching ones)"
        )
        move.add_argument("--at", help="only those at this node")
        move.add_argument("--state", help="only those in this state")
        move.add_argument("--limit", type=int, default=20, help="maximum number (default: %(default)s)")
        move.add_argument(
            "--retry", action="store_true", help="migrate failed runs and retry them in the same operation"
        )
        move.add_argument("--dry-run", action="store_true", help="only preview the result for each run")
        more = verbs.add_parser("raise", help="raise its share")
        more.add_argument("--share", required=True)
        others = [verbs.add_parser(name, help=f"{name} a ramp") for name in _RAMP_ACTS]
        for verb in (more, *others):
            verb.add_argument("ramp", type=int, help="its number in `list`")
        for verb in (close, reopen, ramp, more, *others):
            verb.add_argument("--justification", required=True)
        move.add_argument("--justification", default="", help="required without --dry-run")

    def handle(self, *, verb: str, **given: Any) -> None:
        """Run the verb, then print a line for each version and one for the ramp. Raises CommandError for a refusal."""
        by = operator()
        try:
            if verb == "migrate":
                return self._migrate(given, by)
            agent = given["agent"] if verb == "list" else self._act(verb, given, by)
        except DurableAgentsError as refused:
            errors = "; ".join(f"{e['field']} {e['problem']}" for e in refused.extra.get("errors", []))
            raise CommandError(f"{refused.detail} {errors}".strip()) from None
        except ValidationError as refused:
            errors = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in refused.errors(include_url=False))
            raise CommandError(errors) from None
        self._print_versions(agent)

    def _act(self, verb: str, given: dict[str, Any], by: Actor) -> str:
        """Perform the act, and return the agent's name."""
        why = given["justification"]
        if verb in ("close", "open"):
            name, version = _parts(given["version"])
            (services.close_version if verb == "close" else services.open_version)(
                name, version, by=by, justification=why
            )
            return name
        if verb == "ramp":
            (name, old), (other, new) = _parts(given["old"]), _parts(given["new"])
            if name != other:
                raise CommandError(
                    f"{name} and {other} are different agents: a ramp moves starts between versions of one agent."
                )
            bounds = {bound: None if given[bound] == "none" else _whole(given[bound]) for bound in BOUNDS}
            body = RampBody(
                agent=name,
                from_version=old,
                to_version=new,
                share=_share(given["share"]),
                tags=given["tag"],
                at_least=given["at_least"],
                justification=why,
                **bounds,
            )
            return services.create_ramp(body, by=by).agent
        if verb == "raise":
            body_of_raise = RaiseBody.model_validate({"share": _share(given["share"]), "justification": why})
            return services.raise_ramp(given["ramp"], body_of_raise, by=by).agent
        return _RAMP_ACTS[verb](given["ramp"], RampActBody(justification=why), by=by).agent

    def _migrate(self, given: dict[str, Any], by: Actor) -> None:
        """Migrate runs, and print a line for each. Raises CommandError if any was not migrated."""
        (name, old), (other, new) = _parts(given["old"]), _parts(given["new"])
        if name != other:
            raise CommandError(f"{name} and {other} are different agents: a run can't move to another agent.")
        pairs = [each.partition("=") for each in given["node"]]
        if wrong := [first for first, sign, second in pairs if not (first and sign and second)]:
            raise CommandError(f"--node {wrong[0]!r} is not OLD=NEW.")
        fields = {
            "from_version": old,
            "to_version": new,
            "nodes": {first: second for first, _, second in pairs},
            "runs": given["run"],
            "node": given["at"],
            "state": given["state"],
            "limit": given["limit"],
            "retry": given["retry"],
        }
        if given["dry_run"]:
            found = migrating.preview(name, MigrationPreviewBody.model_validate(fields))
        else:
            body = MigrateBody.model_validate(fields | {"justification": given["justification"]})
            found = migrating.migrate(name, body, by=by)
        for each in found:
            self.stdout.write("\t".join(_moved_line(each)))
        stay = sum(not each.is_moved for each in found)
        if stay and not given["dry_run"]:
            raise CommandError(f"{stay} of {len(found)} were not migrated.")

    def _print_versions(self, agent: str) -> None:
        rows = versions_of(agent)
        if not rows:
            raise CommandError(f"There is no agent {agent} here.")
        for row in rows:
            self.stdout.write("\t".join(_version_line(row)))
        if (ramp := active_ramp(agent)) is not None:
            self.stdout.write(_ramp_line(ramp_row(ramp)))


def _version_line(row: VersionRow) -> list[str]:
    last = row.forecast
    if last is None:
        ends = "no active runs"
    elif last.earliest is not None and last.latest is not None:
        ends = (
            f"last ends between {last.earliest.isoformat('T', 'minutes')} and {last.latest.isoformat('T', 'minutes')}"
        )
    else:
        ends = f"end of the last run unknown: {last.why}"
    counted = ", ".join(f"{number} {state}" for state, number in sorted(row.runs.items()) if number) or "no runs"
    drains = ", only drained" if row.is_only_drained else ""
    return [
        row.graph_id,
        "closed" if row.is_closed else "open",
        f"{row.workers} workers{drains}",
        counted,
        ends,
    ]


def _moved_line(row: MovedRow) -> list[str]:
    where = f"{row.node} → {row.to_node}" if row.to_node else row.node
    repeated = f"repeated: {', '.join(row.repeated)}" if row.repeated else ""
    again = "retried" if row.is_retried else ""
    from_record = f"{len(row.answered)} calls answered from the record" if row.answered else ""
    how = row.how if row.is_moved or row.how == "refused" else f"would be {row.how}"
    parts = [again, row.code, row.why, from_record, repeated]
    return [str(row.run), how, where, "; ".join(part for part in parts if part)]


def _ramp_line(row: RampRow) -> str:
    tags = f" and tags {', '.join(row.tags)}" if row.tags else ""
    line = f"ramp {row.id}\t{row.state}\t{row.from_version} → {row.to_version}, {row.share} %{tags}"
    if (of := row.figures) is None:
        return line
    figures = f"of {of.begun} begun: {of.failed} failed, {of.rejected} rejected, {of.stopped} stopped"
    return f"{line}\t{row.to_new} new, {row.to_old} old\t{figures}"


def _parts(reference: str) -> tuple[str, str]:
    name, at, version = reference.partition("@")
    if not at:
        raise CommandError(f"{reference!r} names no version: give name@version.")
    return name, version


def _share(text: str | None) -> Decimal | None:
    try:
        return None if text is None else Decimal(text)
    except InvalidOperation:
        raise CommandError(f"--share {text!r} is not a number.") from None


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise CommandError(f"{text!r} is not a whole percentage or none.")
    return int(text)
