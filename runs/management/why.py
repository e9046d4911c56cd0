"""`manage.py runs why RUN`: tells why a run doesn't progress, who must act, and which actions are possible."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from ledger.web.roles import OPERATOR
from runs.management import shell
from runs.queries.actions import Reader
from runs.queries.run_facts import read_facts
from runs.queries.sentences import at
from runs.queries.why import why


def lines(run_id: UUID, _: Mapping[str, Any]) -> Iterator[str]:
    """Yield the answer as lines without control characters. Raises NotFound."""
    found = why(read_facts(run_id), Reader(shell.operator(), frozenset({OPERATOR})))
    status, who = found.status, found.status.who
    whom = ", ".join(who.roles) if who.kind == "people" else who.kind
    yield f"state     {_inert(str(status.state))}"
    yield f"reason    {status.reason}"
    yield f"why       {_inert(' '.join(filter(None, [status.sentence, found.also])))}"
    whom += f" at {who.queue}" if who.queue else ""
    whom += f", but not {who.but}" if who.but else ""
    yield f"who       {_inert(whom)}"
    yield f"since     {at(status.since)}{f', until {at(status.until)}' if status.until else ''}"
    for one in found.evidence:
        where = f"{f', event {one.seq}' if one.seq else ''}{f', run {one.run}' if one.run else ''}"
        yield f"evidence  {_inert(one.what)}{where}"
    for offer in found.acts:
        may = "may" if offer.allowed else f"may not: {_inert(offer.why_not)}"
        yield f"{offer.act:9} {offer.method} {_inert(offer.path)}  {may}"


def _inert(text: str) -> str:
    """Return the text with unprintable characters escaped as numbers."""
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)
