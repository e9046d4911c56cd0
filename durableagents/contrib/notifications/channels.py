"""Chats and shared mailboxes, which administrators manage, and sending deliveries again.

Each act is one transaction with a record. The record never contains a webhook's address, because anyone who knows the
address can post there."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Literal

from django.db import transaction
from pydantic import Field

from approvals.queue_models import Queue
from approvals.queues.who import Unchanged, as_admin, check_text, wrong
from durableagents.contrib.notifications.kinds import OF_OPERATORS, OF_QUEUES, TEST, tell
from durableagents.contrib.notifications.models import Channel, Delivery
from durableagents.contrib.notifications.preferences import KindName
from durableagents.contrib.notifications.queries import ENDED, DeliveryRow, delivery_rows
from durableagents.outgoing import http
from ledger.actors import Actor
from ledger.append import acted, is_moved, justified, mark_of
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, Moved, NotFound
from ledger.web.fields import ActorName, Rows
from ledger.web.roles import OPERATOR
from ledger.web.shapes import Page, Shape
from runs.features import Notification
from runs.services.bodies import SteerBody

Name = Annotated[str, Field(max_length=200)]
Address = Annotated[str, Field(max_length=2000)]
KindNames = Annotated[list[KindName], Field(max_length=40)]
MAX_CHANNELS = 50
_ACT = "give an address"
_MAILBOX = re.compile(r"[^\s@<>,;:\"\x00-\x20\x7f-\uffff]{1,64}@[A-Za-z0-9.-]{1,190}")


class ChannelBody(SteerBody):
    """A chat webhook or shared mailbox for the notifications of a queue; without a queue, for those to operators."""

    name: Name = Field(description="Name of the channel.")
    queue: Name = Field(default="", description="Queue whose notifications it receives; empty: those to operators.")
    form: Literal["webhook", "mailbox"] = Field(description="Type of the channel.")
    address: Address = Field(description="URL of the webhook, or mail address of the mailbox.")
    kinds: KindNames = Field(description="Kinds of notifications that it receives.")


class ChannelChangeBody(SteerBody):
    """The fields to change; the others are kept."""

    address: Address | None = Field(default=None, description="New URL or mail address.")
    kinds: KindNames | None = Field(default=None, description="New list of kinds of notifications.")


class ChannelRow(Shape):
    """A chat or shared mailbox that receives notifications."""

    id: int = Field(description="Id of the channel.")
    name: str = Field(description="Name of the channel.")
    queue: str = Field(description="Empty: notifications to operators.")
    form: Channel.Form = Field(description="webhook or mailbox.")
    address: str = Field(
        description="For a webhook only the host and the last characters, because the rest authorizes posting."
    )
    kinds: list[str] = Field(description="Kinds of notifications that it receives.")
    set_by: ActorName
    made_at: datetime = Field(description="Time when it was added.")
    changed_at: datetime = Field(description="Time of the channel's last change.")
    ended_at: datetime | None = Field(description="Time when it was removed; null while it is in use.")
    is_authentic: bool = Field(
        description="False: the row was not written by this installation, so nothing is sent to the channel."
    )


class ChannelPage(Page):
    results: Rows[ChannelRow]


class ChannelEnded(DurableAgentsError):
    """The channel has already ended."""

    status, code, title = 409, "illegal-state", "The channel has ended"

    def __init__(self) -> None:
        super().__init__("The channel has ended and can't be reopened. Add another one.")


class NotReplayable(DurableAgentsError):
    """The delivery is still in progress, or was only shown in a page and not sent as a message."""

    status, code, title = 409, "illegal-state", "The delivery can't be sent again now"


def channel_row(row: Channel) -> ChannelRow:
    """Return a channel as a row for pages and the API."""
    return ChannelRow.of(row, queue=_queue_name(row), address=row.shown, is_authentic=row.is_authentic)


def list_channels() -> list[Channel]:
    """Return the channels that have not ended, by queue and name."""
    rows = Channel.objects.filter(ended_at__isnull=True).select_related("queue")
    return sorted(rows, key=lambda row: (_queue_name(row), row.name, row.pk))


def find_channel(channel_id: int) -> Channel:
    """Return a channel, even one that has ended. Raises NotFound."""
    found = Channel.objects.select_related("queue").filter(pk=channel_id).first()
    if found is None:
        raise NotFound("channel", channel_id)
    return found


def add(body: ChannelBody, *, by: Actor) -> Channel:
    """Add a channel. Raises InvalidInput with the wrong field, Forbidden, JustificationRequired."""
    as_admin(by, _ACT)
    check_text("name", body.name)
    # Done before any lock is taken, because it resolves the host name over the network.
    address, label = _address(body.form, body.address)
    with transaction.atomic():
        by, why, queue = as_admin(by, _ACT), justified("channel", body.justification), _queue(body.queue)
        if Channel.objects.filter(ended_at__isnull=True).count() >= MAX_CHANNELS:
            raise wrong("name", f"would exceed the limit of {MAX_CHANNELS} channels", "end one first")
        now = database_now()
        row = Channel(queue=queue, form=body.form, name=body.name, made_at=now, address=address, shown=label)
        row.kinds = _kinds(queue, body.kinds)
        return _save("channel", row, {}, by=by, why=why, now=now)


def change(channel_id: int, body: ChannelChangeBody, *, seen: str | None = None, by: Actor) -> Channel:
    """Change a channel's address or kinds.

    Raises the errors of `add`, NotFound, ChannelEnded, and Moved if the channel was changed since `seen`."""
    as_admin(by, _ACT)
    given = None if body.address is None else _address(find_channel(channel_id).form, body.address)
    with transaction.atomic():
        by, why = as_admin(by, _ACT), justified("channel_change", body.justification)
        row = _locked(channel_id)
        if is_moved(seen, _changeable(row)):
            raise Moved(f"The channel {row.name}", row.set_by)
        before = snapshot(row)
        if given is None and body.kinds is None and row.is_authentic:
            raise Unchanged("kinds", "name a field to change")
        if given is not None:
            row.address, row.shown = given
        if body.kinds is not None:
            row.kinds = _kinds(row.queue, body.kinds)
        return _save("channel_change", row, before, by=by, why=why, now=database_now())


def _queue(name: str) -> Queue | None:
    if not name:
        return None
    queue = Queue.objects.select_for_update().filter(name=name).exclude(state=Queue.State.REMOVED).first()
    if queue is None:
        raise wrong("queue", "does not exist", "the name of a queue, or empty for notifications to operators")
    return queue


@transaction.atomic
def end(channel_id: int, *, by: Actor, justification: str) -> Channel:
    """End a channel. Raises NotFound, ChannelEnded, Forbidden, JustificationRequired."""
    by, why = as_admin(by, _ACT), justified("channel_end", justification)
    row = _locked(channel_id)
    before, now = snapshot(row), database_now()
    row.ended_at = now
    return _save("channel_end", row, before, by=by, why=why, now=now)


@transaction.atomic
def request_test(channel_id: int, *, by: Actor) -> None:
    """Send a test message, at most one a minute. Raises NotFound, ChannelEnded, Forbidden."""
    as_admin(by, _ACT)
    row = _locked(channel_id)
    fact = f"channel {row.pk}:{database_now():%Y-%m-%dT%H:%M}"
    tell(Notification(kind=TEST.name, fact=fact, about=str(row.pk)))


def snapshot(row: Channel) -> dict[str, Any]:
    """Return the channel's values for an act's record."""
    return {
        "name": row.name,
        "queue": _queue_name(row),
        "form": str(row.form),
        "address": row.shown,
        "kinds": list(row.kinds),
        "ended": row.ended_at is not None,
    }


def mark(row: Channel) -> str:
    """Return a digest that lets `change` detect changes since the channel was shown."""
    return mark_of(_changeable(row))


def _changeable(row: Channel) -> list[Any]:
    return [
        row.address,
        row.kinds,
    ]  # the digest covers the stored address, because two chats may look the same when shown


def _queue_name(row: Channel) -> str:
    return row.queue.name if row.queue else ""


def _locked(channel_id: int) -> Channel:
    row = Channel.objects.select_for_update().filter(pk=channel_id).first()
    if row is None:
        raise NotFound("channel", channel_id)
    if row.ended_at is not None:
        raise ChannelEnded
    return row


def _save(action: str, row: Channel, before: dict[str, Any], *, by: Actor, why: str, now: datetime) -> Channel:
    row.set_by, row.changed_at = by.ref, now
    row.seal()
    row.save()
    acted(
        action,
        by=by,
        subject=f"channel {row.name}",
        queue=_queue_name(row),
        justification=why,
        before=before,
        after=snapshot(row),
    )
    return row


def _address(form: str, address: str) -> tuple[str, str]:
    """Return the address in its stored and its displayed form. Raises InvalidInput."""
    if form == Channel.Form.MAILBOX:
        if not _MAILBOX.fullmatch(address):
            raise wrong("address", "is not an e-mail address", "one such as finance@example.org")
        return address, address
    return http.store_address(address, field="address", hint="the https address of the chat's incoming webhook")


def _kinds(queue: Queue | None, kinds: list[str]) -> list[str]:
    allowed = OF_OPERATORS if queue is None else OF_QUEUES
    if not kinds or set(kinds) - set(allowed):
        stray = sorted(set(kinds) - set(allowed))
        problem = f"names {stray[0][:40]}" if stray else "names no kind of notification"
        raise wrong("kinds", problem, f"some of {', '.join(allowed)}")
    return [kind for kind in allowed if kind in kinds]


@transaction.atomic
def replay(delivery_id: int, *, by: Actor, justification: str) -> DeliveryRow:
    """Send a delivery again as a new message, if the recipient's rights and the state of the subject still allow it.

    Raises NotFound, NotReplayable, Forbidden, JustificationRequired."""
    if by.role != OPERATOR:
        by = as_admin(by, "send a message again without being an operator")
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
    (delivery,) = delivery_rows([row])
    subject = f"delivery {row.pk} of {delivery.kind} to {delivery.to}"
    acted("notice_replay", by=by, subject=subject, justification=why, before=before, after={"state": str(row.state)})
    return delivery
