"""The delivery log, and resending by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Q

from approvals.notices.kinds import KINDS
from approvals.notices.recipients import people_by_id
from approvals.outbox import Delivery
from approvals.queues.who import as_admin
from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, NotFound
from ledger.web.roles import AUDITOR, OPERATOR

PAGE = 50
ENDED = (Delivery.State.SENT, Delivery.State.NEEDLESS, Delivery.State.DEAD)


class NotReplayable(DurableAgentsError):
    """The delivery is still in progress, or not a message."""

    status, code, title = 409, "illegal-state", "Can't be sent again now"


@dataclass(frozen=True, slots=True)
class Shown:
    """A delivery for pages and the API. `to` is the name of a person or channel, never an address."""

    row: Delivery
    to: str

    @property
    def label(self) -> str:
        kind = KINDS.get(self.row.notice.kind)
        return kind.label if kind else str(self.row.notice.kind)

    @property
    def may_be_replayed(self) -> bool:
        return self.row.state in ENDED and self.row.by != Delivery.By.BROWSER

    @property
    def last(self) -> dict[str, Any]:
        return self.row.tries[-1] if self.row.tries else {}


def deliveries(
    *,
    state: str = "",
    by: str = "",
    person: int | None = None,
    beyond: tuple[datetime, int] | None = None,
    limit: int = PAGE,
) -> list[Shown]:
    """Return the newest matching deliveries, one more than `limit` if there are more."""
    rows = Delivery.objects.select_related("notice", "channel", "channel__queue").order_by("-made_at", "-id")
    if state:
        rows = rows.filter(state=state)
    if by:
        rows = rows.filter(by=by)
    if person is not None:
        rows = rows.filter(person=person)
    if beyond is not None:
        at, number = beyond
        rows = rows.filter(Q(made_at__lte=at) & (Q(made_at__lt=at) | Q(pk__lt=number)))
    return shown(list(rows[: limit + 1]))


def shown(rows: Sequence[Delivery]) -> list[Shown]:
    """Add the accounts' current names, in one query."""
    people = people_by_id({row.person for row in rows if row.person is not None})
    return [Shown(row, _to(row, people)) for row in rows]


def _to(row: Delivery, people: dict[int, Any]) -> str:
    if row.channel is not None:
        return str(row.channel.name)
    user = people.get(row.person or 0)
    return user.get_username() if user is not None else f"account {row.person}"


@transaction.atomic
def replay(delivery_id: int, *, by: Actor, justification: str) -> Delivery:
    """Send a delivery again as a new message, under current rights and state. Raises NotFound, NotReplayable,
    Forbidden, JustificationRequired."""
    if by.role != OPERATOR:
        by = as_admin(by, "have a message sent again, who is no operator")
    why = justified("notice_replay", justification)
    row = Delivery.objects.select_for_update().filter(pk=delivery_id).first()
    if row is None:
        raise NotFound("delivery", delivery_id)
    if row.by == Delivery.By.BROWSER:
        raise NotReplayable("Browser notifications can't be sent again.")
    if row.state not in ENDED:
        raise NotReplayable("The delivery is still in progress.")
    before, now = {"state": str(row.state), "note": row.note}, database_now()
    row.state, row.message, row.note, row.ended_at = Delivery.State.WAITING, None, "", None
    row.due_at, row.is_grouped = now, False
    row.save(update_fields=["state", "message", "note", "ended_at", "due_at", "is_grouped"])
    whom = _to(row, people_by_id([row.person] if row.person is not None else []))
    acted(
        "notice_replay",
        by=by,
        subject=f"delivery {row.pk} of {row.notice.kind} to {whom}",
        justification=why,
        before=before,
        after={"state": str(row.state)},
    )
    return row


def may_read(held: frozenset[str]) -> bool:
    return bool(held & {OPERATOR, AUDITOR})
