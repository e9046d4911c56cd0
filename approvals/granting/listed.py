"""Standing approvals for people: those of their queues, or all. Of the calls only the names of the fixed fields are
shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import connection

from approvals.brief import plan_of
from approvals.granting.rows import MAX_USES, Held, held_in, listed_by, one_of
from approvals.grants import bounds_in
from approvals.models import Approval
from approvals.policy import Sum
from approvals.queue_models import Queue
from approvals.queues.sight import readable
from approvals.queues.who import is_admin
from ledger.errors import NotFound
from ledger.web.roles import AUDITOR, OPERATOR, roles
from runs.engine.gating.fields import subject
from runs.journal.asked.queues import QUEUES

PAGE = 50
ALL = None  # queues are visible


@dataclass(frozen=True, slots=True)
class Shown:
    """A standing approval, and whether the reader may take it back."""

    held: Held
    may_end: bool
    about: str = ""  # the party of its original case

    @property
    def row(self) -> Any:
        return self.held.row

    @property
    def state(self) -> str:
        """Return active, taken_back, used_up, over or not_authentic."""
        held = self.held
        if not held.is_authentic or (held.end is not None and not held.end.is_authentic):
            return "not_authentic"
        if held.end is not None:
            return "taken_back"
        if held.now >= held.row.until:
            return "over"
        return "used_up" if held.used >= held.row.count else "active"

    @property
    def is_active(self) -> bool:
        return self.state == "active"

    @property
    def sum_words(self) -> str:
        """Return the amount used of the sum; empty without amounts or if forged."""
        row = self.held.row
        if row.most is None or not self.held.is_authentic:
            return ""
        return f"{Sum(self.held.spent, row.currency)} of {Sum(row.most, row.currency)}"

    @property
    def fields(self) -> list[str]:
        """Return the arguments that must be the same; empty if unreadable."""
        named = self.held.row.fields
        return [each for each in named if isinstance(each, str)] if isinstance(named, list) else []

    @property
    def uses(self) -> Sequence[Any]:
        """Return the newest MAX_USES uses, newest first."""
        return [*self.held.uses][::-1][:MAX_USES]


def queues_of(user: Any) -> frozenset[str] | None:
    """Return the queues whose standing approvals a user sees; None: all."""
    held = roles(user)
    if held & {OPERATOR, AUDITOR} or is_admin(user):
        return ALL
    return frozenset(name for name, role in QUEUES.items() if role in held)


def page(user: Any, *, queue: str = "", beyond: tuple[datetime, int] | None = None, limit: int = PAGE) -> list[Shown]:
    """Return standing approvals, newest first. Only their newest uses are authenticated: its own page has them all."""
    seen = queues_of(user)
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
        cursor.execute(listed_by(" AND ".join(conditions)), [*values, limit])
        return [_shown(held_in(told), user) for (told,) in cursor.fetchall()]


def one(grant_id: int, user: Any) -> Shown:
    """Return one standing approval. Raises NotFound, also if the reader may not see it."""
    seen = queues_of(user)
    with connection.cursor() as cursor:
        cursor.execute(one_of("g.id = %s"), [grant_id, 1])
        found = [held_in(told) for (told,) in cursor.fetchall()]
    if not found or (seen is not None and found[0].row.queue not in seen and found[0].row.person != user.pk):
        raise NotFound("standing grant", grant_id)
    return _shown(found[0], user)


def with_parties(grants: Sequence[Shown]) -> list[Shown]:
    """Add the party of each case, for unreadable cases the run's."""
    cases = list(Approval.objects.filter(pk__in=[each.row.approval_id for each in grants]).select_related("run"))
    read = readable(cases)
    about = {
        case.pk: subject(plan_of(case).get("arguments")) if case.pk in read else str(case.run.about) for case in cases
    }
    return [replace(each, about=about.get(each.row.approval_id, "")) for each in grants]


def bounds_of(queue: Queue) -> dict[str, Any]:
    bounds = bounds_in(queue.again) if queue.is_authentic else None
    most = "" if bounds is None or bounds.most is None else str(Sum(bounds.most, queue.currency))
    return {"again": bounds, "again_most": most}


def _shown(held: Held, user: Any) -> Shown:
    own, role = roles(user), QUEUES.get(held.row.queue)
    may = role in own or OPERATOR in own or held.row.person == user.pk or is_admin(user)
    shown = Shown(held, may)
    is_open = held.has_unused if held.end is None else held.has_unused and not held.end.is_authentic
    return replace(shown, may_end=may and (shown.is_active or is_open))
