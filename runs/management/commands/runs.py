"""`manage.py runs --where 'customer = ACME and amount > 100' --sort -amount`: runs by their attributes, on a terminal.

In the words of the API and the console. A line for each run: id, state, agent, start, and its attributes as JSON, in
which no sign can do anything to a terminal. It only reads.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.core.management.base import BaseCommand

from runs.models import Run, State
from runs.queries.attributes.meaning import BadSearch
from runs.queries.attributes.places import NEWEST
from runs.queries.attributes.shown import attributes_of
from runs.queries.run_list import Filters, stretch

AT_ONCE = 200


class Command(BaseCommand):
    help = "List runs by their attributes: exit code 0, or 2 for a search that can't be read, with the place."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--where", default="", help="such as: customer = ACME and (score > 3 or urgent = true)")
        parser.add_argument("--sort", default=NEWEST, help="an attribute, or -attribute for the highest first")
        parser.add_argument(
            "--state", default="", choices=["", *State.values], metavar="STATE", help="only in this state"
        )
        parser.add_argument("--agent", default="", help="name, or name@version")
        parser.add_argument("--limit", type=int, default=100, help="how many at most (100)")

    def handle(self, *, where: str, sort: str, state: str, agent: str, limit: int, **_: Any) -> None:
        """Exit code 2, and one line, for what can't be read."""
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
