"""Webhooks with their log and backlog."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connection
from django.db.models import Prefetch, QuerySet

from durableagents.contrib.webhooks.models import Attempt, Message, Webhook
from ledger.errors import NotFound

PAGE = 50


@dataclass(frozen=True, slots=True)
class Backlog:
    """The number of unsent messages of active webhooks, and the age of the oldest one (0 if there are none).

    Messages that failed and will be tried again are included."""

    count: int
    oldest_seconds: float


def backlog() -> Backlog:
    """Return the backlog, without the messages of paused webhooks."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(m.at)), 0)::float8 "
            "FROM webhooks_message m JOIN webhooks_webhook w ON w.id = m.webhook_id "
            "WHERE w.state = 'active' AND m.state IN ('waiting', 'sending')"
        )
        return Backlog(*cursor.fetchone())


def active_webhooks() -> list[Webhook]:
    """Return all webhooks that have not ended, by name."""
    return list(Webhook.objects.exclude(state=Webhook.State.ENDED).order_by("name"))


def find(webhook_id: int) -> Webhook:
    """Return a webhook, even one that has ended. Raises NotFound."""
    row = Webhook.objects.filter(pk=webhook_id).first()
    if row is None:
        raise NotFound("webhook", webhook_id)
    return row


def messages(webhook: Webhook, *, state: str = "", before: int | None = None, limit: int = PAGE + 1) -> list[Message]:
    """Return a webhook's messages with their attempts, newest first."""
    found: QuerySet[Message] = webhook.messages.order_by("-id").prefetch_related(
        Prefetch("log", Attempt.objects.order_by("pk"))
    )
    if state:
        found = found.filter(state=state)
    if before is not None:
        found = found.filter(pk__lt=before)
    return list(found[:limit])
