"""Webhooks over HTTP: set them up, list their messages, and send messages again."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar
from uuid import UUID

from django.contrib.auth.models import User
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.api.permissions import OrAdmin
from durableagents.contrib.webhooks import queries, services
from durableagents.contrib.webhooks.models import Message, Webhook
from durableagents.contrib.webhooks.services import ReplayBody, SecretBody, WebhookBody, WebhookChangeBody
from ledger.web.api_base import ApiView, Query, described, read_body
from ledger.web.bodies import NoBody
from ledger.web.fields import ActorName, IsAuthentic, Rows
from ledger.web.roles import AUDITOR, OPERATOR
from ledger.web.shapes import Page, Shape, TestRequested
from runs.services.bodies import SteerBody

_READERS = (OPERATOR, AUDITOR)


class WebhookRow(Shape):
    """A webhook, without its secret."""

    id: int = Field(description="Id of the webhook.")
    name: str = Field(description="Name of the webhook.")
    url: str = Field(
        description="Host and last characters of its address; the rest is hidden, because it may authorize posting."
    )
    events: list[str] = Field(description="Types of messages that it receives.")
    agent: str = Field(description="Only runs of this agent; empty: any.")
    tag: str = Field(description="Only runs with this tag; empty: any.")
    queue: str = Field(description="For messages about approvals: only those of this queue; empty: any.")
    key_prefix: str = Field(description="Only runs whose business key begins with this; empty: any.")
    started_by: str = Field(description="Only runs that this account started; empty: any account.")
    has_content: bool = Field(description="Whether messages contain results, errors and titles.")
    state: Webhook.State = Field(description="active, paused, disabled or ended.")
    why: str = Field(description="Why it is paused or disabled; empty if it is active.")
    failing_since: datetime | None = Field(description="First failure after the last success; null if it works.")
    previous_until: datetime | None = Field(
        description="Time until which messages are also signed with the old secret; null if there is no old secret."
    )
    set_by: ActorName
    made_at: datetime = Field(description="Time of creation.")
    changed_at: datetime = Field(description="Time of the webhook's last change.")
    is_authentic: IsAuthentic


class WebhookSecretRow(WebhookRow):
    """A webhook with its new secret."""

    shown_once: ClassVar[frozenset[str]] = frozenset({"secret"})

    secret: str | None = Field(
        description="Secret that its messages are signed with. It is shown only now; null in a repeated response."
    )


class WebhookPage(Page):
    results: Rows[WebhookRow]


class WebhookAttemptRow(Shape):
    """One attempt to send a message."""

    at: datetime = Field(description="Time when it ended.")
    outcome: str = Field(description="sent, failed or unknown: the worker ended before it recorded an answer.")
    status: int | None = Field(description="HTTP status of the response; null if there was none.")
    milliseconds: int | None = Field(description="Time until the response; null if unknown.")
    answer: str = Field(description="First bytes of the response, escaped.")
    why: str = Field(description="Reason of a failure; empty: none.")


class WebhookMessageRow(Shape):
    """A message to a webhook."""

    id: int = Field(description="Number of the message, which is also its sequence number.")
    message_id: str = Field(description="Id with which the receiver recognizes a repeat: the header webhook-id.")
    event: str = Field(description="Type of the message.")
    run_id: UUID | None = Field(description="Run that it is about; null if none.")
    at: datetime = Field(description="Time of the event.")
    state: Message.State = Field(description="waiting, sending, sent, failed or not_sent_any_more.")
    due_at: datetime = Field(description="Time of the next attempt.")
    attempts: int = Field(description="Number of attempts since it was created or replayed.")
    note: str = Field(description="Why it was not sent, or not yet; empty if there is nothing to note.")
    ended_at: datetime | None = Field(description="Time when it was sent or given up; null while it is open.")
    log: list[WebhookAttemptRow] = Field(description="Attempts in order.")


class WebhookMessagePage(Page):
    results: Rows[WebhookMessageRow]


class ReplayedRow(Shape):
    """The result of a replay."""

    messages: int = Field(description="Number of messages that are sent again.")


class Webhooks(ApiView):
    """All webhooks."""

    permission_classes = [OrAdmin]
    roles = {"GET": _READERS, "POST": ()}

    @described("List webhooks", WebhookPage)
    def get(self, request: Request) -> Response:
        Query(request)
        return Response({"results": [webhook_row(row) for row in queries.active_webhooks()], "next": None})

    @described("Create a webhook", WebhookSecretRow, status=201, body=WebhookBody)
    def post(self, request: Request) -> Response:
        """Create a webhook. Administrators only."""
        row, secret = services.create(read_body(request, WebhookBody), by=self.by)
        return Response(_with_secret(row, secret), status=201)


class OneWebhook(ApiView):
    """One webhook."""

    permission_classes = [OrAdmin]
    roles = {"GET": _READERS, "POST": ()}

    @described("Get a webhook", WebhookRow)
    def get(self, request: Request, webhook_id: int) -> Response:
        Query(request)
        return Response(webhook_row(queries.find(webhook_id)))

    @described("Update a webhook", WebhookRow, body=WebhookChangeBody, name="webhooks_update")
    def post(self, request: Request, webhook_id: int) -> Response:
        """Change the given fields. Administrators only."""
        return Response(webhook_row(services.change(webhook_id, read_body(request, WebhookChangeBody), by=self.by)))


class Secrets(ApiView):
    """Replace a webhook's secret."""

    permission_classes = [OrAdmin]
    roles = {"POST": ()}

    @described("Replace a webhook's secret", WebhookSecretRow, body=SecretBody)
    def post(self, request: Request, webhook_id: int) -> Response:
        """Replace the secret. Messages are signed with both secrets for a while. Administrators only."""
        return Response(_with_secret(*services.rotate(webhook_id, read_body(request, SecretBody), by=self.by)))


class Pauses(ApiView):
    """Pause a webhook."""

    permission_classes = [OrAdmin]
    roles = {"POST": ()}

    @described("Pause a webhook", WebhookRow, body=SteerBody)
    def post(self, request: Request, webhook_id: int) -> Response:
        """Stop sending messages; new ones are kept. Administrators only."""
        why = read_body(request, SteerBody).justification
        return Response(webhook_row(services.pause(webhook_id, by=self.by, justification=why)))


class Resumptions(ApiView):
    """Resume a webhook."""

    permission_classes = [OrAdmin]
    roles = {"POST": ()}

    @described("Resume a webhook", WebhookRow, body=SteerBody)
    def post(self, request: Request, webhook_id: int) -> Response:
        """Continue sending, beginning with the messages that were kept. Administrators only."""
        why = read_body(request, SteerBody).justification
        return Response(webhook_row(services.resume(webhook_id, by=self.by, justification=why)))


class Ends(ApiView):
    """End a webhook."""

    permission_classes = [OrAdmin]
    roles = {"POST": ()}

    @described("End a webhook", WebhookRow, body=SteerBody)
    def post(self, request: Request, webhook_id: int) -> Response:
        """End a webhook permanently. Administrators only."""
        why = read_body(request, SteerBody).justification
        return Response(webhook_row(services.end(webhook_id, by=self.by, justification=why)))


class Tests(ApiView):
    """Send a test message."""

    permission_classes = [OrAdmin]
    roles = {"POST": ()}

    @described("Test a webhook", TestRequested, status=202, body=NoBody, also=(409,))
    def post(self, request: Request, webhook_id: int) -> Response:
        """Send a test message. Administrators only."""
        read_body(request, NoBody)
        services.test(webhook_id, by=self.by)
        return Response(TestRequested.of(None, requested=True), status=202)


class Replays(ApiView):
    """Send messages again."""

    permission_classes = [OrAdmin]
    roles = {"POST": ()}

    @described("Send messages of a webhook again", ReplayedRow, body=ReplayBody)
    def post(self, request: Request, webhook_id: int) -> Response:
        """Send one message, or all messages since a time, again with the same ids. Administrators only."""
        count = services.replay(webhook_id, read_body(request, ReplayBody), by=self.by)
        return Response(ReplayedRow(messages=count))


class Messages(ApiView):
    """Messages of a webhook with their attempts, newest first."""

    permission_classes = [OrAdmin]
    roles = {"GET": _READERS}

    @described("List a webhook's messages", WebhookMessagePage, query=("state", "after", "limit"))
    def get(self, request: Request, webhook_id: int) -> Response:
        """List messages, newest first."""
        query = Query(request, "state", "after")
        state = query.choice("state", Message.State.values) or ""
        after = query.integer("after", default=0, lowest=0, highest=2**62)
        found = queries.messages(queries.find(webhook_id), state=state, before=after or None, limit=query.limit + 1)
        return query.page(found, lambda row: {"after": str(row.pk)}, message_row)


def webhook_row(row: Webhook) -> WebhookRow:
    """Return the row of a webhook."""
    return WebhookRow.of(row, url=row.shown, started_by=name_of(row.started_by), is_authentic=row.is_authentic)


def _with_secret(row: Webhook, secret: str) -> WebhookSecretRow:
    return WebhookSecretRow.of(
        row, url=row.shown, started_by=name_of(row.started_by), is_authentic=row.is_authentic, secret=secret
    )


def message_row(row: Message) -> WebhookMessageRow:
    """Return the row of a message."""
    return WebhookMessageRow.of(row, message_id=str(row), log=[WebhookAttemptRow.of(each) for each in row.log.all()])


def name_of(person: int | None) -> str:
    """Return an account's name; empty if there is no account."""
    return "" if person is None else User.objects.filter(pk=person).values_list("username", flat=True).first() or "?"
