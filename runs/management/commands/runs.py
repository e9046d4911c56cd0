"""`manage.py runs --where 'customer = ACME and amount > 100' --sort -amount`: lists runs by their attributes.

The command uses the terms of the API and the console, and only reads. Each run is a line with id, state, the reason for
the status, agent, start, and its attributes as JSON, which contains no control characters.

`runs why RUN` tells why a run doesn't progress, who must act, and which actions are possible. Features add verbs.
`runs start AGENT --as USER` and the other verbs of runs/management/steering.py act as an account, through the API.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any, NoReturn
from uuid import UUID

from django.core.management.base import CommandError

from ledger.errors import DurableAgentsError
from ledger.management.in_process import INVALID, ApiCommand, Refusal, add_caller
from ledger.web import problems
from runs import features
from runs.features import RunCommand
from runs.management import steering, why
from runs.models import Run, State
from runs.queries.run_list import Filters, cards, stretch
from runs.queries.searching import BadSearch

AT_ONCE = 200


class Command(ApiCommand):
    help = "List runs by their attributes: exit code 0, or 2 for an invalid search, with the position."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "verb",
            nargs="?",
            choices=[*steering.VERBS, *_further_verbs()],
            help="acts on one run",
        )
        parser.add_argument("run", nargs="?", default="", help="the run's id; for start the agent")
        parser.add_argument("--where", default="", help="for example: customer = ACME and (score > 3 or urgent = true)")
        parser.add_argument("--sort", default="", help="an attribute, or -attribute for the highest first")
        parser.add_argument(
            "--state", default="", choices=["", *State.values], metavar="STATE", help="only in this state"
        )
        parser.add_argument("--agent", default="", help="name, or name@version")
        parser.add_argument("--limit", type=int, default=100, help="maximum number (default: 100)")
        steering.add_arguments(parser)
        add_caller(parser)
        for command in _further_verbs().values():
            command.add_arguments(parser)

    def handle(self, *, where: str, sort: str, state: str, agent: str, limit: int, **options: Any) -> None:
        """Run the command. Invalid input is reported on one line, with exit code 2."""
        if options["verb"] in steering.VERBS:
            for line in steering.carried_out(options["verb"], options["run"], options):
                self.stdout.write(line)
            return
        if (command := _further_verbs().get(options["verb"])) is not None:
            self._by_feature(command, options["run"], options)
            return
        filters = Filters(state=state, agent=agent, where=where, sort=sort)
        search = features.only(lambda each: each.search)
        try:
            for runs in _pages(filters, limit):
                found = search.attributes_of([run.id for run in runs]) if search else {}
                for card in cards(runs):
                    run = card.run
                    text = json.dumps({each.name: each.value for each in found.get(run.id, ())}, sort_keys=True)
                    self.stdout.write(
                        f"{run.id}  {run.state:13}  {card.reason:15}  {run.graph_id}"
                        f"  {run.created_at:%Y-%m-%dT%H:%M:%SZ}  {text}"
                    )
        except BadSearch as error:
            self._refuse(error.detail, options, error)

    def _by_feature(self, command: RunCommand, run: str, options: dict[str, Any]) -> None:
        """Run a feature's verb. A refusal is reported on one line, with exit code 2."""
        try:
            for line in command.lines(UUID(run), options):
                self.stdout.write(line)
            return
        except DurableAgentsError as error:
            errors = "; ".join(f"{each['field']} {each['problem']}" for each in error.extra.get("errors", ()))
            self._refuse(f"{error.detail} {errors}".strip(), options, error)
        except ValueError:
            self._refuse(f"{run!r} isn't a run id", options)

    def _refuse(self, problem: str, options: dict[str, Any], error: BaseException | None = None) -> NoReturn:
        """End with exit code 2 and one line; with `--json`, the output is the error's problem document instead."""
        if not options["json"]:
            self.stderr.write(f"runs: {problem}")
            raise SystemExit(INVALID) from error
        if isinstance(error, DurableAgentsError):
            document = problems.document(error.status, error.code, error.title, problem, **error.extra)
            raise Refusal(problem, document, INVALID) from error
        raise CommandError(problem, returncode=INVALID) from error


def _further_verbs() -> dict[str, RunCommand]:
    apps = sorted(features.installed.items())
    more = {verb: command for _, each in apps for verb, command in each.run_commands.items()}
    return {"why": RunCommand(add_arguments=lambda _: None, lines=why.lines), **more}


def _pages(filters: Filters, limit: int) -> Iterator[list[Run]]:
    """Yield pages of runs. A page may be short even though more runs follow."""
    cursor, left = "", limit
    while left > 0:
        some = stretch(filters, limit=min(left, AT_ONCE), cursor=cursor)
        assert some is not None
        yield some.runs
        cursor, left = some.following, left - len(some.runs)
        if not cursor:
            return
