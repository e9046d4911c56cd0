"""Notifications over HTTP: how one is told, what was sent to whom, and which chats and mailboxes are told."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter
from pydantic import Field
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.notices import channels, log, own
from approvals.notices.channels import ChannelBody, ChannelChangeBody, PreferenceBody
from approvals.outbox import Channel, Delivery
from approvals.queues.who import ADMIN, is_admin
from ledger.web.api_base import READ, ApiView, Query, described, read_body
from ledger.web.cursors import placed
from ledger.web.fields import ActorName, Rows, Zone
from ledger.web.roles import AUDITOR, EVERY, OPERATOR, HasRole, roles
from ledger.web.shapes import Page, Shape
from runs.services.bodies import SteerBody


class PreferenceRow(Shape):
    """Notification preferences: channels for each kind, and quiet hours."""

    ways: dict[str, list[str]] = Field(
        description="Media by kind of notification; a kind that is not listed follows the default."
    )
    zone: Zone
    quiet_from: str | None = Field(description="Start of the quiet hours, as HH:MM; null: none.")
    quiet_until: str | None = Field(description="End of the quiet hours, as HH:MM; null: none.")
    digest: str = Field(description="none, hourly or daily: how often notifications are collected in one message.")
    digest_at: str = Field(description="Time of the daily digest, as HH:MM.")


class TryRow(Shape):
    """One attempt of a call. `unknown`: it started, and its worker was lost before recording the result."""

    at: str = Field(description="Time of the attempt.")
    outcome: str = Field(description="unknown, sent, failed, refused or needless.")
    why: str = Field(description="Reason for a failure; empty: none.")
    message: str = Field(description="Error as the receiver's side reported it; empty: none.")


class DeliveryRow(Shape):
    """One notification to one recipient over one channel."""

    id: int = Field(description="Id of the delivery.")
    kind: str = Field(description="Kind of the notification.")
    by: Delivery.By = Field(description="Medium by which it is delivered.")
    to: str = Field(description="A person's or channel's name, never an address.")
    state: Delivery.State = Field(description="State of the delivery.")
    note: str = Field(description="Why it is not sent, or not sent yet; empty: no note.")
    run_id: UUID | None = Field(description="Run that it is about; null: none.")
    approval_id: UUID | None = Field(description="Approval that it is about; null: none.")
    message: UUID | None = Field(description="Message id in its headers, by which a receiver recognizes a repeat.")
    due_at: datetime = Field(description="Time when it is or was due.")
    made_at: datetime = Field(description="Time when it was created.")
    ended_at: datetime | None = Field(description="Time when it was sent or given up; null: it is open.")
    tries: list[TryRow] = Field(description="Attempts to deliver it, in order.")


class DeliveryPage(Page):
    results: Rows[DeliveryRow]


class ChannelRow(Shape):
    """A chat or shared mailbox that receives notifications."""

    id: int = Field(description="Id of the channel.")
    name: str = Field(description="Name of the channel.")
    queue: str = Field(description="Empty: notifications to operators.")
    form: Channel.Form = Field(description="webhook or mailbox.")
    address: str = Field(
        description="Of a webhook only the host and the last characters, because the rest authorizes posting."
    )
    kinds: list[str] = Field(description="Kinds of notifications that it receives.")
    set_by: ActorName
    made_at: datetime = Field(description="Time when it was added.")
    changed_at: datetime = Field(description="Time of its last change.")
    ended_at: datetime | None = Field(description="Time when it was removed; null: it is in use.")
    is_authentic: bool = Field(
        description="False: the row was not written by this installation, so nothing is sent to the channel."
    )


class ChannelPage(Page):
    results: Rows[ChannelRow]


class Asked(Shape):
    """Confirms that a test was requested."""

    asked: bool = Field(description="Always true.")


class OrAdmin(BasePermission):
    """Allow holders of one of the roles, and administrators."""

    message = "None of your roles allows this."

    def has_permission(self, request: Request, view: Any) -> bool:
        if HasRole().has_permission(request, view):
            return True
        view.acting_role = ADMIN
        return is_admin(request.user)


class Settings(ApiView):
    """The caller's notification preferences."""

    permission_classes = [OrAdmin]
    versioned = True
    roles = {**READ, "POST": EVERY}

    @described("Get your notification preferences", PreferenceRow)
    def get(self, request: Request) -> Response:
        Query(request)
        assert request.user.pk is not None  # anonymous users were refused before
        return Response(PreferenceRow.of(None, **own.preference_of(request.user.pk)))

    @described("Set your notification preferences", PreferenceRow, body=PreferenceBody, headers=("If-Match",))
    def post(self, request: Request) -> Response:
        """Replace the caller's notification preferences."""
        return Response(PreferenceRow.of(None, **own.prefer(read_body(request, PreferenceBody), by=self.by)))


class Test(ApiView):
    """Send a test notification to the caller."""

    permission_classes = [OrAdmin]
    roles = {"POST": EVERY}

    @described("Test your notifications", Asked, status=202)
    def post(self, request: Request) -> Response:
        own.ask_for_test(by=self.by)
        return Response(Asked.of(None, asked=True), status=202)


_BY = OpenApiParameter("by", str, "query", description="Only deliveries over this medium.")


class Deliveries(ApiView):
    """Sent notifications, newest first: all for operators, auditors and administrators, otherwise the caller's own."""

    permission_classes = [OrAdmin]
    roles = READ

    @described("List deliveries", DeliveryPage, query=("state", _BY, "cursor", "limit"))
    def get(self, request: Request) -> Response:
        query = Query(request, "state", "by", "cursor")
        state, by = query.choice("state", Delivery.State.values), query.choice("by", Delivery.By.values)
        reads_all = is_admin(request.user) or log.may_read(roles(request.user))
        rows = log.deliveries(
            state=state or "",
            by=by or "",
            beyond=query.placed(),
            limit=query.limit,
            person=None if reads_all else request.user.pk,
        )
        return query.page(rows, lambda one: {"cursor": placed(one.row.made_at, one.row.pk)}, delivery_row)


class Replay(ApiView):
    """Send a notification again, as a new message."""

    permission_classes = [OrAdmin]
    roles = {"POST": (OPERATOR,)}

    @described("Send a notification again", DeliveryRow, body=SteerBody)
    def post(self, request: Request, delivery_id: int) -> Response:
        row = log.replay(delivery_id, by=self.by, justification=read_body(request, SteerBody).justification)
        return Response(delivery_row(log.shown([row])[0]))


class Channels(ApiView):
    """Chats and mailboxes that receive notifications."""

    permission_classes = [OrAdmin]
    roles = {"GET": (OPERATOR, AUDITOR), "POST": ()}

    @described("List channels", ChannelPage)
    def get(self, request: Request) -> Response:
        Query(request)
        return Response({"results": [channel_row(row) for row in channels.every()], "next": None})

    @described("Add a channel", ChannelRow, status=201, body=ChannelBody)
    def post(self, request: Request) -> Response:
        """Add a chat or mailbox that receives notifications."""
        return Response(channel_row(channels.add(read_body(request, ChannelBody), by=self.by)), status=201)


class OneChannel(ApiView):
    """One channel, without the secret part of its address."""

    permission_classes = [OrAdmin]
    versioned = True
    roles = {"GET": (OPERATOR, AUDITOR), "POST": ()}

    @described("Get a channel", ChannelRow)
    def get(self, request: Request, channel_id: int) -> Response:
        Query(request)
        return Response(channel_row(channels.find(channel_id)))

    @described(
        "Update a channel",
        ChannelRow,
        body=ChannelChangeBody,
        name="notifications_channels_update",
        headers=("If-Match",),
    )
    def post(self, request: Request, channel_id: int) -> Response:
        """Change the address of a channel, or the kinds of notifications that it receives."""
        channels.find(channel_id)
        return Response(channel_row(channels.change(channel_id, read_body(request, ChannelChangeBody), by=self.by)))


class ChannelEnd(ApiView):
    """End a channel permanently."""

    permission_classes = [OrAdmin]
    roles = {"POST": ()}

    @described("End a channel", ChannelRow, body=SteerBody)
    def post(self, request: Request, channel_id: int) -> Response:
        channels.find(channel_id)
        why = read_body(request, SteerBody).justification
        return Response(channel_row(channels.end(channel_id, by=self.by, justification=why)))


class ChannelTest(ApiView):
    """Send a test notification to a channel."""

    permission_classes = [OrAdmin]
    roles = {"POST": ()}

    @described("Test a channel", Asked, status=202)
    def post(self, request: Request, channel_id: int) -> Response:
        channels.ask_for_test(channel_id, by=self.by)
        return Response(Asked.of(None, asked=True), status=202)


def delivery_row(one: log.Shown) -> DeliveryRow:
    """Return the row of a delivery."""
    notice = one.row.notice
    return DeliveryRow.of(
        one.row,
        kind=notice.kind,
        to=one.to,
        run_id=notice.run_id,
        approval_id=notice.approval_id,
        tries=[TryRow.of(None, **{name: each[name] for name in TryRow.model_fields}) for each in one.row.tries],
    )


def channel_row(row: Channel) -> ChannelRow:
    """Return the row of a channel."""
    queue = row.queue.name if row.queue else ""
    return ChannelRow.of(row, queue=queue, address=row.shown, is_authentic=row.is_authentic)
