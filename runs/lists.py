"""Reading many runs: filters that live in the address, counts per state, pages by cursor. A fixed number of queries each."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.db import connection
from django.db.models import Q, QuerySet

from ledger.events import unseal
from ledger.models import Event, Head, LedgerEntry
from runs.looks import look, main_wait
from runs.models import ENDED, Run, State, Wait
from runs.questions import open_for
from runs.subject import subject

PAGE = 50
# Counting stops here: the exact number of a million waiting runs helps nobody and would be read on every ring.
COUNT_TO = 1000
GROUPS: dict[str, tuple[str, list[State]]] = {
    "running": ("running", [State.PENDING, State.RUNNING, State.COMPENSATING]),
    "waiting_human": ("waiting for people", [State.WAITING_HUMAN]),
    "waiting": ("waiting for systems", [State.WAITING_TOOL, State.WAITING_EVENT]),
    "paused": ("paused", [State.PAUSED]),
    "failed": ("failed", [State.FAILED]),
    "completed": ("completed", [State.COMPLETED]),
    "cancelled": ("cancelled", [State.CANCELLED]),
}
_HEX = re.compile(r"[0-9a-f]{4,32}")


@dataclass(frozen=True, slots=True)
class Filters:
    """What the address asks for. Unknown states and broken cursors count as not given."""

    state: str = ""
    agent: str = ""
    q: str = ""
    before: str = ""

    @classmethod
    def of(cls, query: Any) -> Filters:
        """From a request's query string."""
        given = {name: str(query.get(name, "")).strip().replace("\x00", "")[:200] for name in ("state", "agent", "q", "before")}
        if given["state"] not in GROUPS and given["state"] not in State.values:
            given["state"] = ""
        return cls(**given)

    def link(self, **change: str) -> str:
        """The query string with some filters changed; the cursor is dropped unless it is the change."""
        now = {"state": self.state, "agent": self.agent, "q": self.q, **change}
        return "?" + urlencode({name: value for name, value in now.items() if value})

    @property
    def states(self) -> list[State]:
        if self.state in GROUPS:
            return GROUPS[self.state][1]
        return [State(self.state)] if self.state else []


@dataclass(frozen=True, slots=True)
class Card:
    """One run in a list, with what its row tells."""

    run: Run
    head: Head | None
    waits: list[Wait]
    look: str
    wait: Wait | None
    about: str


@dataclass(frozen=True, slots=True)
class Tab:
    """One state filter with its count; `is_more` where counting stopped."""

    key: str
    label: str
    count: int
    is_more: bool
    link: str
    is_current: bool


def find(filters: Filters) -> QuerySet[Run]:
    """Runs that fit, newest first."""
    runs = Run.objects.order_by("-created_at", "-id")
    if filters.states:
        runs = runs.filter(state__in=filters.states)
    if filters.agent:
        name, at, version = filters.agent.partition("@")
        runs = runs.filter(agent=name, version=version) if at else runs.filter(agent=name)
    if filters.q:
        runs = runs.filter(_named(filters.q))
    cursor = _opened(filters.before)
    if cursor is not None:
        at_, id_ = cursor
        runs = runs.filter(Q(created_at__lt=at_) | Q(created_at=at_, id__lt=id_))
    return runs


def _named(q: str) -> Q:
    """By run id or its beginning, by tag, by the name of an effect upstream."""
    wanted = Q(tags__contains=[q]) | Q(id__in=LedgerEntry.objects.filter(external_id=q).values("run_id")[:COUNT_TO])
    key, colon, value = q.partition(":")
    if colon:
        wanted |= Q(tags__contains={key: value})
    digits = q.lower().replace("-", "")
    if _HEX.fullmatch(digits):
        first, last = UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
        wanted |= Q(id__gte=first, id__lte=last)
    return wanted


def page(filters: Filters) -> tuple[list[Card], str]:
    """One page of runs and the query string of the next one, empty on the last."""
    runs = list(find(filters)[: PAGE + 1])
    more = filters.link(before=_closed(runs[PAGE - 1])) if len(runs) > PAGE else ""
    return cards(runs[:PAGE]), more


def cards(runs: Sequence[Run]) -> list[Card]:
    """Runs with their heads, open waits and what they are about, in three further queries."""
    ids = [run.id for run in runs]
    heads = Head.objects.in_bulk(ids)
    waits: dict[UUID, list[Wait]] = {}
    for wait in Wait.objects.filter(run_id__in=ids, resolved_at__isnull=True).order_by("opened_at"):
        waits.setdefault(wait.run_id, []).append(wait)
    about = {row.run_id: _about(row.sealed) for row in Event.objects.filter(run_id__in=ids, seq=1).only("run_id", "seq", "sealed")}
    found = []
    for run in runs:
        mine = [] if run.state in ENDED else waits.get(run.id, [])
        head = heads.get(run.id)
        found.append(Card(run, head, mine, look(run, head, mine), main_wait(mine), about.get(run.id, "")))
    return found


def _about(sealed: Any) -> str:
    """What a run's input is about; nothing for an input that can't be read."""
    try:
        return subject(unseal(sealed))
    except ValueError:
        return ""


def counts() -> dict[str, int]:
    """How many runs are in each state, counted up to `COUNT_TO` + 1, from the index on state."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT s, (SELECT count(*) FROM (SELECT 1 FROM runs_run WHERE state = s LIMIT %s) AS counted)"
            " FROM unnest(%s::text[]) AS s",
            [COUNT_TO + 1, list(State.values)],
        )
        return dict(cursor.fetchall())


def tabs(filters: Filters, by_state: dict[str, int]) -> list[Tab]:
    """The state filters with their counts, those without runs included, so that the strip doesn't jump."""
    total = sum(by_state.values())
    found = [Tab("", "all", min(total, COUNT_TO), total > COUNT_TO, filters.link(state="") or "?", not filters.state)]
    for key, (label, states) in GROUPS.items():
        number = sum(by_state.get(state.value, 0) for state in states)
        found.append(Tab(key, label, min(number, COUNT_TO), number > COUNT_TO, filters.link(state=key), filters.state == key))
    return found


@dataclass(frozen=True, slots=True)
class Asked:
    """One open question, with what its run is about."""

    wait: Wait
    about: str


def questions(held: frozenset[str]) -> list[Asked]:
    """The open questions for a reader with these roles, by deadline, in two queries."""
    waits = list(open_for(held).select_related("run")[:PAGE])
    first = Event.objects.filter(run_id__in={wait.run_id for wait in waits}, seq=1).only("run_id", "seq", "sealed")
    about = {row.run_id: _about(row.sealed) for row in first}
    return [Asked(wait, about.get(wait.run_id) or wait.run.graph_id) for wait in waits]


def needing_operator() -> list[Card]:
    """Runs that only an operator can help, the longest waiting first."""
    kinds = [Wait.Kind.RECONCILE, Wait.Kind.OPERATOR]
    waits = Wait.objects.filter(kind__in=kinds, resolved_at__isnull=True).exclude(run__state__in=ENDED)
    runs = Run.objects.in_bulk({wait.run_id for wait in waits[:COUNT_TO]})
    found = cards(list(runs.values()))
    return sorted(found, key=lambda card: card.wait.opened_at if card.wait else card.run.created_at)


def _closed(run: Run) -> str:
    return base64.urlsafe_b64encode(f"{run.created_at.isoformat()} {run.id}".encode()).decode()


def _opened(cursor: str) -> tuple[datetime, UUID] | None:
    """A cursor's parts; one that was cut or made up means the first page."""
    try:
        at, id_ = base64.urlsafe_b64decode(cursor.encode()).decode().split(" ")
        moment = datetime.fromisoformat(at)
        return (moment, UUID(id_)) if moment.tzinfo else None
    except (ValueError, binascii.Error):
        return None
