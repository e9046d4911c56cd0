"""Lists of runs, in a fixed number of queries: filters, counts per state, and pages by cursor."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, cached_property
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet
from django.db.models.expressions import RawSQL
from django.urls import reverse
from django.utils import timezone

from ledger.models import Head
from ledger.web.cursors import Condition, Order, Place, closed, opened
from ledger.web.roles import OPERATOR
from ledger.web.seeing.viewers import viewer
from ledger.web.tally import BADGE_TO, Counted, Tally, badge
from runs import features, seen
from runs.models import ENDED, Run, State, Wait
from runs.queries import families, payloads
from runs.queries.expressions import Misread
from runs.queries.run_facts import RunFacts, facts_of
from runs.queries.searching import AttributePages, AttributeQuery, BadSearch, Match, SearchResult, run_search
from runs.queries.shown_attributes import ShownAttribute
from runs.queries.spending import cost_words
from runs.queries.status import Reason, reason_of, reason_of_wait
from runs.services.bodies import RunFilter
from runs.services.questions import open_for

PAGE = 50
# Counts stop here. Nobody needs an exact number in the millions, which would be counted on every notification.
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
_OPEN = "resolved_at IS NULL"
WAITS = {
    "any": "true",
    "overdue": "(is_overdue OR deadline < statement_timestamp())",
    "escalated": "cardinality(also) > 0",
}
AGES = {"1h": "1 hour", "8h": "8 hours", "1d": "1 day", "7d": "7 days"}
NEWEST = "-created_at"  # the default order
BY_WAIT = {"waiting_since": "opened_at", "waiting_deadline": "deadline"}
RUNS = Order("runs_run", "created_at")
FOR_OPERATOR = Order(
    "runs_wait",
    "opened_at",
    is_newest_first=False,
    only="resolved_at IS NULL AND kind IN ('reconcile', 'operator', 'budget')",
)
# Names of the query string's parameters: the filters of a body, the order and the cursor.
TIMES = ("created_from", "created_before", "waiting_before")
TEXTS = tuple(name for name in RunFilter.model_fields if name not in TIMES)
_OTHERS = {"sort": 70, "before": 2000}
TRACE = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Filters:
    """Filters of a list, which `RunFilter` describes. Invalid values in a query string are ignored."""

    state: str = ""
    agent: str = ""
    q: str = ""
    before: str = ""
    parent: str = ""
    where: str = ""
    sort: str = ""
    wait: str = ""  # one of WAITS
    older: str = ""  # one of AGES, for the wait
    tag: str = ""
    business_key: str = ""  # only together with `agent`
    trace_id: str = ""
    created_from: datetime | None = None
    created_before: datetime | None = None
    waiting_before: datetime | None = None

    @classmethod
    def of(cls, query: Any) -> Filters:
        longest = {name: 500 if name == "where" else 200 for name in TEXTS} | _OTHERS
        given: dict[str, Any] = {
            name: str(query.get(name, "")).strip().replace("\x00", "")[:most] for name, most in longest.items()
        }
        given["parent"] = _whole_id(given["parent"])
        if not all(each in GROUPS or each in State.values for each in given["state"].split(",")):
            given["state"] = ""
        given["wait"] = given["wait"] if given["wait"] in WAITS else ""
        given["older"] = given["older"] if given["older"] in AGES else ""
        given["business_key"] = given["business_key"] if given["agent"] else ""
        given["trace_id"] = given["trace_id"] if TRACE.fullmatch(given["trace_id"]) else ""
        return cls(**given | {name: _moment(query.get(name)) for name in TIMES})

    @property
    def given(self) -> dict[str, Any]:
        """Return the filters that are set."""
        return {name: value for name in RunFilter.model_fields if (value := getattr(self, name))}

    @property
    def unlisted(self) -> list[tuple[str, Any]]:
        """Return the filters that have no field in the console's form."""
        fields = {"state", "q", "agent", "wait", "older", "where"}
        return [(name, _written(value)) for name, value in self.given.items() if name not in fields]

    def link(self, **change: str) -> str:
        """Return the query string with some filters changed; drops the cursor unless that is changed."""
        now = {**self.given, "sort": self.sort} | change
        return "?" + urlencode({name: _written(value) for name, value in now.items() if value})

    @property
    def cleared(self) -> str:
        return Filters(state=self.state).link()

    @property
    def is_any(self) -> bool:
        return bool(self.sort or self.given.keys() - {"state"})

    @property
    def by_attributes(self) -> AttributePages | None:
        """Return the attribute search; None if there is none. Raises BadSearch."""
        return self.search_attributes(self.arms)

    def search_attributes(self, arms: Sequence[Mapping[str, str]]) -> AttributePages | None:
        """Return the attribute search, limited to these conditions on a run's columns. Raises BadSearch."""
        if not self.where and (self.sort in ("", NEWEST) or self.by_wait):
            return None
        if self.by_wait or self.conditions:
            problem = "can't be combined with filters or an order by waits, tags, keys or times"
            raise BadSearch("where" if self.where else "sort", Misread(1, problem, "remove one of them"))
        search = run_search("where" if self.where else "sort")
        among = [one.id for one in self.found.matches] if self.q else None
        return search.by_attributes(AttributeQuery(self.where, self.sort, self.agent, arms, among, viewer()))

    @property
    def states(self) -> list[State]:
        names = self.state.split(",") if self.state else []
        found = [each for name in names for each in (GROUPS[name][1] if name in GROUPS else [State(name)])]
        return list(dict.fromkeys(found))

    @property
    def by_wait(self) -> str:
        """Return the column of waits by which the list is ordered; "" for any other order."""
        return BY_WAIT.get(self.sort, "")

    @property
    def unordered(self) -> Filters:
        """Return filters that match the same runs, but set no order.
        Sorting by a value leaves out the runs without one, so a filter with the same effect replaces the order."""
        if self.by_wait:
            return replace(self, sort="", wait=self.wait or "any")
        if self.sort in ("", NEWEST):
            return replace(self, sort="")
        has = f"{self.sort.removeprefix('-')} is set"
        return replace(self, sort="", where=f"({self.where}) and {has}" if self.where else has)

    @property
    def conditions(self) -> dict[str, Any]:
        """Return the conditions on runs that use no index, as parts of a UNION branch."""
        waits, moments = [WAITS[self.wait]] if self.wait else [], [self.waiting_before] * bool(self.waiting_before)
        waits += ["opened_at < %s"] * len(moments)
        waits += [f"opened_at < statement_timestamp() - interval '{AGES[self.older]}'"] if self.older else []
        found: dict[str, Any] = {}
        if waits:
            found[Condition(f"id IN (SELECT run_id FROM runs_wait WHERE {' AND '.join([_OPEN, *waits])})")] = moments
        for text, value in (
            ("id IN (SELECT run_id FROM runs_runtag WHERE tag = %s)", self.tag),
            ("business_key = %s", self.business_key),
            ("trace_id = %s", self.trace_id),
            ("created_at >= %s", self.created_from),
            ("created_at < %s", self.created_before),
        ):
            if value:
                found[Condition(text)] = [value]
        return found

    @cached_property
    def found(self) -> SearchResult:
        """Return the runs that match the words, newest first. Raises BadSearch."""
        if not self.q:
            return SearchResult([], is_cut=False)
        run_ids, is_cut = run_search("q").by_words(self.q, self.narrowed)
        rows = Run.objects.filter(id__in=run_ids).values_list("id", "state", "created_at") if run_ids else ()
        matches = sorted((Match(*row) for row in rows), key=lambda one: (one.created_at, one.id), reverse=True)
        return SearchResult(matches, is_cut)

    @property
    def of_agent(self) -> dict[str, str]:
        """Return the condition on the agent, which is given as `name` or `name@version`."""
        if not self.agent:
            return {}
        name, at, version = self.agent.partition("@")
        return {"agent": name, "version": version} if at else {"agent": name}

    @property
    def narrowed(self) -> dict[str, str]:
        return {**self.of_agent, **({"parent": self.parent} if self.parent else {})}

    @property
    def arms(self) -> list[dict[str, str]]:
        """Return one condition for each index used: an agent's runs by state, or a run's children by time."""
        states = self.states or (list(State) if self.agent and not self.parent else [])
        return [{**self.narrowed, "state": state.value} for state in states] or [self.narrowed]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a list, and the cursor of the next part ("" if there is none)."""

    runs: list[Run]
    following: str


@dataclass(frozen=True)
class Card:
    """One run in a list, with the reason for its status and the attributes by which a search found it."""

    facts: RunFacts
    reason: Reason
    attributes: Sequence[ShownAttribute] = ()

    @property
    def run(self) -> Run:
        return self.facts.run

    @property
    def head(self) -> Head | None:
        return self.facts.head

    @property
    def wait(self) -> Wait | None:
        return self.facts.wait

    @property
    def about(self) -> str:
        return self.run.about

    @property
    def is_overdue(self) -> bool:
        return self.wait is not None and (self.wait.is_overdue or self.wait.deadline < timezone.now())

    @property
    def cost(self) -> str:
        return cost_words(self.head) if self.head is not None else ""

    @property
    def url(self) -> str:
        """Return the page's URL. The URL pattern is resolved once for all rows."""
        return f"{_all_runs()}/{self.run.id}"

    @property
    def parent_url(self) -> str:
        return f"{_all_runs()}/{self.run.parent}"


@cache
def _all_runs() -> str:
    return reverse("runs")


@dataclass(frozen=True, slots=True)
class Tab:
    """One state filter with its count; `is_more` if counting stopped."""

    key: str
    label: str
    count: int
    is_more: bool
    link: str
    is_current: bool


def _moment(given: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(given).strip()) if given else None
    except ValueError:
        return None
    return None if found is None or found.tzinfo is None else found


def _written(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _whole_id(text: str) -> str:
    try:
        return str(UUID(text)) if text else ""
    except ValueError:
        return ""


def newest(filters: Filters, *, limit: int, beyond: Place | None = None) -> list[Run]:
    """Return matching runs after a position, newest first."""
    if filters.q and not filters.conditions:
        fit = [one for one in filters.found.matches if not filters.states or one.state in filters.states]
        page_rows = [one for one in fit if beyond is None or (one.created_at, one.id) < beyond][:limit]
        rows = Run.objects.filter(id__in=[one.id for one in page_rows])
    else:
        rows = Run.objects.filter(id__in=_ids(filters, limit=limit, beyond=beyond))
    return sorted(rows, key=_place, reverse=True)[:limit]


def _ids(filters: Filters, *, limit: int, beyond: Place | None) -> RawSQL:
    who = viewer()
    if who.sees_all or filters.conditions:
        return RUNS.ids(_whole_arms(filters), limit=limit, beyond=beyond)
    return seen.newest(who, filters.arms, limit=limit, beyond=beyond)


def _whole_arms(filters: Filters) -> list[dict[str, Any]]:
    """Return the UNION branches with all conditions, including words and the viewer's access."""
    more = {**filters.conditions, **seen.arm(viewer(), "id")}
    if filters.q:
        more[Condition("id = ANY(%s)")] = [[one.id for one in filters.found.matches]]
    return [{**arm, **more} for arm in filters.arms]


def longest_waiting(filters: Filters, *, limit: int, beyond: Place | None = None) -> list[tuple[Run, Place]]:
    """Return matching runs with open waits and their positions, by the earliest opening time or deadline."""
    arms = [Condition.of(arm) for arm in _whole_arms(filters)]
    fits = " OR ".join(f"({' AND '.join(texts) or 'true'})" for texts, _ in arms)
    first, values = f"min({filters.by_wait})", [value for _, given in arms for value in given]
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT run_id, {first} FROM runs_wait WHERE {_OPEN} AND run_id IN (SELECT id FROM runs_run WHERE {fits})"
            f" GROUP BY run_id HAVING %s OR ({first}, run_id) > (%s::timestamptz, %s::uuid) ORDER BY 2, 1 LIMIT %s",
            [*values, beyond is None, *(beyond or (None, None)), limit],
        )
        places: list[tuple[UUID, datetime]] = cursor.fetchall()
    runs = Run.objects.in_bulk([run_id for run_id, _ in places])
    return [(runs[run_id], (at, run_id)) for run_id, at in places if run_id in runs]


def ids_of(filters: Filters, most: int) -> list[UUID]:
    """Return the ids of the newest matching runs, ignoring words and attributes."""
    rows = Run.objects.filter(id__in=_ids(filters, limit=most, beyond=None)).values_list("created_at", "id")
    return [run_id for _, run_id in sorted(rows, reverse=True)[:most]]


def stretch(filters: Filters, *, limit: int, cursor: str = "") -> Stretch | None:
    """Return matching runs after a position, by attributes or newest first.
    Return None for a cursor of another list. A part found by attributes may be short even though more runs follow.
    Raises BadSearch."""
    if (pages := filters.by_attributes) is not None:
        if (found := pages(limit, cursor)) is None:
            return None
        rows = Run.objects.in_bulk(found[0])
        return Stretch([rows[run_id] for run_id in found[0] if run_id in rows], found[1])
    beyond = opened(cursor) if cursor else None
    if cursor and beyond is None:
        return None
    runs = newest(filters, limit=limit + 1, beyond=beyond)
    return Stretch(runs[:limit], closed(*_place(runs[limit - 1])) if len(runs) > limit else "")


def _place(run: Run) -> Place:
    return run.created_at, run.id


def page(filters: Filters, *, size: int = PAGE) -> tuple[list[Card], str]:
    """Return one page of runs and the query string of the next one, "" on the last."""
    if filters.by_attributes is None and filters.by_wait:
        waiting = longest_waiting(filters, limit=size + 1, beyond=opened(filters.before))
        more = filters.link(before=closed(*waiting[size - 1][1])) if len(waiting) > size else ""
        return cards([run for run, _ in waiting[:size]]), more
    some = stretch(filters, limit=size, cursor=filters.before) or stretch(filters, limit=size)
    assert some is not None
    listed, more = cards(some.runs), filters.link(before=some.following) if some.following else ""
    if filters.by_attributes is None:
        return listed, more
    attributes = run_search("where").attributes_of([run.id for run in some.runs])
    return [replace(card, attributes=attributes.get(card.run.id, ())) for card in listed], more


def cards(runs: Sequence[Run]) -> list[Card]:
    """Return runs with their statuses, using two more queries."""
    without_hidden_kin(runs)
    ids = [run.id for run in runs]
    return carded(runs, {head.run_id: head for head in families.status_heads(ids)}, families.open_waits(ids))


def without_hidden_kin(runs: Iterable[Run]) -> None:
    """Remove ids of related runs that the viewer may not see.
    Continuations are visible together with their run."""
    runs = list(runs)
    if not viewer().sees_all:
        known = seen.among(getattr(run, name, None) for run in runs for name in _RELATED)
        for run in runs:
            for name in _RELATED:
                if getattr(run, name, None) not in known:
                    setattr(run, name, None)


_RELATED = ("parent", "forked_from", "begun_again_as")


def carded(runs: Iterable[Run], heads: Mapping[UUID, Head], waits: Mapping[UUID, list[Wait]]) -> list[Card]:
    """Return cards from rows already read."""
    return [Card(facts, reason_of(facts)) for facts in facts_of(runs, heads, waits).values()]


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers of runs by state. With `is_cut`, only some runs were examined, and there are more."""

    by_state: Mapping[str, int]
    is_cut: bool = False


def counts(tally: Tally, filters: Filters | None = None) -> Numbers:
    """Return the number of runs per state: of a search, of an agent, or of all runs.
    Each is counted up to `COUNT_TO` + 1."""
    filters = filters or Filters()
    if filters.by_attributes is not None:
        return _found_states(filters)
    if filters.by_wait:
        filters = filters.unordered
    if filters.conditions:
        ids = _ids(replace(filters, state=""), limit=COUNT_TO + 1, beyond=None)
        states = list(Run.objects.filter(id__in=ids).values_list("state", flat=True))
        return Numbers(Counter(states), len(states) > COUNT_TO)
    if filters.q:
        return Numbers(Counter(one.state for one in filters.found.matches), filters.found.is_cut)
    return Numbers(tally.read(to_count(filters)))


def _found_states(filters: Filters) -> Numbers:
    pages = filters.search_attributes([filters.narrowed])
    run_ids, following = (pages and pages(COUNT_TO + 1, "")) or ([], "")
    rows = Run.objects.filter(id__in=run_ids).values_list("state", flat=True)
    return Numbers(Counter(rows), filters.found.is_cut or bool(following))


def to_count(filters: Filters = Filters()) -> dict[str, Counted]:
    """Return the counters per state, to be combined with others."""
    return {state.value: _in_state(state, filters.narrowed) for state in State}


def _in_state(state: State, fit: dict[str, str]) -> Counted:
    who = viewer()
    if not who.sees_all:
        return Counted(COUNT_TO, [seen.counted(who, {**fit, "state": state.value}, COUNT_TO + 1)])
    narrowed = "".join(f"{column} = %s AND " for column in fit)
    return Counted(
        COUNT_TO,
        [
            (
                f"SELECT 1 FROM runs_run WHERE {narrowed}state = %s LIMIT %s",
                [*fit.values(), state.value, COUNT_TO + 1],
            )
        ],
    )


def total(filters: Filters) -> tuple[int, bool]:
    """Return the number of matching runs up to `COUNT_TO`, and whether there are more. Raises BadSearch."""
    counted = counts(Tally(frozenset()), filters)
    number = sum(counted.by_state.get(state.value, 0) for state in filters.states or State)
    return min(number, COUNT_TO), counted.is_cut or number > COUNT_TO


def tabs(filters: Filters, counted: Numbers) -> list[Tab]:
    """Return the state filters with counts.
    Filters without runs are included, so that the tabs don't move."""
    groups = [("", ("all", list(State))), *GROUPS.items()]
    strip = []
    for key, (label, states) in groups:
        number = sum(counted.by_state.get(state.value, 0) for state in states)
        is_more = counted.is_cut or number > COUNT_TO
        strip.append(Tab(key, label, min(number, COUNT_TO), is_more, filters.link(state=key), filters.state == key))
    return strip


def orders(filters: Filters) -> list[tuple[str, str]]:
    """Return the sort orders and their labels."""
    search = features.only(lambda each: each.search)
    return [
        ("", "newest first"),
        ("waiting_since", "longest waiting first"),
        ("waiting_deadline", "earliest deadline first"),
        *(search.orders(filters.agent) if search else ()),
    ]


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """An open question, with the subject of its run."""

    wait: Wait
    about: str


def questions(
    held: frozenset[str], *, limit: int = PAGE, beyond: Place | None = None
) -> tuple[list[OpenQuestion], str]:
    """Return the open questions for these roles, by deadline, and the cursor of the next page."""
    waits = _questions(held, beyond)
    return _question_page(list(waits.select_related("run")[: limit + 1]), limit)


def _questions(held: frozenset[str], beyond: Place | None = None) -> QuerySet[Wait]:
    waits = open_for(held).filter(seen.fits(viewer()))
    if beyond is None:
        return waits
    at, id_ = beyond
    # The second condition implies this one, but the index needs it.
    return waits.filter(deadline__gte=at).exclude(deadline=at, id__lte=id_)


def _question_page(waits: Sequence[Wait], limit: int) -> tuple[list[OpenQuestion], str]:
    more = closed(waits[limit - 1].deadline, waits[limit - 1].id) if len(waits) > limit else ""
    return [OpenQuestion(wait, wait.run.about or wait.run.graph_id) for wait in waits[:limit]], more


def needing_operator(*, limit: int = PAGE, beyond: Place | None = None) -> tuple[list[Card], str]:
    """Return operator cases and exhausted budgets, longest waiting first.
    Also returns the cursor of the next page."""
    ids = FOR_OPERATOR.ids([seen.arm(viewer())], limit=limit + 1, beyond=beyond)
    waits = Wait.objects.select_related("run").filter(id__in=ids)
    return _stuck(sorted(waits, key=lambda wait: (wait.opened_at, wait.id)), limit)


def _stuck(waits: Sequence[Wait], limit: int) -> tuple[list[Card], str]:
    page_waits = waits[:limit]
    more = closed(page_waits[-1].opened_at, page_waits[-1].id) if len(waits) > limit else ""
    readable = seen.readable({wait.run_id: wait.run.creator for wait in page_waits})
    details = [payloads.without_hidden_payload(wait, is_read=wait.run_id in readable) for wait in page_waits]
    return [_for(wait) for wait in details if wait.run.state not in ENDED], more


def needing_somebody(held: frozenset[str], *, limit: int) -> tuple[list[OpenQuestion], list[Card], bool]:
    """Return the first questions and operator cases in one query, and whether there are more."""
    questions_sql, values = _questions(held).values_list("id")[: limit + 1].query.sql_with_params()
    stuck = FOR_OPERATOR.ids([seen.arm(viewer())], limit=limit + 1)
    both = RawSQL(f"SELECT id FROM ({questions_sql}) AS questions UNION ALL ({stuck.sql})", [*values, *stuck.params])
    waits = list(Wait.objects.select_related("run").filter(id__in=both))
    by_deadline = sorted(
        (wait for wait in waits if wait.kind == Wait.Kind.INPUT), key=lambda wait: (wait.deadline, wait.id)
    )
    by_age = sorted(
        (wait for wait in waits if wait.kind != Wait.Kind.INPUT), key=lambda wait: (wait.opened_at, wait.id)
    )
    (questions, more_questions), (cards, more_cards) = _question_page(by_deadline, limit), _stuck(by_age, limit)
    return questions, cards, bool(more_questions or more_cards)


def _for(wait: Wait) -> Card:
    return Card(RunFacts(wait.run, None, [wait], None), reason_of_wait(wait))


@badge("steering")
def for_operator(held: frozenset[str]) -> Counted | None:
    """Return the number of cases for operators; None for other roles."""
    if OPERATOR not in held:
        return None
    return FOR_OPERATOR.counted([seen.arm(viewer())], to=BADGE_TO)
