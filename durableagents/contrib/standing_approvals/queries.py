"""Read standing approvals for display: those of the reader's queues, or all.

Of the calls' arguments, only the names of the fixed fields are shown."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import connection
from pydantic import Field

from approvals.brief import ApprovalDetail, plan_of
from approvals.guards import ApprovalPanel
from approvals.models import Approval
from approvals.policy import No, Sum, in_ones_own_right
from approvals.queue_models import Queue
from approvals.queues.sight import readable
from approvals.queues.who import is_admin
from durableagents.contrib.standing_approvals.reading import (
    MAX_USES,
    StandingApproval,
    held_in,
    select_for_list,
    select_whole,
)
from durableagents.contrib.standing_approvals.terms import bounds_in, same_call_in
from ledger.errors import NotFound
from ledger.web.fields import ActorName, RoleName, Rows
from ledger.web.roles import AUDITOR, OPERATOR, roles
from ledger.web.shapes import Page, Shape
from runs.engine.gating.fields import subject
from runs.journal.asked.queues import QUEUES

PAGE = 50


class UseRow(Shape):
    """A use of a standing approval."""

    n: int = Field(description="Number of the use, from 1.")
    approval_id: UUID = Field(description="Approval that it answered.")
    run_id: UUID = Field(description="Run whose call was approved.")
    amount: str | None = Field(description="Amount of the call; null if it names none.")
    at: datetime = Field(description="Time of the use.")


class EndRow(Shape):
    """The end of a standing approval."""

    by: ActorName
    role: RoleName
    reason: str = Field(description="Justification for ending it.")
    at: datetime = Field(description="Time when it ended.")


class GrantRow(Shape):
    """A standing approval: further identical calls are approved without another decision."""

    id: int = Field(description="Id of the standing approval.")
    approval_id: UUID = Field(description="The approval whose decision included it.")
    run_id: UUID = Field(description="Run of that approval.")
    queue: str = Field(description="Queue that gave it.")
    tool: str = Field(description="Tool whose calls it covers.")
    agent: str = Field(description="Agent whose calls it covers.")
    scope: str = Field(description="agent: all its runs; run: that run only.")
    fields: list[str] = Field(description="Arguments that must be identical.")
    times: int = Field(description="Number of calls that it covers.")
    used: int = Field(description="Number of calls approved so far.")
    sum: str | None = Field(description="Total amount of the calls; null: the calls name no amount.")
    spent: str | None = Field(description="Total amount of the calls approved so far; null if `sum` is null.")
    currency: str = Field(description="Currency of `sum` and `spent`, an ISO 4217 code; empty: no amount.")
    until: datetime = Field(description="Time when it expires.")
    by: ActorName
    role: RoleName
    reason: str = Field(description="Justification of the decision that included it.")
    at: datetime = Field(description="Time when it was given.")
    state: str = Field(description="active, used_up, over, taken_back, or not_authentic (it lets nothing through).")
    end: EndRow | None = Field(description="Who ended it early; null if nobody did.")
    uses: list[UseRow] = Field(description="Newest first; at most 50.")

    @property
    def sum_words(self) -> str:
        """Return how much of the total amount is used, as text; empty if there are no amounts."""
        if self.sum is None or self.spent is None or self.state == "not_authentic":
            return ""
        return f"{Sum(Decimal(self.spent), self.currency)} of {Sum(Decimal(self.sum), self.currency)}"


class GrantPage(Page):
    results: Rows[GrantRow]


def find_page(
    user: Any, *, queue: str = "", beyond: tuple[datetime, int] | None = None, limit: int = PAGE
) -> list[GrantRow]:
    """Return standing approvals, newest first.

    Only the newest uses of each are checked for authenticity. The page of a single standing approval checks all of its
    uses."""
    seen = _queues_of(user)
    conditions = ["true"]
    values: list[Any] = []
    if seen is not None:
        conditions.append("(g.queue = ANY(%s) OR g.person = %s)")
        values += [sorted(seen), user.pk]
    if queue:
        conditions.append("g.queue = %s")
        values.append(queue)
    if beyond is not None:
        conditions.append("(g.at, g.id) < (%s, %s)")
        values += beyond
    with connection.cursor() as cursor:
        cursor.execute(select_for_list(" AND ".join(conditions)), [*values, limit])
        return [_row(held_in(value)) for (value,) in cursor.fetchall()]


def find_one(grant_id: int, user: Any) -> tuple[GrantRow, bool]:
    """Return a standing approval, and whether the reader may revoke it.

    Raises NotFound, even if it exists but the reader may not see it."""
    seen = _queues_of(user)
    with connection.cursor() as cursor:
        cursor.execute(select_whole("g.id = %s"), [grant_id, 1])
        found = [held_in(value) for (value,) in cursor.fetchall()]
    if not found or (seen is not None and found[0].row.queue not in seen and found[0].row.person != user.pk):
        raise NotFound("standing grant", grant_id)
    (held,) = found
    own, row = roles(user), _row(held)
    may_revoke = bool({QUEUES.get(row.queue), OPERATOR} & own) or held.row.person == user.pk or is_admin(user)
    has_effect = row.state == "active" or (held.has_unused and (held.end is None or not held.end.is_authentic))
    return row, may_revoke and has_effect


def _queues_of(user: Any) -> frozenset[str] | None:
    """Return the queues whose standing approvals a user may see; None for all queues."""
    held = roles(user)
    if held & {OPERATOR, AUDITOR} or is_admin(user):
        return None
    return frozenset(name for name, role in QUEUES.items() if role in held)


def find_parties(grants: Sequence[GrantRow]) -> dict[UUID, str]:
    """Return what or whom the original case of each standing approval concerns, by the id of the case.

    If the viewer can't read the case, the subject of the run is returned instead."""
    cases = list(Approval.objects.filter(pk__in=[each.approval_id for each in grants]).select_related("run"))
    read = readable(cases)
    return {
        case.pk: subject(plan_of(case).get("arguments")) if case.pk in read else str(case.run.about) for case in cases
    }


def _row(held: StandingApproval) -> GrantRow:
    row, named = held.row, held.row.fields
    return GrantRow.of(
        row,
        id=row.pk,
        scope="run" if row.is_of_run else "agent",
        fields=[each for each in named if isinstance(each, str)] if isinstance(named, list) else [],
        times=row.count,
        used=held.used,
        sum=None if row.most is None else format(row.most, "f"),
        spent=None if row.most is None else format(held.spent, "f"),
        state=_state(held),
        end=None if held.end is None else EndRow.of(held.end),
        uses=[
            UseRow.of(use, amount=None if use.amount is None else format(use.amount, "f"))
            for use in [*held.uses][::-1][:MAX_USES]
        ],
    )


def _state(held: StandingApproval) -> str:
    if not held.is_authentic or (held.end is not None and not held.end.is_authentic):
        return "not_authentic"
    if held.end is not None:
        return "taken_back"
    if held.now >= held.row.until:
        return "over"
    return "used_up" if held.used >= held.row.count else "active"


# --- for pages of the core


def queue_panel(queue: Queue) -> dict[str, Any]:
    """Return the values for a queue's page."""
    bounds = bounds_in(queue.again) if queue.is_authentic else None
    most = "" if bounds is None or bounds.most is None else str(Sum(bounds.most, queue.currency))
    return {"again": bounds, "again_most": most}


def approval_panels(opened: ApprovalDetail) -> list[ApprovalPanel]:
    """Return the fields for the decision's form, if the reader may give a standing approval.

    This is only for display; the decision is checked again."""
    if not opened.is_open or opened.facts.queue is None or isinstance(in_ones_own_right(opened.facts), No):
        return []
    bounds = bounds_in(opened.facts.queue.again)
    if bounds is None or opened.wanted.as_json():
        return []
    try:
        same_call = same_call_in(opened.plan)
    except ValueError:
        return []
    most = str(Sum(bounds.most, same_call.amount.currency)) if same_call.amount and bounds.most is not None else ""
    fields = {"bounds": bounds, "asked": same_call, "most": most}
    return [ApprovalPanel("standing_approvals/decision.html", fields, place="advance")]


def bounds_text(value: Any) -> str:
    """Return a queue's limits of standing approvals as text. Raises ValueError."""
    if value is None:
        return ""
    bounds = bounds_in(value)
    if bounds is None:
        raise ValueError("no limits of standing approvals")
    in_all = "" if bounds.most is None else f", {bounds.most:,f} in total"
    calls, days = (f"{n} {unit}{'' if n == 1 else 's'}" for n, unit in ((bounds.times, "call"), (bounds.days, "day")))
    return f"at most {calls} in {days}{in_all}"
