"""Notifications over HTTP: how one is told, what was sent to whom, and which chats and mailboxes are told."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

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
from ledger.web.roles import AUDITOR, EVERY, OPERATOR, HasRole, roles
from ledger.web.shapes import Page, Shape
from runs.services.bodies import SteerBody


class PreferenceRow(Shape):
    """Notification preferences: channels for each kind, and quiet hours."""

    ways: dict[str, list[str]]
    zone: str
    quiet_from: str | None
    quiet_until: str | None
    digest: str
    digest_at: str


class TryRow(Shape):
    """One attempt of a call. `unknown`: it started, and its worker was lost before recording the result."""

    at: str
    outcome: str = Field(description="unknown, sent, failed, refused or needless.")
    why: str
    message: str


class DeliveryRow(Shape):
    """One notification to one recipient over one channel."""

    id: int
    kind: str
    by: Delivery.By
    to: str = Field(description="A person's or channel's name, never an address.")
    state: Delivery.State
    note: str
    run_id: UUID | None
    approval_id: UUID | None
    message: UUID | None = Field(description="Message id in its headers, by which a receiver recognizes a repeat.")
    due_at: datetime
    made_at: datetime
    ended_at: datetime | None
    tries: list[TryRow]


class DeliveryPage(Page):
    results: list[DeliveryRow]


class ChannelRow(Shape):
    """A chat or shared mailbox that receives notifications."""

    id: int
    name: str
    queue: str = Field(description="Empty: notifications to operators.")
    form: Channel.Form
    address: str = Field(
        description="Of a webhook only the host and the last characters, because the rest authorizes posting."
    )
    kinds: list[str]
    set_by: str
    made_at: datetime
    changed_at: datetime
    ended_at: datetime | None
    is_genuine: bool = Field(
        description="False: the row was not written by this installation, so nothing is sent to the channel."
    )


class ChannelPage(Page):
    results: list[ChannelRow]


class Asked(Shape):
    """Confirms that a test was requested."""

    asked: bool


class OrAdmin(BasePermission):
    """Whoever has one of the roles, and administrators."""

    message = "None of your roles allows this."

    def has_permission(self, request: Request, view: Any) -> bool:
        if HasRole().has_permission(request, view):
            return True
        view.acting_role = ADMIN
        return is_admin(request.user)


class Settings(ApiView):
    """The caller's notification preferences."""

    permission_classes = [OrAdmin]
    roles = {**READ, "POST": EVERY}

    @described("Get your notification preferences", PreferenceRow)
    def get(self, request: Request) -> Response:
        Query(request)
        assert request.user.pk is not None  # whoever is nobody was refused
        return Response(PreferenceRow.of(None, **own.preference_of(request.user.pk)))

    @described("Set your notification preferences", PreferenceRow, body=PreferenceBody)
    def post(self, request: Request) -> Response:
        return Response(PreferenceRow.of(None, **own.prefer(read_body(request, PreferenceBody), by=self.by)))


class Test(ApiView):
    """Send a test notification to the caller."""

    permission_classes = [OrAdmin]
    roles = {"POST": EVERY}

    @described("Test your notifications", Asked, status=202)
    def post(self, request: Request) -> Response:
        own.ask_for_test(by=self.by)
        return Response(Asked.of(None, asked=True), status=202)


class Deliveries(ApiView):
    """Sent notifications, newest first: all for operators, auditors and administrators, otherwise the caller's own."""

    permission_classes = [OrAdmin]
    roles = READ

    @described("List deliveries", DeliveryPage, query=("state", "by", "cursor", "limit"))
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
    """Chats and mailboxes that receive notifications. POST adds one."""

    permission_classes = [OrAdmin]
    roles = {"GET": (OPERATOR, AUDITOR), "POST": ()}

    @described("List channels", ChannelPage)
    def get(self, request: Request) -> Response:
        Query(request)
        return Response({"results": [channel_row(row) for row in channels.every()], "next": None})

    @described("Add a channel", ChannelRow, status=201, body=ChannelBody)
    def post(self, request: Request) -> Response:
        return Response(channel_row(channels.add(read_body(request, ChannelBody), by=self.by)), status=201)


class OneChannel(ApiView):
    """One channel. POST changes it."""

    permission_classes = [OrAdmin]
    roles = {"GET": (OPERATOR, AUDITOR), "POST": ()}

    @described("Get a channel", ChannelRow)
    def get(self, request: Request, channel_id: int) -> Response:
        Query(request)
        return Response(channel_row(channels.find(channel_id)))

    @described("Update a channel", ChannelRow, body=ChannelChangeBody, name="notifications_channels_update")
    def post(self, request: Request, channel_id: int) -> Response:
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
    """A delivery as it is now."""
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
    """A channel as it is now."""
    queue = row.queue.name if row.queue else ""
    return ChannelRow.of(row, queue=queue, address=row.shown, is_genuine=row.is_genuine)
