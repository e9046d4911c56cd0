"""Notices, deliveries, channels, devices and preferences. A notice is written with its event (approvals/sql/) without
content, and grants nothing. A channel decides where cases are sent, so it has a code."""

from __future__ import annotations

from datetime import time
from typing import Any

import pgtrigger
from django.db import models

from approvals.queue_models import Queue
from ledger.models import Coded, Json

_OF_A_TRY = ("at", "outcome", "why")


class Notice(models.Model):
    """An event to notify people of. `fact` is unique, so it is written once."""

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
        null=True, help_text="Empty: everyone the kind is for; otherwise this account alone."
    )
    about = models.TextField(blank=True, default="", help_text="What has no row of its own: an agent's version.")
    state = models.TextField(choices=State.choices, default=State.NEW)
    note = models.TextField(blank=True, default="")
    at = models.DateTimeField()
    due_at = models.DateTimeField()

    class Meta:
        indexes = [
            models.Index(fields=["due_at", "id"], condition=models.Q(state="new"), name="approvals_notice_due"),
            models.Index(fields=["kind", "about", "-at"], condition=~models.Q(about=""), name="approvals_notice_about"),
            models.Index(fields=["at"], name="approvals_notice_old"),
        ]


class Kinds(Json):
    """A list of texts; empty for anything else."""

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> list[str]:
        read = super().from_db_value(value, expression, connection)
        return [each for each in read if isinstance(each, str)] if isinstance(read, list) else []


class Tries(Json):
    """A list of outcomes of tries; invalid ones are dropped."""

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> list[dict[str, str]]:
        read = super().from_db_value(value, expression, connection)
        return [{"message": "", **each} for each in read if _is_try(each)] if isinstance(read, list) else []


class Ways(Json):
    """Lists of texts by name; empty for anything else."""

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> dict[str, list[str]]:
        read = super().from_db_value(value, expression, connection)
        return {name: ways for name, ways in read.items() if _is_texts(ways)} if isinstance(read, dict) else {}


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_try(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(name), str) for name in _OF_A_TRY)


class Channel(Coded):
    """A chat or shared mailbox of a queue; without a queue, of the operators."""

    class Form(models.TextChoices):
        WEBHOOK = "webhook"
        MAILBOX = "mailbox"

    id = models.BigAutoField(primary_key=True)
    queue = models.ForeignKey(Queue, null=True, on_delete=models.PROTECT, related_name="channels")
    form = models.TextField(choices=Form.choices)
    name = models.TextField()
    # Encrypted, since a webhook's address is the right to write there. `shown` is its public part.
    address = models.TextField()
    shown = models.TextField()
    kinds = Kinds()
    set_by = models.TextField()
    made_at = models.DateTimeField()
    changed_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            # An ended row can't be inserted again with its old code.
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
    """A phone or browser that gets its person's notices while no page is open. Its address is encrypted, since knowing
    it is the right to write there, and it decides where news go, so it has a code. An ended one stays ended."""

    FREE = frozenset({"told_at", "ended_at", "why"})

    id = models.BigAutoField(primary_key=True)
    person = models.BigIntegerField(help_text="The account.")
    name = models.TextField(help_text="What its browser calls itself.")
    service = models.TextField(help_text="The host of its push service.")
    address = models.TextField(help_text="Its endpoint and keys, sealed.")
    digest = models.BinaryField(max_length=32, help_text="Of the endpoint, by which it is found again.")
    key = models.TextField(help_text="The installation's public key that it is bound to.")
    token_hash = models.BinaryField(max_length=32, help_text="Of what its browser keeps: by that it signs out.")
    made_at = models.DateTimeField()
    told_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    why = models.TextField(blank=True, default="", help_text="Why it has ended.")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["digest"], condition=models.Q(ended_at__isnull=True), name="approvals_device_once"
            ),
            # An ended row can't be inserted again with its old code.
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
    """One notice for one recipient by one channel. `tries` has time, outcome and reason of each."""

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
    is_grouped = models.BooleanField(default=False, help_text="Told together with what else is due then.")
    message = models.UUIDField(null=True, help_text="What it is sent as: the same for each try, and for a group.")
    due_at = models.DateTimeField()
    tries = Tries(default=list)
    note = models.TextField(blank=True, default="", help_text="Why it was not sent, or is tried again.")
    made_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
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
    """A person's notification settings. Without a row, or without a kind in it, the kind's own rule applies."""

    class Digest(models.TextChoices):
        NONE = "none"
        HOURLY = "hourly"
        DAILY = "daily"

    person = models.BigIntegerField(primary_key=True)
    ways = Ways(default=dict, help_text="Kind → the ways in which they are told of it.")
    zone = models.TextField(default="UTC")
    quiet_from = models.TimeField(null=True)
    quiet_until = models.TimeField(null=True)
    digest = models.TextField(choices=Digest.choices, default=Digest.NONE)
    digest_at = models.TimeField(default=default_digest_time)
    changed_at = models.DateTimeField()
