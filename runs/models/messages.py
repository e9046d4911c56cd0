"""What is said to a run while it is under way, and wants an answer."""

from django.db import models

from runs.models.run import Run


class Message(models.Model):
    """A request that a run was sent. What was said, and what was answered, stands in the events that tell of it."""

    class Outcome(models.TextChoices):
        WAITING = "", "waiting"
        ANSWERED = "answered"
        REFUSED = "refused"
        FAILED = "failed"
        ENDED = "ended"

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="messages")
    n = models.IntegerField(help_text="Its place among the run's messages, from 1.")
    name = models.TextField()
    by = models.TextField(help_text="Who sent it.")
    sender_id = models.TextField(null=True, help_text="The sender's own name for it: a repeat is the same message.")
    seq = models.BigIntegerField(help_text="The event of its coming.")
    outcome = models.TextField(blank=True, default="", db_default="", choices=Outcome.choices)
    answered_seq = models.BigIntegerField(null=True, help_text="The event of its answer.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "n"], name="runs_message_once"),
            models.UniqueConstraint(fields=["run", "by", "sender_id"], name="runs_message_sent_once"),
        ]
        indexes = [
            models.Index(fields=["run", "n"], condition=models.Q(outcome=""), name="runs_message_unanswered"),
        ]
