"""Lists policies, and tries one on recorded calls, from a shell.

Policies can only be put in force in the console or the API."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from pydantic import ValidationError

from durableagents.contrib.policies.queries import find_rules
from durableagents.contrib.policies.services import TryBody
from durableagents.contrib.policies.trying import TriedRow, try_policy
from ledger.errors import DurableAgentsError


class Command(BaseCommand):
    help = "List the rules in force, policies and gates in code; or try a policy on recorded calls."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        verbs.add_parser("list", help="the rules in force")
        attempt = verbs.add_parser("try", help="try a policy on the newest recorded calls; changes nothing")
        attempt.add_argument("--name", default="", help="the policy that it would replace")
        attempt.add_argument("--agent", default="")
        attempt.add_argument("--tool", default="")
        attempt.add_argument("--condition", default="")
        attempt.add_argument("--effect", required=True, choices=["allow", "require", "deny"])
        attempt.add_argument("--queue", default="")
        attempt.add_argument("--calls", type=int, default=1000)

    def handle(self, *, verb: str, **given: Any) -> None:
        """List the rules or try a policy. Raises CommandError."""
        if verb == "list":
            self._list()
            return
        names = ("name", "agent", "tool", "condition", "effect", "queue", "calls")
        try:
            self._print(try_policy(TryBody(**{name: given[name] for name in names})))
        except DurableAgentsError as refused:
            raise CommandError(refused.detail) from None
        except ValidationError as refused:
            texts = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in refused.errors(include_url=False))
            raise CommandError("; ".join(texts)) from None

    def _list(self) -> None:
        found = find_rules()
        if found.problem:
            self.stdout.write(f"calls are not sent: {found.problem}")
        for each in found.results:
            whose = f"{each.name}@{each.version}" if each.name else f"code of {', '.join(each.agent_versions)}"
            about = " ".join(filter(None, (each.agent or "any agent", each.tool or "any tool", each.condition)))
            asks = f" {each.queue}" if each.queue else ""
            self.stdout.write(f"{whose}\t{each.effect}{asks}\t{about}\t{each.rule}")

    def _print(self, found: TriedRow) -> None:
        since = f" since {found.since.isoformat()}" if found.since else ""
        self.stdout.write(f"{found.calls} calls{since}{' (the time was up)' if found.is_cut else ''}")
        for text, change in found.changes:
            newest = ", ".join(f"{call.run_id} {call.tool}" for call in change.examples)
            self.stdout.write(f"{text}\t{change.calls}\t{newest}")
        for load in found.loads:
            usually = "nothing decided yet" if load.median_seconds is None else f"median {load.median_seconds:.0f} s"
            self.stdout.write(f"queue {load.queue}\t{load.calls}, {load.a_day:.1f} a day\t{usually}")
        if found.unsure:
            self.stdout.write(f"can't be told\t{found.unsure}\twhich counts as a match unless it allows")
