"""The delivery log, and metrics of notices that are not sent yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from uuid import UUID

from django.contrib.auth.models import User
from django.db import connection
from django.db.models import Q
from prometheus_client.core import GaugeMetricFamily, Metric
from pydantic import Field

from durableagents.contrib.notifications.kinds import KINDS
from durableagents.contrib.notifications.models import Delivery
from ledger.web.fields import Rows
from ledger.web.roles import AUDITOR, OPERATOR
from ledger.web.shapes import Page, Shape

PAGE = 50
ENDED = (Delivery.State.SENT, Delivery.State.NEEDLESS, Delivery.State.DEAD)


class TryRow(Shape):
    """One attempt to send. The outcome `unknown` means that the worker was lost before it recorded a result."""

    at: str = Field(description="Time of the attempt.")
    outcome: str = Field(description="unknown, sent, failed, refused or needless.")
    why: str = Field(description="Reason for a failure; empty: none.")
    message: str = Field(description="Message id of the attempt.")


class DeliveryRow(Shape):
    """One notification to one recipient over one channel."""

    id: int = Field(description="Id of the delivery.")
    kind: str = Field(description="Kind of the notification.")
    about: str = Field(description="Subject without an id of its own, such as an agent's version; empty: none.")
    by: Delivery.By = Field(description="Medium over which it is delivered.")
    to: str = Field(description="A person's or channel's name, never an address.")
    state: Delivery.State = Field(description="State of the delivery.")
    note: str = Field(description="Why it was not sent, or not yet; empty if there is nothing to note.")
    run_id: UUID | None = Field(description="Run of the notification; null if it has none.")
    approval_id: UUID | None = Field(description="Approval of the notification; null if it has none.")
    message: UUID | None = Field(description="Message id in the headers. A repeat has the same id.")
    due_at: datetime = Field(description="Time when it is or was due.")
    made_at: datetime = Field(description="Time of creation.")
    ended_at: datetime | None = Field(description="Time when it was sent or given up; null while it is open.")
    tries: list[TryRow] = Field(description="Attempts to deliver it, in order.")

    @property
    def label(self) -> str:
        """Return the kind's name in the console."""
        return KINDS[self.kind].label if self.kind in KINDS else self.kind

    @property
    def can_be_replayed(self) -> bool:
        return self.state in ENDED and self.by != Delivery.By.BROWSER


class DeliveryPage(Page):
    results: Rows[DeliveryRow]


def find_deliveries(
    *,
    state: str = "",
    by: str = "",
    person: int | None = None,
    beyond: tuple[datetime, int] | None = None,
    limit: int = PAGE,
) -> list[DeliveryRow]:
    """Return the newest matching deliveries. There is one more than `limit` if the list continues."""
    rows = Delivery.objects.select_related("notice", "channel").order_by("-made_at", "-id")
    if state:
        rows = rows.filter(state=state)
    if by:
        rows = rows.filter(by=by)
    if person is not None:
        rows = rows.filter(person=person)
    if beyond is not None:
        at, number = beyond
        rows = rows.filter(Q(made_at__lte=at) & (Q(made_at__lt=at) | Q(pk__lt=number)))
    return delivery_rows(list(rows[: limit + 1]))


def delivery_rows(rows: Sequence[Delivery]) -> list[DeliveryRow]:
    """Return rows for pages and the API. The current names of the accounts are read with one query."""
    people = User.objects.in_bulk({row.person for row in rows if row.person is not None})
    return [
        DeliveryRow.of(
            row,
            kind=row.notice.kind,
            about=row.notice.about,
            to=_name_of(row, people),
            run_id=row.notice.run_id,
            approval_id=row.notice.approval_id,
            tries=[TryRow.of(None, **{name: each.get(name, "") for name in TryRow.model_fields}) for each in row.tries],
        )
        for row in rows
    ]


def _name_of(row: Delivery, people: dict[int, User]) -> str:
    if row.channel is not None:
        return str(row.channel.name)
    user = people.get(row.person or 0)
    return user.get_username() if user is not None else f"account {row.person}"


def may_read_log(held: frozenset[str]) -> bool:
    """Return whether holders of these roles may read everybody's deliveries."""
    return bool(held & {OPERATOR, AUDITOR})


def read_metrics() -> Iterator[Metric]:
    """Yield the number of due notices and the age of the oldest one. Raises DatabaseError."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*), coalesce(extract(epoch FROM statement_timestamp() - min(due_at)), 0)::float8 "
            "FROM approvals_notice WHERE state = 'new' AND due_at <= statement_timestamp()"
        )
        count, oldest_seconds = cursor.fetchone()
    yield GaugeMetricFamily("durableagents_notices_pending", "Notifications that are due but not sent.", value=count)
    yield GaugeMetricFamily(
        "durableagents_notice_oldest_seconds",
        "Time for which the oldest of these has been due; 0 if there are none.",
        value=oldest_seconds,
    )
