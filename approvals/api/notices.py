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
    """How you are told: of each kind by which ways, and when."""

    ways: dict[str, list[str]]
    zone: str
    quiet_from: str | None
    quiet_until: str | None
    digest: str
    digest_at: str


class TryRow(Shape):
    """One try. `unknown`: it began, and whoever made it did not live to say what came of it."""

    at: str
    outcome: str = Field(description="unknown, sent, failed, refused, needless.")
    why: str
    message: str


class DeliveryRow(Shape):
    """One notice for one recipient by one way."""

    id: int
    kind: str
    by: Delivery.By
    to: str = Field(description="A person's name, or a channel's; never an address.")
    state: Delivery.State
    note: str
    run_id: UUID | None
    approval_id: UUID | None
    message: UUID | None = Field(description="As its headers name it: a receiver tells a repeat by it.")
    due_at: datetime
    made_at: datetime
    ended_at: datetime | None
    tries: list[TryRow]


class DeliveryPage(Page):
    results: list[DeliveryRow]


class ChannelRow(Shape):
    """A chat or a shared mailbox that is told."""

    id: int
    name: str
    queue: str = Field(description="Empty: what operators are told.")
    form: Channel.Form
    address: str = Field(description="Of a webhook the host and its last characters: the rest is the right to write.")
    kinds: list[str]
    set_by: str
    made_at: datetime
    changed_at: datetime
    ended_at: datetime | None
    is_genuine: bool = Field(description="false: not put on record by this installation; is told nothing.")


class ChannelPage(Page):
    results: list[ChannelRow]


class Asked(Shape):
    """That it was asked for."""

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
    """One's own."""

    permission_classes = [OrAdmin]
    roles = {**READ, "POST": EVERY}

    @described("How you are told", PreferenceRow)
    def get(self, request: Request) -> Response:
        Query(request)
        assert request.user.pk is not None  # whoever is nobody was refused
        return Response(PreferenceRow.of(None, **own.preference_of(request.user.pk)))

    @described("Say how you are told", PreferenceRow, body=PreferenceBody)
    def post(self, request: Request) -> Response:
        return Response(PreferenceRow.of(None, **own.prefer(read_body(request, PreferenceBody), by=self.by)))


class Test(ApiView):
    permission_classes = [OrAdmin]
    roles = {"POST": EVERY}

    @described("Ask for a test", Asked, status=202)
    def post(self, request: Request) -> Response:
        own.ask_for_test(by=self.by)
        return Response(Asked.of(None, asked=True), status=202)


class Deliveries(ApiView):
    """What was sent, newest first: to everybody, for those who answer for it; else one's own."""

    permission_classes = [OrAdmin]
    roles = READ

    @described("What was sent to whom", DeliveryPage, query=("state", "by", "cursor", "limit"))
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
    permission_classes = [OrAdmin]
    roles = {"POST": (OPERATOR,)}

    @described("Send it again", DeliveryRow, body=SteerBody)
    def post(self, request: Request, delivery_id: int) -> Response:
        row = log.replay(delivery_id, by=self.by, justification=read_body(request, SteerBody).justification)
        return Response(delivery_row(log.shown([row])[0]))


class Channels(ApiView):
    """The chats and mailboxes that are told; and the place to add one."""

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
    permission_classes = [OrAdmin]
    roles = {"GET": (OPERATOR, AUDITOR), "POST": ()}

    @described("A channel", ChannelRow)
    def get(self, request: Request, channel_id: int) -> Response:
        Query(request)
        return Response(channel_row(channels.find(channel_id)))

    @described("Change a channel", ChannelRow, body=ChannelChangeBody, name="notifications_channels_update")
    def post(self, request: Request, channel_id: int) -> Response:
        channels.find(channel_id)
        return Response(channel_row(channels.change(channel_id, read_body(request, ChannelChangeBody), by=self.by)))


class ChannelEnd(ApiView):
    permission_classes = [OrAdmin]
    roles = {"POST": ()}

    @described("End a channel", ChannelRow, body=SteerBody)
    def post(self, request: Request, channel_id: int) -> Response:
        channels.find(channel_id)
        why = read_body(request, SteerBody).justification
        return Response(channel_row(channels.end(channel_id, by=self.by, justification=why)))


class ChannelTest(ApiView):
    permission_classes = [OrAdmin]
    roles = {"POST": ()}

    @described("Ask for a test of a channel", Asked, status=202)
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
