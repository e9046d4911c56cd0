"""Webhooks, their messages, and the log of attempts."""

from __future__ import annotations

import pgtrigger
from django.contrib.postgres.fields import ArrayField
from django.db import models

from ledger.models import Coded, Json, append_only


class Webhook(Coded):
    """An endpoint of another program, and the messages that it receives. Empty filters match every run.

    The row decides where messages are sent, so it has an authentication code. No messages are sent for a row written
    with plain SQL, which has no valid code.
    """

    FREE = frozenset({"failing_since"})

    class State(models.TextChoices):
        ACTIVE = "active"
        PAUSED = "paused"
        DISABLED = "disabled"
        ENDED = "ended"

    id = models.BigAutoField(primary_key=True)
    name = models.TextField()
    # Encrypted, because knowing an address may be enough to post there. `shown` is its public part.
    address = models.TextField()
    shown = models.TextField()
    events = ArrayField(models.TextField())
    agent = models.TextField(blank=True, default="")
    tag = models.TextField(blank=True, default="")
    queue = models.TextField(blank=True, default="", help_text="Limits messages about approvals only.")
    key_prefix = models.TextField(blank=True, default="", help_text="Beginning of the run's business key.")
    started_by = models.BigIntegerField(null=True, help_text="The account that started the run.")
    has_content = models.BooleanField(default=False, help_text="Messages contain what the creator may read.")
    creator = models.BigIntegerField(null=True, help_text="The account whose rights limit the content.")
    secret = models.TextField(help_text="Encrypted.")
    previous_secret = models.TextField(
        blank=True, default="", help_text="The old secret, encrypted; valid until `previous_until`."
    )
    previous_until = models.DateTimeField(null=True)
    state = models.TextField(choices=State.choices, default=State.ACTIVE)
    why = models.TextField(blank=True, default="", help_text="Why it is paused or disabled.")
    failing_since = models.DateTimeField(null=True, help_text="The first failure after the last success.")
    set_by = models.TextField()
    made_at = models.DateTimeField()
    changed_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["name"], condition=~models.Q(state="ended"), name="webhooks_webhook_one_of_name"
            ),
            # Unique, so that an ended row can't be inserted again with its old code.
            models.UniqueConstraint(fields=["name", "made_at"], name="webhooks_webhook_once"),
        ]
        triggers = [
            pgtrigger.Protect(name="stays_ended", operation=pgtrigger.Update, condition=pgtrigger.Q(old__state="ended"))
        ]

    def __str__(self) -> str:
        return self.name


class Message(models.Model):
    """A message to a webhook. Ids increase: of two messages about a run, the later one has the higher id."""

    class State(models.TextChoices):
        WAITING = "waiting", "waiting"
        SENDING = "sending", "sending"
        SENT = "sent", "sent"
        FAILED = "failed", "failed"
        NOT_SENT = "not_sent_any_more", "no longer sent"

    OPEN = (State.WAITING, State.SENDING)

    id = models.BigAutoField(primary_key=True)
    webhook = models.ForeignKey(Webhook, on_delete=models.PROTECT, related_name="messages")
    message = models.UUIDField(help_text="Id for the receiver, the same at each attempt.")
    event = models.TextField()
    run_id = models.UUIDField(null=True)
    facts = Json(help_text="Ids, states and codes at the time of the event.")
    at = models.DateTimeField()
    state = models.TextField(choices=State.choices, default=State.WAITING)
    due_at = models.DateTimeField(
        help_text="Time when a message being sent is sent again, unless an outcome is recorded."
    )
    attempts = models.SmallIntegerField(default=0, help_text="Attempts since it was created or replayed.")
    note = models.TextField(blank=True, default="")
    ended_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["webhook", "due_at", "id"],
                condition=models.Q(state__in=["waiting", "sending"]),
                name="webhooks_message_due",
            ),
            models.Index(
                fields=["webhook", "run_id", "id"],
                condition=models.Q(state__in=["waiting", "sending"]),
                name="webhooks_message_of_run",
            ),
            models.Index(fields=["webhook", "-id"], name="webhooks_message_log"),
            models.Index(fields=["at"], name="webhooks_message_old"),
        ]

    def __str__(self) -> str:
        return f"msg_{self.message.hex}"


class Attempt(models.Model):
    """One attempt to send a message.

    Its outcome is sent, failed, or unknown (the worker died before it recorded one)."""

    id = models.BigAutoField(primary_key=True)
    message = models.ForeignKey(Message, on_delete=models.DO_NOTHING, related_name="log")
    at = models.DateTimeField()
    outcome = models.TextField()
    status = models.SmallIntegerField(null=True, help_text="HTTP status.")
    milliseconds = models.IntegerField(null=True)
    answer = models.TextField(blank=True, default="", help_text="The first bytes of the response, escaped.")
    why = models.TextField(blank=True, default="")

    class Meta:
        triggers = append_only()
