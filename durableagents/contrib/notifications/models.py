"""Notices, deliveries, channels, devices and preferences.

A notice is written in the transaction of the event that it reports (sql/). A notice has no content and grants no
rights. Channels and devices decide where texts are sent, so each of these rows has a code (ledger/codes.py)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import time
from typing import Any

import pgtrigger
from django.db import models
from pydantic import TypeAdapter, ValidationError

from approvals.queue_models import Queue
from ledger.models import Coded, Json


class Notice(models.Model):
    """An event of which people are notified. `fact` is unique, so that an event is written only once."""

    class State(models.TextChoices):
        NEW = "new"
        ADDRESSED = "addressed"
        OVER = "over"

    id = models.BigAutoField(primary_key=True)
    fact = models.TextField(unique=True)
    kind = models.TextField()
    run_id = models.UUIDField(null=True)
    approval_id = models.UUIDField(null=True)
    wait_id = models.UUIDField(null=True)
    person = models.BigIntegerField(
        null=True, help_text="Empty: all recipients of the kind; otherwise this account only."
    )
    about = models.TextField(blank=True, default="", help_text="Subject without an id of its own: an agent's version.")
    state = models.TextField(choices=State.choices, default=State.NEW)
    note = models.TextField(blank=True, default="")
    at = models.DateTimeField()
    due_at = models.DateTimeField()

    class Meta:
        db_table = "approvals_notice"
        indexes = [
            models.Index(fields=["due_at", "id"], condition=models.Q(state="new"), name="approvals_notice_due"),
            models.Index(fields=["kind", "about", "-at"], condition=~models.Q(about=""), name="approvals_notice_about"),
            models.Index(fields=["at"], name="approvals_notice_old"),
        ]


class CheckedJson(Json):
    """JSON of one type.

    Any other value in the database reads as an empty value, so that a damaged row doesn't stop the
    delivery of the others."""

    adapter: TypeAdapter[Any]
    empty: Callable[[], Any]

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        try:
            return self.adapter.validate_python(super().from_db_value(value, expression, connection), strict=True)
        except ValidationError:
            return self.empty()


class KindNames(CheckedJson):
    adapter, empty = TypeAdapter(list[str]), list


class Tries(CheckedJson):
    adapter, empty = TypeAdapter(list[dict[str, str]]), list


class MediaByKind(CheckedJson):
    adapter, empty = TypeAdapter(dict[str, list[str]]), dict


class Channel(Coded):
    """A chat or shared mailbox of a queue, or of the operators if it has no queue.

    Once ended, it can't be reactivated."""

    class Form(models.TextChoices):
        WEBHOOK = "webhook"
        MAILBOX = "mailbox"

    id = models.BigAutoField(primary_key=True)
    queue = models.ForeignKey(Queue, null=True, on_delete=models.PROTECT, related_name="channels")
    form = models.TextField(choices=Form.choices)
    name = models.TextField()
    # The address is encrypted, because knowing a webhook's address is enough to post there. `shown` is its public part.
    address = models.TextField()
    shown = models.TextField()
    kinds = KindNames()
    set_by = models.TextField()
    made_at = models.DateTimeField()
    changed_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "approvals_channel"
        constraints = [
            # Unique, so that an ended row can't be inserted again with its old code.
            models.UniqueConstraint(fields=["name", "made_at"], name="approvals_channel_once")
        ]
        triggers = [
            pgtrigger.Protect(
                name="stays_ended", operation=pgtrigger.Update, condition=pgtrigger.Q(old__ended_at__isnull=False)
            )
        ]

    def __str__(self) -> str:
        return self.name


class Device(Coded):
    """A phone or browser that receives its owner's notifications even while no page is open.

    The device's address is encrypted, because knowing it is enough to send messages. Once ended, it can't be
    reactivated."""

    FREE = frozenset({"told_at", "ended_at", "why"})

    id = models.BigAutoField(primary_key=True)
    person = models.BigIntegerField(help_text="The account.")
    name = models.TextField(help_text="Name of the browser, as the browser reports it.")
    service = models.TextField(help_text="Host of the device's push service.")
    address = models.TextField(help_text="Endpoint and keys of the device, encrypted.")
    digest = models.BinaryField(max_length=32, help_text="Of the endpoint.")
    key = models.TextField(help_text="Public key of this installation that the subscription is bound to.")
    token_hash = models.BinaryField(max_length=32, help_text="Digest of the token that the browser stores.")
    made_at = models.DateTimeField()
    told_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    why = models.TextField(blank=True, default="", help_text="Reason for its end.")

    class Meta:
        db_table = "approvals_device"
        constraints = [
            models.UniqueConstraint(
                fields=["digest"], condition=models.Q(ended_at__isnull=True), name="approvals_device_once"
            ),
            # Unique, so that an ended row can't be inserted again with its old code.
            models.UniqueConstraint(fields=["digest", "made_at"], name="approvals_device_made_once"),
        ]
        indexes = [
            models.Index(fields=["person"], condition=models.Q(ended_at__isnull=True), name="approvals_device_of"),
            models.Index(fields=["token_hash"], name="approvals_device_browser"),
        ]
        triggers = [
            pgtrigger.Protect(
                name="device_stays_ended",
                operation=pgtrigger.Update,
                condition=pgtrigger.Q(old__ended_at__isnull=False),
            )
        ]

    def __str__(self) -> str:
        return self.name


class Delivery(models.Model):
    """One notice for one recipient over one medium."""

    class State(models.TextChoices):
        WAITING = "waiting"
        SENDING = "sending"
        SENT = "sent"
        NEEDLESS = "needless"
        DEAD = "dead"

    class By(models.TextChoices):
        EMAIL = "email"
        BROWSER = "browser"
        MAILBOX = "mailbox"
        WEBHOOK = "webhook"
        PUSH = "push"

    id = models.BigAutoField(primary_key=True)
    notice = models.ForeignKey(Notice, on_delete=models.CASCADE, related_name="deliveries")
    by = models.TextField(choices=By.choices)
    person = models.BigIntegerField(null=True)
    channel = models.ForeignKey(Channel, null=True, on_delete=models.PROTECT, related_name="deliveries")
    device = models.ForeignKey(Device, null=True, on_delete=models.PROTECT, related_name="deliveries")
    state = models.TextField(choices=State.choices, default=State.WAITING)
    is_grouped = models.BooleanField(default=False, help_text="Time when it is sent, together with other due ones.")
    message = models.UUIDField(
        null=True, help_text="Id of the message: the same for each attempt and for all of a group."
    )
    due_at = models.DateTimeField()
    tries = Tries(default=list, help_text="List of the attempts, each with at, outcome, why and message (its id).")
    note = models.TextField(blank=True, default="", help_text="Why the message was not sent, or is tried again.")
    made_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "approvals_delivery"
        constraints = [
            models.UniqueConstraint(
                fields=["notice", "by", "person", "channel", "device"],
                nulls_distinct=False,
                name="approvals_delivery_once",
            )
        ]
        indexes = [
            models.Index(
                fields=["by", "due_at", "id"],
                condition=models.Q(state__in=["waiting", "sending"]),
                name="approvals_delivery_due",
            ),
            models.Index(fields=["message"], condition=models.Q(message__isnull=False), name="approvals_delivery_sent"),
            models.Index(fields=["person", "by", "-made_at"], name="approvals_delivery_of"),
            models.Index(fields=["-made_at", "-id"], name="approvals_delivery_log"),
            models.Index(fields=["state", "-made_at", "-id"], name="approvals_delivery_by_state"),
        ]


def default_digest_time() -> time:
    """Return the default time of a daily digest."""
    return time(8)


class Preference(models.Model):
    """A person's notification settings.

    The kind's default applies to people without a row, and to kinds that the row lacks."""

    class Digest(models.TextChoices):
        NONE = "none"
        HOURLY = "hourly"
        DAILY = "daily"

    person = models.BigIntegerField(primary_key=True)
    ways = MediaByKind(default=dict, help_text="Media by kind of notification.")
    zone = models.TextField(default="UTC")
    quiet_from = models.TimeField(null=True)
    quiet_until = models.TimeField(null=True)
    digest = models.TextField(choices=Digest.choices, default=Digest.NONE)
    digest_at = models.TimeField(default=default_digest_time)
    changed_at = models.DateTimeField()

    class Meta:
        db_table = "approvals_preference"
