"""Probe whether a keyed tool's upstream system honours keys: send two calls under one key and compare them."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from ledger.errors import DurableAgentsError
from runs.certification import probing, results
from runs.certification.observing import Observation
from runs.certification.probing import Asked, Prepared
from runs.engine.agents import registry
from runs.management.shell import operator
from runs.models import Probe


class Command(BaseCommand):
    help = (
        "Find out whether a keyed tool's upstream system honours keys. This REALLY calls it, twice under one key."
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
        """One page of what was seen. Raises CommandError: code 2 for what can't be probed, 1 for what isn't
        certified by it."""
        if given["list"]:
            self._list()
            return
        if not tool or not given["input"]:
            raise CommandError("name a tool and give --input FILE, or --list", returncode=2)
        asked = Asked(
            tool,
            given["agent"],
            _json("--input", given["input"]),
            None if given["conflict"] is None else _json("--conflict", given["conflict"]),
            given["control"],
            given["past_gate"],
        )
        try:
            ready = probing.prepare(asked)
        except DurableAgentsError as refused:
            fixes = "; ".join(str(each["fix"]) for each in refused.extra.get("errors", ()))
            raise CommandError(f"{refused.detail} {fixes}".strip(), returncode=2) from None
        self._warn(ready)
        if not given["yes"] and not self._is_meant():
            raise CommandError("Nothing was sent.", returncode=2)
        by = operator()
        row, seen = probing.probe(ready, by=by)
        self._tell(ready, row, seen)
        if row is None or row.verdict != Probe.Verdict.HONOURS:
            raise CommandError("Not certified.", returncode=1)

    def _warn(self, ready: Prepared) -> None:
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
            f"This really calls the other side of {plan.tool.name}{where}: twice under one key"
            f"{''.join(f', {each}' for each in more)}. What it does there stays done."
        )
        if ready.past_gate:
            self.stdout.write(f"In a run {ready.past_gate} would be asked first. That you went past it is on record.")

    def _is_meant(self) -> bool:
        if not sys.stdin.isatty():
            raise CommandError("Say --yes: nobody is here to be asked. Nothing was sent.", returncode=2)
        return input("Type yes to go on: ").strip() == "yes"

    def _tell(self, ready: Prepared, row: Probe | None, seen: Observation) -> None:
        for name, call in seen.calls.items():
            effect = "" if call.effect is None else f"\t{call.effect if isinstance(call.effect, str) else '(no name)'}"
            self.stdout.write(f"{name}\t{ready.keys[name]}\t{call.what}{effect}\t{call.said}".rstrip())
        if seen.hook:
            self.stdout.write(f"hook\t{seen.hook}")
        self.stdout.write(f"verdict\t{'none' if row is None else row.verdict.replace('_', ' ')}\t{seen.told}")
        if row is not None and row.verdict == Probe.Verdict.HONOURS:
            self.stdout.write(f"{row.tool} of {row.agent}@{row.version} is certified until {row.expires_at:%Y-%m-%d}.")

    def _list(self) -> None:
        """One line for each keyed tool of each agent."""
        found = results.newest()
        for agent in registry.agents():
            for tool in agent.all_tools():
                if tool.is_pure or tool.is_unsafe:
                    continue
                stands, newest = results.standing_of(found, agent.name, tool), results.about(found, agent.name, tool)
                until = f"until {stands.until:%Y-%m-%d}" if stands.is_certified and stands.until else ""
                self.stdout.write(
                    "\t".join(
                        (tool.name, agent.graph_id, stands.word.replace("_", " "), until, newest.told if newest else "")
                    ).rstrip()
                )


def _json(option: str, name: str) -> Any:
    try:
        return json.loads(sys.stdin.read() if name == "-" else Path(name).read_text())
    except (OSError, ValueError) as error:
        raise CommandError(f"{option} {name}: {error}", returncode=2) from None
