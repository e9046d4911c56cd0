"""Rows of shared budgets for the API and pages, with the current use and the waiting calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import F, Q, Window
from django.db.models.expressions import RawSQL
from django.db.models.functions import RowNumber
from pydantic import Field

from durableagents.contrib.limits.models import BudgetNotice, BudgetPeriod, SharedBudget
from durableagents.contrib.limits.shared_budgets import amount_for_people
from ledger.errors import NotFound
from ledger.web.fields import ActorName, RunId, Slot, Zone
from ledger.web.seeing.viewers import viewer
from ledger.web.shapes import Shape
from runs import seen
from runs.models import Run, Wait

MAX_WAITS = 10  # waiting calls listed in a row
MAX_PERIODS = 3  # past periods listed in a row
MAX_COUNTED = 1000  # waiting calls are counted up to this number
# A meter is advanced by the first call of a period. Until that call, the meter is shown as if it had already been
# advanced.
_STATE = """
    WITH meters AS (
        SELECT m.*, m.ends_at <= statement_timestamp() AND m.is_on AS is_over
        FROM runs_poolmeter m WHERE m.pool_id = ANY(%s)
    )
    SELECT m.pool_id, m.most, CASE WHEN m.is_over THEN 0 ELSE m.used END,
           CASE WHEN m.is_over THEN 0 ELSE m.reserved END,
           coalesce(t.starts_at, m.starts_at), coalesce(t.ends_at, m.ends_at),
           CASE WHEN NOT m.is_over THEN m.warned_at END, w.waiting, u.username
    FROM meters m JOIN runs_pool p ON p.id = m.pool_id
    LEFT JOIN LATERAL runs_pool_period(m.period, m.zone, statement_timestamp()) t ON m.is_over
    LEFT JOIN auth_user u ON p.scope = 'person' AND u.id::text = p."of"
    CROSS JOIN LATERAL (
        SELECT count(*) AS waiting FROM (
            SELECT 1 FROM runs_wait
            WHERE kind = 'pool' AND resolved_at IS NULL AND detail ->> 'pool' = m.pool_id::text LIMIT %s
        ) few
    ) w"""
_FIRST_WAITS = """
    SELECT w.id FROM unnest(%s::bigint[]) AS p (id) CROSS JOIN LATERAL (
        SELECT id FROM runs_wait WHERE kind = 'pool' AND resolved_at IS NULL AND detail ->> 'pool' = p.id::text
        ORDER BY opened_at, id LIMIT %s
    ) w"""
_OF_RUN = "SELECT unnest(runs_pools_of(%s, NULL)) UNION SELECT pool_id FROM runs_poolcharge WHERE run_id = %s"
# Recursive: the query finds each budget by one index lookup, instead of reading all waiting calls.
_WAITED_FOR = """
    WITH RECURSIVE each(pool) AS (
        (SELECT detail ->> 'pool' FROM runs_wait WHERE kind = 'pool' AND resolved_at IS NULL ORDER BY 1 LIMIT 1)
        UNION ALL
        SELECT (SELECT w.detail ->> 'pool' FROM runs_wait w WHERE w.kind = 'pool' AND w.resolved_at IS NULL
                AND w.detail ->> 'pool' > each.pool ORDER BY 1 LIMIT 1)
        FROM each WHERE each.pool IS NOT NULL)
    SELECT pool::bigint FROM each WHERE pool ~ '^[0-9]{1,18}$'"""
SCOPES = {
    "all": "every run",
    "tag": "runs with the tag",
    "agent": "runs of the agent",
    "person": "runs started by a person",
    "provider": "models of the provider",
}
RESOURCES = {
    "usd": "US dollars",
    "tokens_in": "tokens in",
    "tokens_out": "tokens out",
    "model_calls": "model calls",
    "tool_calls": "tool calls",
}


class BudgetWaitRow(Shape):
    """A call that waits until a shared budget has room for it."""

    run_id: RunId
    graph_id: str = Field(description="Agent and version of the run.")
    slot: Slot
    wanted: str | int = Field(description="Amount that the call needs.")
    since: datetime = Field(description="Time since which it waits.")
    deadline: datetime = Field(description="If the call is not admitted by this time, its run ends as cancelled.")


class BudgetPeriodRow(Shape):
    """A past period of a shared budget."""

    starts_at: datetime = Field(description="Start of the period.")
    ends_at: datetime = Field(description="End of the period.")
    limit: str | int = Field(description="Limit of the period.")
    used: str | int = Field(description="Amount used in the period.")
    reserved: str | int = Field(description="Amount still reserved in the period.")


class BudgetNoticeRow(Shape):
    """A notice sent in this period: a warning at 80 percent of the limit, or calls that have to wait."""

    kind: BudgetNotice.Kind = Field(description="Type of the notification.")
    at: datetime = Field(description="Time of the notification.")
    used: str | int = Field(description="Amount used at that time.")
    reserved: str | int = Field(description="Amount reserved at that time.")
    limit: str | int = Field(description="Limit at that time.")


class SharedBudgetRow(Shape):
    """A shared budget with its use in the current period and the calls that wait for room in it.

    Dollars are strings, other amounts numbers."""

    id: int = Field(description="Id of the shared budget.")
    name: str = Field(description="Name of the shared budget.")
    scope: SharedBudget.Scope = Field(description="Type of the scope.")
    whose: str = Field(description="Name of the tag, agent, person or provider; empty for all runs.")
    resource: str = Field(description="Resource that it limits.")
    period: SharedBudget.Period = Field(description="Length of a period.")
    zone: Zone
    limit: str | int = Field(description="Limit per period.")
    used: str | int = Field(description="Amount used in this period.")
    reserved: str | int = Field(description="Amount reserved for calls without a recorded outcome.")
    left: str | int = Field(description="Amount neither used nor reserved.")
    starts_at: datetime = Field(description="Start of this period.")
    refills_at: datetime = Field(description="Start of the next period.")
    warned_at: datetime | None = Field(description="Time of this period's warning; null: none was sent.")
    waiting: int = Field(description="Number of calls that wait for it, counted up to 1,000.")
    waiting_first: list[BudgetWaitRow] = Field(description="Calls next in line.")
    notices: list[BudgetNoticeRow] = Field(description="Notifications of this period.")
    last: list[BudgetPeriodRow] = Field(description="The latest past periods, newest first.")
    set_by: ActorName
    made_at: datetime = Field(description="Time of creation.")
    off_at: datetime | None = Field(description="Time when it was switched off; null: it is active.")

    def _with_unit(self, amount: str | int) -> str:
        return f"${amount}" if self.resource == "usd" else f"{amount:,}"

    @property
    def limit_text(self) -> str:
        return self._with_unit(self.limit)

    @property
    def used_text(self) -> str:
        return self._with_unit(self.used)

    @property
    def reserved_text(self) -> str:
        return self._with_unit(self.reserved) if Decimal(self.reserved) else ""

    @property
    def last_text(self) -> str:
        """Return the use in the previous period as text, if there was one."""
        return f"{self._with_unit(self.last[0].used)} of {self._with_unit(self.last[0].limit)}" if self.last else ""

    @property
    def percent(self) -> int:
        limit = Decimal(self.limit)
        return min(100, int((Decimal(self.used) + Decimal(self.reserved)) * 100 // limit)) if limit else 100

    @property
    def too_large(self) -> int:
        """Return how many of the listed waiting calls need more than the limit, so that they fit in no period."""
        return sum(Decimal(wait.wanted) > Decimal(self.limit) for wait in self.waiting_first)

    @property
    def shared_by(self) -> str:
        return SCOPES.get(str(self.scope), str(self.scope))

    @property
    def resource_name(self) -> str:
        return RESOURCES.get(self.resource, self.resource)

    @property
    def tone(self) -> str:
        return "bad" if self.waiting else "wait" if self.warned_at else "run"

    @property
    def state(self) -> str:
        if self.off_at is not None:
            return "off"
        return "calls wait" if self.waiting else "nearly used up" if self.warned_at else "open"


def list_budgets(*, limit: int, after: int | None = None) -> list[SharedBudget]:
    """Return active shared budgets, newest first, starting after the given one."""
    rows = SharedBudget.objects.select_related("meter").filter(_visible(), off_at__isnull=True).order_by("-id")
    return list((rows if after is None else rows.filter(pk__lt=after))[:limit])


def _visible() -> Q:
    """Return the condition for budgets the viewer may see. Other people's budgets would reveal their spending."""
    who = viewer()
    if who.sees_all:
        return Q()
    of_tags = Q(scope=SharedBudget.Scope.TAG, of__in=sorted(who.tags))
    return Q(scope=SharedBudget.Scope.PERSON, of=str(who.person)) | of_tags


def find_visible(budget_id: int) -> SharedBudget:
    """Return a shared budget that the viewer may see. Raises NotFound."""
    found = SharedBudget.objects.filter(_visible(), pk=budget_id).first()
    if found is None:
        raise NotFound("shared budget", budget_id)
    return found


def row_of(budget: SharedBudget) -> SharedBudgetRow:
    return rows_of([budget])[0]


def rows_of(budgets: Sequence[SharedBudget], *, has_past: bool = True) -> list[SharedBudgetRow]:
    """Return the rows of shared budgets, using four queries, or two without past periods and notices."""
    if not budgets:
        return []
    ids = [budget.pk for budget in budgets]
    with connection.cursor() as cursor:
        cursor.execute(_STATE, [ids, MAX_COUNTED])
        states = {row[0]: row[1:] for row in cursor.fetchall()}
    waits = _first_waits([budget_id for budget_id, row in states.items() if row[6]])
    past, notices = _past(ids, {budget_id: row[3] for budget_id, row in states.items()}) if has_past else ({}, {})
    return [
        _row(budget, states[budget.pk], waits[budget.pk], past.get(budget.pk, []), notices.get(budget.pk, []))
        for budget in budgets
    ]


def _row(
    budget: SharedBudget,
    state: tuple[Any, ...],
    waits: list[Wait],
    past: list[BudgetPeriod],
    budget_notices: list[BudgetNotice],
) -> SharedBudgetRow:
    most, used, reserved, starts_at, refills_at, warned_at, waiting, person = state

    def amount(number: int) -> str | int:
        return amount_for_people(budget.resource, number)

    def amounts(row: BudgetPeriod | BudgetNotice) -> dict[str, str | int]:
        return {"used": amount(row.used), "reserved": amount(row.reserved), "limit": amount(row.most)}

    return SharedBudgetRow.of(
        budget,
        whose=person or budget.of,
        resource="usd" if budget.resource == SharedBudget.Resource.USD else str(budget.resource),
        limit=amount(most),
        used=amount(used),
        reserved=amount(reserved),
        left=amount(max(0, most - used - reserved)),
        starts_at=starts_at,
        refills_at=refills_at,
        warned_at=warned_at,
        waiting=waiting,
        waiting_first=[
            BudgetWaitRow.of(wait, graph_id=wait.run.graph_id, wanted=amount(_wanted(wait)), since=wait.opened_at)
            for wait in waits
        ],
        notices=[BudgetNoticeRow.of(row, **amounts(row)) for row in budget_notices],
        last=[BudgetPeriodRow.of(row, **amounts(row)) for row in past],
    )


def _wanted(wait: Wait) -> int:
    wanted = wait.detail.get("wanted") if isinstance(wait.detail, dict) else None
    return wanted if isinstance(wanted, int) else 0


def _past(
    ids: Sequence[int], began: Mapping[int, datetime]
) -> tuple[dict[int, list[BudgetPeriod]], dict[int, list[BudgetNotice]]]:
    past, notices = defaultdict[int, list[BudgetPeriod]](list), defaultdict[int, list[BudgetNotice]](list)
    place = Window(RowNumber(), partition_by=F("budget_id"), order_by=F("starts_at").desc())
    periods = BudgetPeriod.objects.filter(budget__in=ids).annotate(place=place).filter(place__lte=MAX_PERIODS)
    for period in periods.order_by("-starts_at"):
        past[period.budget_id].append(period)
    for notice in BudgetNotice.objects.filter(budget__in=ids, starts_at__in=set(began.values())).order_by("id"):
        if notice.starts_at == began[notice.budget_id]:
            notices[notice.budget_id].append(notice)
    return past, notices


def _first_waits(ids: Sequence[int]) -> defaultdict[int, list[Wait]]:
    found = defaultdict[int, list[Wait]](list)
    if not ids:
        return found
    chosen = RawSQL(_FIRST_WAITS, [list(ids), MAX_WAITS])
    waits = Wait.objects.select_related("run").filter(seen.fits(viewer()), pk__in=chosen)
    for wait in waits.order_by("opened_at", "id"):
        found[int(wait.detail["pool"])].append(wait)
    return found


def with_waiting_calls() -> list[SharedBudgetRow]:
    """Return the shared budgets for which calls are waiting."""
    if not Wait.objects.filter(kind=Wait.Kind.POOL, resolved_at__isnull=True).exists():
        return []
    waited_for = Q(meter__gate_at__isnull=False) | Q(pk__in=RawSQL(_WAITED_FOR, []))
    budgets = SharedBudget.objects.filter(_visible()).filter(waited_for).order_by("id")
    return [row for row in rows_of(list(budgets)) if row.waiting]


def of_run(run_id: UUID, *, has_past: bool = True) -> list[SharedBudgetRow]:
    """Return the shared budgets that cover a run or were charged for it.

    Budgets of providers are included only if the run used their models."""
    budgets = SharedBudget.objects.filter(_visible(), pk__in=RawSQL(_OF_RUN, [run_id, run_id])).order_by("id")
    return rows_of(list(budgets), has_past=has_past)


def run_panel(run: Run, head: Any, _: Any) -> tuple[str, Any] | None:
    """Return the panel of a run's page, if the run has shared budgets."""
    rows = of_run(run.pk, has_past=False) if getattr(head, "has_shared_budgets", False) else []
    return ("limits/run_panel.html", rows) if rows else None


def waiting_panel() -> tuple[str, Any] | None:
    """Return the panel for the page of runs that need an operator, if calls wait for a shared budget."""
    rows = with_waiting_calls()
    return ("limits/waiting_panel.html", rows) if rows else None
