"""Probe whether a keyed tool's upstream system honours keys: send two calls with one key and compare the results."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from durableagents.contrib.certify import certificates, probing
from durableagents.contrib.certify.models import Probe
from durableagents.contrib.certify.observing import Observation
from durableagents.contrib.certify.probing import PreparedProbe, ProbeRequest
from ledger.errors import DurableAgentsError
from runs.engine.agents import registry
from runs.management.shell import operator


class Command(BaseCommand):
    help = (
        "Find out whether a keyed tool's upstream system honours keys. This REALLY calls it, twice with one key."
        " Exit code 0 only if the tool is certified."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("tool", nargs="?", help="its name")
        parser.add_argument("--list", action="store_true", help="only list the status of every keyed tool")
        parser.add_argument("--agent", default="", help="name or name@version, if several have a tool of that name")
        parser.add_argument("--input", metavar="FILE", help="the call's input as JSON; - for standard input")
        parser.add_argument("--conflict", metavar="FILE", help="another input, sent under the same key afterwards")
        parser.add_argument(
            "--control", action="store_true", help="send the input again under another key, which has a second effect"
        )
        parser.add_argument("--past-gate", action="store_true", help="probe although a gate would ask people first")
        parser.add_argument("--yes", action="store_true", help="don't ask for confirmation")

    def handle(self, *, tool: str | None, **given: Any) -> None:
        """Print the result.

        Raises CommandError, with exit code 2 if the tool can't be probed, 1 if it isn't certified.
        """
        if given["list"]:
            self._list()
            return
        if not tool or not given["input"]:
            raise CommandError("name a tool and give --input FILE, or --list", returncode=2)
        request = ProbeRequest(
            tool,
            given["agent"],
            _json("--input", given["input"]),
            None if given["conflict"] is None else _json("--conflict", given["conflict"]),
            given["control"],
            given["past_gate"],
        )
        try:
            ready = probing.prepare(request)
        except DurableAgentsError as refused:
            fixes = "; ".join(str(each["fix"]) for each in refused.extra.get("errors", ()))
            raise CommandError(f"{refused.detail} {fixes}".strip(), returncode=2) from None
        self._warn(ready)
        if not given["yes"] and not self._is_confirmed():
            raise CommandError("Nothing was sent.", returncode=2)
        by = operator()
        row, observation = probing.probe(ready, by=by)
        self._print(ready, row, observation)
        if row is None or row.verdict != Probe.Verdict.HONOURS:
            raise CommandError("Not certified.", returncode=1)

    def _warn(self, ready: PreparedProbe) -> None:
        plan = ready.plan
        more = [
            words
            for words, has in (
                ("once more under another key", plan.has_control),
                ("once with another body", plan.conflict is not None),
            )
            if has
        ]
        where = f" ({plan.tool.system})" if plan.tool.system else ""
        self.stdout.write(
            f"This really calls the upstream system of {plan.tool.name}{where}: twice with one key"
            f"{''.join(f', {each}' for each in more)}. Its effects there are not undone."
        )
        if ready.past_gate:
            self.stdout.write(f"In a run, {ready.past_gate} would have to approve first. Skipping it is recorded.")

    def _is_confirmed(self) -> bool:
        if not sys.stdin.isatty():
            raise CommandError(
                "There is no terminal to ask for confirmation: add --yes. Nothing was sent.", returncode=2
            )
        return input("Type yes to continue: ").strip() == "yes"

    def _print(self, ready: PreparedProbe, row: Probe | None, observation: Observation) -> None:
        for name, call in observation.calls.items():
            effect = "" if call.effect is None else f"\t{call.effect if isinstance(call.effect, str) else '(no name)'}"
            self.stdout.write(f"{name}\t{ready.keys[name]}\t{call.outcome}{effect}\t{call.text}".rstrip())
        if observation.hook:
            self.stdout.write(f"hook\t{observation.hook}")
        self.stdout.write(f"verdict\t{'none' if row is None else row.verdict.replace('_', ' ')}\t{observation.finding}")
        if row is not None and row.verdict == Probe.Verdict.HONOURS:
            self.stdout.write(f"{row.tool} of {row.agent}@{row.version} is certified until {row.expires_at:%Y-%m-%d}.")

    def _list(self) -> None:
        """Print one line for each keyed tool of each agent."""
        results = certificates.read_results()
        for agent in registry.agents():
            for tool in agent.all_tools():
                if tool.is_pure or tool.is_unsafe:
                    continue
                newest = certificates.newest_result(results, agent.name, tool)
                certificate = certificates.standing_of(newest, tool)
                until = f"until {certificate.until:%Y-%m-%d}" if certificate.is_certified and certificate.until else ""
                self.stdout.write(
                    "\t".join(
                        (
                            tool.name,
                            agent.graph_id,
                            certificate.word.replace("_", " "),
                            until,
                            newest.probe.told if newest else "",
                        )
                    ).rstrip()
                )


def _json(option: str, name: str) -> Any:
    try:
        return json.loads(sys.stdin.read() if name == "-" else Path(name).read_text())
    except (OSError, ValueError) as error:
        raise CommandError(f"{option} {name}: {error}", returncode=2) from None
