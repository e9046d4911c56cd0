"""Set and lift halts from a shell on the server, for when the console can't or shouldn't be used."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError
from pydantic import ValidationError

from durableagents.contrib.halts import services
from durableagents.contrib.halts.queries import HaltRow, get_halt, halts_in_force
from durableagents.contrib.halts.services import HaltBody, LiftBody, StageBody
from ledger.errors import DurableAgentsError
from runs.management.shell import operator


class Command(BaseCommand):
    help = (
        "Halts: nothing starts in their scope. List halts and the workers that have confirmed them, halt the "
        "installation, a tag, an agent, a version, a tool or a provider, and lift it, in stages or at once."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        verbs.add_parser("list", help="list current halts")
        new = verbs.add_parser("set", help="halt a scope")
        new.add_argument("scope", choices=["all", "tag", "agent", "version", "tool", "provider"])
        new.add_argument("key", nargs="?", default="", help="its name; for a version name@1.0.0")
        new.add_argument("--kind", choices=["halt", "quarantine", "starts"], default="halt")
        new.add_argument(
            "--refuse", action="store_true", help="for starts: refuse them instead of keeping them waiting"
        )
        new.add_argument("--confirm", default="", help="required for the whole installation: 'halt everything'")
        some = verbs.add_parser("stage", help="lift it for some runs; without options it applies fully again")
        some.add_argument("--share", help="percentage of the runs")
        some.add_argument("--agent", action="append", help="may be given several times")
        some.add_argument("--tag", action="append", help="may be given several times")
        whole = verbs.add_parser("lift", help="lift it completely")
        for verb in (some, whole):
            verb.add_argument("halt", type=UUID, help="its id in `list`")
        for verb in (new, some, whole):
            verb.add_argument("--justification", required=True)

    def handle(self, *, verb: str, **given: Any) -> None:
        """Print a line for each halt, and one for each worker that hasn't confirmed it.

        Raises CommandError for invalid options.
        """
        try:
            found = halts_in_force() if verb == "list" else [get_halt(self._act(verb, given))]
        except DurableAgentsError as refused:
            errors = "; ".join(f"{e['field']} {e['problem']}" for e in refused.extra.get("errors", []))
            raise CommandError(f"{refused.detail} {errors}".strip()) from None
        except ValidationError as refused:
            errors = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in refused.errors(include_url=False))
            raise CommandError(errors) from None
        for one in found:
            self.stdout.write("\t".join(_halt_lines(one)))
            for name in one.unknown:
                self.stdout.write(f"\tno known {name.scope} is called {name.key}\t{name.meant}".rstrip())
            for worker in one.unconfirmed:
                self.stdout.write(f"\t{worker.name}\t{worker.says}\t{worker.running} running")
            for call in one.in_flight or ():
                self.stdout.write(f"\tin flight\t{call.what}\t{call.run}\tsince {call.since:%H:%M:%S}\t{call.worker}")

    def _act(self, verb: str, given: dict[str, Any]) -> UUID:
        by, why = operator(), given["justification"]
        if verb == "set":
            names = ("kind", "scope", "key", "refuse", "confirm")
            fields = {name: given[name] for name in names} | {"justification": why}
            return services.begin(HaltBody.model_validate(fields), by=by).halt
        if verb == "lift":
            return services.lift(given["halt"], LiftBody(justification=why), by=by).halt
        fields = {"share": given["share"], "agents": given["agent"], "tags": given["tag"], "justification": why}
        return services.stage(given["halt"], StageBody.model_validate(fields), by=by).halt


def _halt_lines(one: HaltRow) -> list[str]:
    lets = [f"{one.share} %"] if one.share != "0" else []
    lets += [f"agent {name}" for name in one.agents] + [f"tag {name}" for name in one.tags]
    return [
        str(one.id),
        one.what,
        one.state,
        f"by {one.by}",
        f"since {one.since:%Y-%m-%d %H:%M} UTC",
        *([f"but for {', '.join(lets)}"] if lets else []),
        one.why,
    ]
