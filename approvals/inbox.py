"""The lists of questions: waiting ones by deadline, and decided ones, page by page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import BooleanField, Q, QuerySet
from django.db.models.expressions import RawSQL
from django.db.models.functions import Now
from django.urls import reverse

from approvals.brief import asks_of, cards_by_name, plan_of, title_of
from approvals.deadlines import DeadlineTexts, deadlines
from approvals.guards import ApprovalFilter, ApprovalPanel, feature_annotations
from approvals.models import Approval, ApprovalState
from approvals.queues.sight import asked_at, readable, shown_of
from approvals.repeats import Repeat, repeats_of
from approvals.votes import NOW, StageShown, stages_of
from ledger.web.cursors import Condition, Order, closed, opened
from ledger.web.roles import OwnCase, OwnLimit, StandsIn, own_cases, own_limits, stand_ins
from ledger.web.seeing.viewers import viewer
from ledger.web.tally import BADGE_TO, Counted, Tally, badge
from runs import features, seen
from runs.engine.gating.fields import CURRENCY, Amount, amount_in, subject
from runs.journal.asked.queues import QUEUES
from runs.queries.searching import run_search
from runs.queries.tool_cards import ToolCard
from runs.services.questions import open_for

# The amount has a column of its own, because plans are encrypted. An older row has a plan in canonical JSON with sorted
# keys, so its amount is near the start, before any text an agent chose: `{"agent":…,"amount":{…},…`.
_HEAD = """coalesce('{"agent":"","amount":' || amount, encode(substring(plan FROM 1 FOR 600), 'escape'))"""
_AMOUNT = r'^\{"agent":"[^"]*","amount":\{'
_VALUE = r'"currency":"%s","value":"-?([0-9]{1,18}(?:\.[0-9]{1,18})?)"\}'
_WITHIN = f"CASE WHEN {_HEAD} ~ %s THEN coalesce(substring({_HEAD} FROM %s)::numeric <= %s, false) ELSE %s END"


def is_above(plan: Any, limit: OwnLimit | None) -> bool:
    """Return whether a plan's amount exceeds the reader's limit. Pure."""
    if limit is None:
        return False
    amount = amount_in(plan)
    if isinstance(amount, Amount):
        return amount.currency != limit.currency or amount.value.copy_abs() > limit.most
    return limit.needs_amount if amount is None else True


def within(queue: str, limit: OwnLimit | None, others: Iterable[str]) -> dict[Any, Any]:
    """Return the condition for cases within the reader's limit or escalated to `others`; empty without a limit."""
    if limit is None:
        return {}
    sql, values = _sql(limit)
    return {Condition(f"({sql} OR coalesce(escalated_to && %s::text[], false))"): [*values, [*others]]}


def within_further(mine: Iterable[str], limits: dict[str, OwnLimit]) -> dict[Any, Any]:
    """Return the same condition for cases escalated to the queues in `mine`."""
    mine = [*mine]
    free = [queue for queue in mine if queue not in limits]
    parts = ["escalated_to && %s::text[]"]
    values: list[Any] = [free]
    for queue in mine:
        if queue in limits:
            sql, given = _sql(limits[queue])
            parts.append(f"%s = ANY(escalated_to) AND {sql}")
            values += [queue, *given]
    return {Condition(f"({' OR '.join(parts)})"): values} if len(free) < len(mine) else {}


def _sql(limit: OwnLimit) -> tuple[str, list[Any]]:
    currency = limit.currency if CURRENCY.fullmatch(limit.currency) else "none"
    return _WITHIN, [_AMOUNT, _AMOUNT + _VALUE.replace("%s", re.escape(currency)), limit.most, not limit.needs_amount]


PAGE = 50
COUNT_TO = 1000
OPEN = Order("approvals_approval", "deadline", is_newest_first=False, only="state = 'open'")
DECIDED = Order("approvals_approval", "decided_at", only="NOT (state = 'open')")
_LATE = "(escalated_to IS NOT NULL OR deadline < statement_timestamp())"


@dataclass(frozen=True, slots=True)
class Item:
    approval: Approval
    title: str
    asks: str
    headline: str
    about: str
    stands_in: StandsIn | None = None
    part: str = ""  # progress of a vote by several: stage, approvals so far, whether the reader has voted
    own: OwnCase | None = None  # set if the case was delegated to the reader or they were asked about it
    is_above: bool = False  # it exceeds the reader's limit, so someone else has to approve
    repeats: Sequence[Repeat] = ()  # other requests for the same call with the same arguments
    lines: Sequence[ApprovalPanel] = ()  # panels that features add while it is open

    @property
    def url(self) -> str:
        """Return the page's URL. The URL is resolved only once for all items."""
        return f"{_inbox()}/{self.approval.id}"

    @property
    def is_overdue(self) -> bool:
        """Return whether its deadline has passed, even if the sweeper hasn't handled it yet."""
        return self.approval.deadline < datetime.now(UTC) and not self.time.is_endless and not self.time.is_halted

    @property
    def time(self) -> DeadlineTexts:
        """Return the sentences about the approval's deadline."""
        return deadlines().texts(self.approval)


def _annotations() -> dict[str, Any]:
    return deadlines().annotations() | feature_annotations(is_whole=False)


@cache
def _inbox() -> str:
    return reverse("inbox")


def _filters() -> dict[str, ApprovalFilter]:
    return {name: each for feature in features.installed.values() for name, each in feature.approval_filters.items()}


@dataclass(frozen=True, slots=True)
class Wanted:
    """The list's query parameters; invalid ones are ignored."""

    is_decided: bool = False
    q: str = ""
    beyond: str = ""
    on: str = ""  # a filter that a feature adds; empty for none
    person: int | None = None
    is_late: bool = False  # only overdue or escalated ones

    @classmethod
    def of(cls, query: Any, person: int | None = None) -> Wanted:
        names = ("show", "q", "beyond", "on", "late")
        given = {name: str(query.get(name, "")).strip().replace("\x00", "")[:200] for name in names}
        is_decided = given["show"] == "decided"
        on = given["on"] if given["on"] in _filters() and not is_decided else ""
        is_late = given["late"] == "1" and not is_decided
        return cls(is_decided, given["q"], given["beyond"], on, person, is_late)

    @property
    def choices(self) -> list[tuple[str, str, bool]]:
        """Return the filters of the open list as name, query string, and whether it is selected."""
        words = {"": "all", **{name: each.text for name, each in _filters().items()}}
        found = [(text, self.link(on=on, late=""), on == self.on and not self.is_late) for on, text in words.items()]
        return [*found, ("overdue or escalated", self.link(on="", late="1"), self.is_late)]

    @property
    def conditions(self) -> dict[Any, Any]:
        late: dict[Any, Any] = {Condition(_LATE): []} if self.is_late else {}
        if not self.on:
            return late
        sql, values = _filters()[self.on].condition(self.person)
        return {Condition(sql): values, **late}

    @property
    def in_orm(self) -> list[RawSQL]:
        """Return the feature's filter as an ORM condition."""
        if not self.on:
            return []
        sql, values = _filters()[self.on].condition(self.person)
        return [RawSQL(f"({sql})", values, output_field=BooleanField())]

    @property
    def here(self) -> str:
        return self.link(beyond=self.beyond)

    def link(self, **change: str) -> str:
        """Return the query string with changes; the page cursor is dropped unless changed."""
        now = {"show": "decided" if self.is_decided else "", "q": self.q, "on": self.on, "late": "1" * self.is_late}
        now |= change
        given = urlencode({name: value for name, value in now.items() if value})
        return f"?{given}" if given else ""


@dataclass(frozen=True, slots=True)
class Listed:
    """A page of items.

    `total` counts the whole list up to `COUNT_TO`; `more` is the next page's query string; `is_cut`: the search was cut
    off and may have more results.
    """

    items: list[Item]
    total: int = 0
    more: str = ""
    is_from_start: bool = True
    wanted: Wanted = field(default_factory=Wanted)
    is_cut: bool = False

    @property
    def is_more_than_counted(self) -> bool:
        return self.total > COUNT_TO or self.is_cut

    @property
    def counted(self) -> int:
        return min(self.total, COUNT_TO)

    @property
    def above(self) -> int:
        """Return how many cases on this page exceed the reader's limit; 0 in a search, whose count includes them."""
        return 0 if self.wanted.q else sum(item.is_above for item in self.items)


def queues_of(held: frozenset[str]) -> list[str]:
    """Return the queues that someone with these roles may decide, in their own right or as a deputy."""
    others = {one.queue for one in stand_ins(held)}
    return [queue for queue, role in QUEUES.items() if role in held or queue in others]


def inbox(
    held: frozenset[str],
    tally: Tally,
    wanted: Wanted = Wanted(),
    *,
    chosen: Approval | None = None,
    limit: int = PAGE,
    is_mine_only: bool = False,
) -> Listed:
    """Return a page of the reader's cases: those of their queues if they are an approver, otherwise all visible ones.

    Open cases are ordered by deadline, decided ones newest first. The list begins at the `chosen` case if the first
    page lacks it. `total` excludes cases above the reader's limit, and so does the list with `is_mine_only`.
    """
    order = DECIDED if wanted.is_decided else OPEN
    if wanted.q:
        return _searched(held, wanted, limit)
    place = opened(wanted.beyond)
    arms = _arms(held, wanted, is_mine_only=is_mine_only)
    rows = _rows(order.ids(arms, limit=limit + 1, beyond=place), wanted)
    total = tally.read(to_count(held, wanted))["inbox"]
    is_from_start = place is None
    if chosen is not None and place is None and len(rows) > limit and chosen.id not in {row.id for row in rows[:limit]}:
        here = _place_of(chosen, rows[limit - 1], wanted)
        if here is not None:
            rows = _rows(order.ids(arms, limit=limit + 1, beyond=here, is_from=True), wanted)
            is_from_start = False
    return _listed(rows, wanted, limit, total, is_from_start, held)


def to_count(held: frozenset[str], wanted: Wanted = Wanted()) -> dict[str, Counted]:
    """Return the list's counts as SQL, for pages that add further counts to the same statement."""
    arms = _arms(held, wanted, is_mine_only=not wanted.is_decided)
    return {"inbox": (DECIDED if wanted.is_decided else OPEN).counted(arms, to=COUNT_TO)}


def _arms(held: frozenset[str], wanted: Wanted, *, is_mine_only: bool = False) -> list[dict[Any, Any]]:
    mine = queues_of(held)
    own = _queue_arms(held, mine, is_within=is_mine_only)
    arms = [*(own or [seen.arm(viewer())]), *_own_cases(held, mine)]
    return [{**arm, **wanted.conditions} for arm in arms]


def _queue_arms(held: frozenset[str], mine: list[str], *, is_within: bool) -> list[dict[Any, Any]]:
    """Return UNION branches for the reader's queues and escalations to them, optionally within their limits."""
    limits = own_limits(held) if is_within else {}
    own = [{"queue": one, **within(one, limits.get(one), {*mine} - {one})} for one in mine]
    return [*own, *({**arm, **within_further(mine, limits)} for arm in _went_to(mine))]


def _own_cases(held: frozenset[str], mine: list[str], *, is_waiting: bool = False) -> list[dict[Any, Any]]:
    """Return UNION branches for the reader's individual cases that are not in the list already.

    With `is_waiting`, only those that wait for the reader are included.
    """
    ids = [one.approval_id for one in own_cases(held) if not is_waiting or one.waits]
    if not ids:
        return []
    if mine or is_waiting:
        not_mine = "NOT (queue = ANY(%s)) AND NOT coalesce(escalated_to && %s::text[], false)"
        return [{Condition(f"id = ANY(%s) AND {not_mine}"): [ids, mine, mine]}]
    who = viewer()
    text, values = seen.is_of_seen("run_id", who)
    return [] if who.sees_all else [{Condition(f"id = ANY(%s) AND NOT ({text})"): [ids, *values]}]


def _went_to(mine: list[str]) -> list[dict[Any, Any]]:
    """Return the UNION branch of cases that other queues escalated to these queues."""
    if not mine:
        return []
    went = Condition("escalated_to IS NOT NULL AND escalated_to && %s::text[] AND NOT (queue = ANY(%s))")
    return [{went: [mine, mine]}]


def _rows(ids: RawSQL, wanted: Wanted) -> list[Approval]:
    approvals = Approval.objects.select_related("run").filter(id__in=ids).annotate(**_annotations())
    return sorted(approvals, key=lambda one: _edge(one, wanted), reverse=wanted.is_decided)


def _place_of(chosen: Approval, last: Approval, wanted: Wanted) -> tuple[datetime, UUID] | None:
    """Return where a list must start to show the chosen case; None if it needn't or can't.

    It needn't if the page that ends with `last` already shows the case. A decided case keeps its place among open ones,
    so that the reader can continue from it.
    """
    if chosen.state == ApprovalState.OPEN and wanted.is_decided:
        return None
    place = _edge(chosen, wanted)
    return place if wanted.is_decided or place > _edge(last, wanted) else None


def _searched(held: frozenset[str], wanted: Wanted, limit: int) -> Listed:
    """Return a page of search results: at most a thousand runs, sorted and counted here."""
    run_ids, is_cut = run_search("q").by_words(wanted.q, {})
    rows: QuerySet[Approval] = Approval.objects.select_related("run").filter(run_id__in=run_ids)
    if mine := queues_of(held):
        own = Q(id__in=[one.approval_id for one in own_cases(held)])
        rows = rows.filter(
            own | Q(queue__in=mine) | Q(escalated_to__overlap=mine)
        )  # search results are already visible
    if wanted.is_decided:
        rows = rows.exclude(state=ApprovalState.OPEN).order_by("-decided_at", "-id")
    else:
        rows = rows.filter(state=ApprovalState.OPEN).order_by("deadline", "id")
    if wanted.is_late:
        rows = rows.filter(Q(escalated_to__isnull=False) | Q(deadline__lt=Now()))
    approvals = list(rows.filter(*wanted.in_orm).annotate(**_annotations()))
    place = opened(wanted.beyond)
    rest = [one for one in approvals if place is None or _is_beyond(one, place, wanted)]
    listed = _listed(rest[: limit + 1], wanted, limit, len(approvals), place is None, held)
    return replace(listed, is_cut=is_cut)


def _is_beyond(one: Approval, place: tuple[datetime, UUID], wanted: Wanted) -> bool:
    here = _edge(one, wanted)
    return here < place if wanted.is_decided else here > place


def _edge(one: Approval, wanted: Wanted) -> tuple[datetime, UUID]:
    return (one.decided_at or one.opened_at if wanted.is_decided else one.deadline), one.id


def _listed(
    rows: Sequence[Approval], wanted: Wanted, limit: int, total: int, is_from_start: bool, held: frozenset[str]
) -> Listed:
    more = wanted.link(beyond=closed(*_edge(rows[limit - 1], wanted))) if len(rows) > limit else ""
    cards: dict[str, dict[str, ToolCard]] = {}
    others = {one.queue: one for one in stand_ins(held) if QUEUES.get(one.queue) not in held}
    own = {one.approval_id: one for one in own_cases(held)}
    inbox_items = shown_of(rows[:limit], held)
    readable_ids = readable(inbox_items)
    staged = [row for row in inbox_items if row.case_id is not None]
    stages = stages_of(staged, []) if staged else {}
    parts = {row.id: _part(stages[row.id], wanted.person) for row in staged}
    items = [_item(row, cards, others, parts.get(row.id, ""), readable_ids, own.get(row.id)) for row in inbox_items]
    if not wanted.is_decided:
        items = _marked(items, held, readable_ids)
    return Listed(items, total, more, is_from_start, wanted)


def _marked(items: list[Item], held: frozenset[str], readable_ids: frozenset[UUID]) -> list[Item]:
    """Mark cases above the reader's limit and repeated requests, and add the lines that features contribute."""
    limits, mine = own_limits(held), queues_of(held)
    repeated = repeats_of([item.approval for item in items if item.approval.id in readable_ids], held)

    def is_beyond(item: Item) -> bool:
        there = [queue for queue in asked_at(item.approval) if queue in mine]
        if not there or not all(queue in limits for queue in there) or (item.own and item.own.what == "decide"):
            return False
        plan = plan_of(item.approval)
        return all(is_above(plan, limits[queue]) for queue in there)

    lines = [
        make([item.approval for item in items]) for make in features.parts_of_all(lambda each: each.approval_lines)
    ]
    return [
        replace(
            item,
            is_above=is_beyond(item),
            repeats=repeated.get(item.approval.id, ()),
            lines=[by_id[item.approval.id] for by_id in lines if item.approval.id in by_id],
        )
        for item in items
    ]


def _item(
    approval: Approval,
    cards: dict[str, dict[str, ToolCard]],
    others: dict[str, StandsIn],
    part: str,
    readable_ids: frozenset[UUID],
    own: OwnCase | None,
) -> Item:
    is_read, graph_id = approval.id in readable_ids, approval.run.graph_id
    plan = plan_of(approval) if is_read else {}
    if graph_id not in cards:
        cards[graph_id] = cards_by_name(graph_id)
    tool = cards[graph_id].get(approval.tool)
    about, headline = subject(plan.get("arguments")) or graph_id, str(plan.get("headline") or "")
    if not is_read:
        about = approval.run.about or graph_id
    return Item(
        approval,
        title_of(approval, tool),
        asks_of(approval, tool),
        headline,
        about,
        others.get(approval.queue),
        part,
        own,
    )


def _part(stages: list[StageShown], person: int | None) -> str:
    """Return a vote's progress, such as `stage 2 of 2: 1 of 2 approved`, and whether `person` has already voted."""
    now = next((each for each in stages if each.state == NOW), None)
    if now is None:
        return ""
    stage = f"stage {now.number} of {len(stages)}: " if len(stages) > 1 else ""
    is_heard = person is not None and any(vote.row.person == person for each in stages for vote in each.votes)
    return f"{stage}{now.yes} of {now.quorum} approved{'; you voted' if is_heard else ''}"


@badge("inbox")
def waiting_for(held: frozenset[str]) -> Counted | None:
    """Count the cases that wait for a reader and are within their limits; None if the reader may decide nothing."""
    queues = queues_of(held)
    arms = [*_queue_arms(held, queues, is_within=True), *_own_cases(held, queues, is_waiting=True)]
    if not arms:
        return None
    gates = OPEN.counted(arms, to=BADGE_TO)
    return Counted(BADGE_TO, [*gates.arms, *Counted.of(open_for(held), to=BADGE_TO).arms])
