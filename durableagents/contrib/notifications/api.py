"""Notifications over HTTP: the caller's settings, the delivery log, chats and mailboxes."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.api.permissions import OrAdmin
from approvals.queues.who import is_admin
from durableagents.contrib.notifications import channels, preferences
from durableagents.contrib.notifications.channels import (
    ChannelBody,
    ChannelChangeBody,
    ChannelPage,
    ChannelRow,
    channel_row,
)
from durableagents.contrib.notifications.models import Delivery
from durableagents.contrib.notifications.preferences import PreferenceBody, PreferenceRow
from durableagents.contrib.notifications.queries import DeliveryPage, DeliveryRow, find_deliveries, may_read_log
from ledger.web.api_base import READ, ApiView, Query, described, read_body
from ledger.web.bodies import NoBody
from ledger.web.cursors import placed
from ledger.web.roles import AUDITOR, EVERY, OPERATOR, roles
from ledger.web.shapes import TestRequested
from runs.services.bodies import SteerBody


class NotificationView(ApiView):
    """Base of these endpoints."""

    permission_classes = [OrAdmin]


class Settings(NotificationView):
    """The caller's notification preferences."""

    versioned = True
    roles = {**READ, "POST": EVERY}

    @described("Get your notification preferences", PreferenceRow)
    def get(self, request: Request) -> Response:
        Query(request)
        assert request.user.pk is not None  # anonymous callers have already been refused
        return Response(preferences.settings_of(request.user.pk))

    @described("Set your notification preferences", PreferenceRow, body=PreferenceBody, headers=("If-Match",))
    def post(self, request: Request) -> Response:
        """Replace the caller's notification preferences."""
        return Response(preferences.save_settings(read_body(request, PreferenceBody), by=self.by))


class Test(NotificationView):
    """Send a test notification to the caller."""

    roles = {"POST": EVERY}

    @described("Test your notifications", TestRequested, status=202, body=NoBody)
    def post(self, request: Request) -> Response:
        read_body(request, NoBody)
        preferences.request_test(by=self.by)
        return Response(TestRequested.of(None, requested=True), status=202)


_BY = OpenApiParameter("by", str, "query", description="Only deliveries over this medium.")


class Deliveries(NotificationView):
    """Sent notifications, newest first.

    Operators, auditors and administrators see all deliveries, others their own."""

    roles = READ

    @described("List deliveries", DeliveryPage, query=("state", _BY, "cursor", "limit"))
    def get(self, request: Request) -> Response:
        query = Query(request, "state", "by", "cursor")
        state, by = query.choice("state", Delivery.State.values), query.choice("by", Delivery.By.values)
        reads_all = is_admin(request.user) or may_read_log(roles(request.user))
        rows = find_deliveries(
            state=state or "",
            by=by or "",
            beyond=query.placed(),
            limit=query.limit,
            person=None if reads_all else request.user.pk,
        )
        return query.page(rows, lambda row: {"cursor": placed(row.made_at, row.id)}, lambda row: row)


class Replay(NotificationView):
    """Send a notification again, as a new message."""

    roles = {"POST": (OPERATOR,)}

    @described("Send a notification again", DeliveryRow, body=SteerBody)
    def post(self, request: Request, delivery_id: int) -> Response:
        why = read_body(request, SteerBody).justification
        return Response(channels.replay(delivery_id, by=self.by, justification=why))


class Channels(NotificationView):
    """Chats and mailboxes that receive notifications."""

    roles = {"GET": (OPERATOR, AUDITOR), "POST": ()}

    @described("List channels", ChannelPage)
    def get(self, request: Request) -> Response:
        Query(request)
        return Response({"results": [channel_row(row) for row in channels.list_channels()], "next": None})

    @described("Add a channel", ChannelRow, status=201, body=ChannelBody)
    def post(self, request: Request) -> Response:
        """Add a chat or mailbox that receives notifications."""
        return Response(channel_row(channels.add(read_body(request, ChannelBody), by=self.by)), status=201)


class OneChannel(NotificationView):
    """One channel. The address is shown without its secret part."""

    versioned = True
    roles = {"GET": (OPERATOR, AUDITOR), "POST": ()}

    @described("Get a channel", ChannelRow)
    def get(self, request: Request, channel_id: int) -> Response:
        Query(request)
        return Response(channel_row(channels.find_channel(channel_id)))

    @described(
        "Update a channel",
        ChannelRow,
        body=ChannelChangeBody,
        name="notifications_channels_update",
        headers=("If-Match",),
    )
    def post(self, request: Request, channel_id: int) -> Response:
        """Change the address of a channel, or the kinds of notifications that it receives."""
        channels.find_channel(channel_id)
        return Response(channel_row(channels.change(channel_id, read_body(request, ChannelChangeBody), by=self.by)))


class ChannelEnd(NotificationView):
    """End a channel permanently."""

    roles = {"POST": ()}

    @described("End a channel", ChannelRow, body=SteerBody)
    def post(self, request: Request, channel_id: int) -> Response:
        channels.find_channel(channel_id)
        why = read_body(request, SteerBody).justification
        return Response(channel_row(channels.end(channel_id, by=self.by, justification=why)))


class ChannelTest(NotificationView):
    """Send a test notification to a channel."""

    roles = {"POST": ()}

    @described("Test a channel", TestRequested, status=202, body=NoBody)
    def post(self, request: Request, channel_id: int) -> Response:
        read_body(request, NoBody)
        channels.request_test(channel_id, by=self.by)
        return Response(TestRequested.of(None, requested=True), status=202)
