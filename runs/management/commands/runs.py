"""`manage.py runs --where 'customer = ACME and amount > 100' --sort -amount`: runs by their attributes, on a terminal.

In the words of the API and the console. A line for each run: id, state, agent, start, and its attributes as JSON, in
which no sign can do anything to a terminal. It only reads.

`runs fork RUN` and `runs start-again RUN` begin it anew.
`runs why RUN`: why it doesn't move, who must act, and what may be done. Features add further verbs.
`runs start AGENT --as USER` and the other verbs of runs/management/steering.py act as an account, through the API.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from ledger.errors import DurableAgentsError
from ledger.management.in_process import ApiCommand, add_caller
from runs import features
from runs.features import RunCommand
from runs.management import forking, steering
from runs.models import Run, State
from runs.queries.attributes.meaning import BadSearch
from runs.queries.attributes.places import NEWEST
from runs.queries.attributes.shown import attributes_of
from runs.queries.run_list import Filters, stretch

AT_ONCE = 200


class Command(ApiCommand):
    help = "List runs by their attributes: exit code 0, or 2 for an invalid search, with the position."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "verb",
            nargs="?",
            choices=[forking.VERB, *forking.VERBS, *steering.VERBS, *_of_features()],
            help="acts on one run",
        )
        parser.add_argument("run", nargs="?", default="", help="the run's id; for start the agent")
        parser.add_argument("--where", default="", help="for example: customer = ACME and (score > 3 or urgent = true)")
        parser.add_argument("--sort", default=NEWEST, help="an attribute, or -attribute for the highest first")
        parser.add_argument(
            "--state", default="", choices=["", *State.values], metavar="STATE", help="only in this state"
        )
        parser.add_argument("--agent", default="", help="name, or name@version")
        parser.add_argument("--limit", type=int, default=100, help="maximum number (default: 100)")
        forking.add_arguments(parser)
        steering.add_arguments(parser)
        add_caller(parser)
        for command in _of_features().values():
            command.add_arguments(parser)

    def handle(self, *, where: str, sort: str, state: str, agent: str, limit: int, **options: Any) -> None:
        """Exit code 2, and one line, for what can't be read."""
        if options["verb"] in forking.VERBS:
            self._begin_anew(options["verb"], options["run"], options)
            return
        if options["verb"] == forking.VERB:
            self._why(options["run"])
            return
        if options["verb"] in steering.VERBS:
            for line in steering.carried_out(options["verb"], options["run"], options):
                self.stdout.write(line)
            return
        if (command := _of_features().get(options["verb"])) is not None:
            self._by_feature(command, options["run"], options)
            return
        filters = Filters(state=state, agent=agent, where=where, sort=sort or NEWEST)
        try:
            for runs in _pages(filters, limit):
                found_by = attributes_of(run.id for run in runs)
                for run in runs:
                    told = json.dumps(found_by.get(run.id, {}), sort_keys=True)
                    self.stdout.write(
                        f"{run.id}  {run.state:13}  {run.graph_id}  {run.created_at:%Y-%m-%dT%H:%M:%SZ}  {told}"
                    )
        except BadSearch as error:
            self.stderr.write(f"runs: {error.detail}")
            raise SystemExit(2) from error

    def _begin_anew(self, verb: str, run: str, options: dict[str, Any]) -> None:
        """Print the preview or the new run's id; print a refusal in one line."""
        try:
            for line in forking.carried_out(verb, run, options):
                self.stdout.write(line)
        except forking.NotDone as error:
            self.stderr.write(f"runs: {error}")
            raise SystemExit(2) from error

    def _why(self, run: str) -> None:
        """Exit code 2, and one line, for a run that there isn't."""
        try:
            for line in forking.told(run):
                self.stdout.write(line)
        except forking.NotAsked as error:
            self.stderr.write(f"runs: {error}")
            raise SystemExit(2) from error

    def _by_feature(self, command: RunCommand, run: str, options: dict[str, Any]) -> None:
        """Exit code 2, and one line, for a refusal."""
        try:
            for line in command.lines(UUID(run), options):
                self.stdout.write(line)
            return
        except DurableAgentsError as error:
            problem = error.detail
        except ValueError:
            problem = f"{run!r} isn't a run id"
        self.stderr.write(f"runs: {problem}")
        raise SystemExit(2)


def _of_features() -> dict[str, RunCommand]:
    return {verb: command for each in features.installed.values() for verb, command in each.run_commands.items()}


def _pages(filters: Filters, limit: int) -> Iterator[list[Run]]:
    """Page after page, also where one ends before it is full."""
    sought, cursor, left = filters.sought, "", limit
    assert sought is not None
    while left > 0:
        some = stretch(filters, sought, limit=min(left, AT_ONCE), cursor=cursor)
        assert some is not None
        yield some.runs
        cursor, left = some.following, left - len(some.runs)
        if not cursor:
            return
