"""Models of API keys, own tags, master keys, throttling and ended sessions."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class ApiKey(models.Model):
    """A bearer token of one user. Only the token's digest is stored; `prefix` lets people recognise it."""

    # The token itself; only set on the object of a key that was just issued.
    shown_once: str = ""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_keys")
    name = models.TextField()
    prefix = models.TextField()
    # A plain SHA-256 is enough: 256 random bits can't be guessed and need no salt.
    hash = models.BinaryField(max_length=32, unique=True)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    budget = models.JSONField(
        null=True,
        blank=True,
        help_text='The highest budget that it may grant to a run: {"usd": "5.00", "steps": 200}. Empty: no limit.',
    )

    class Meta:
        # This permission lets accounts issue API keys to themselves.
        permissions = [("issue_own_key", "Can issue API keys to themselves")]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


class OwnTag(models.Model):
    """An own tag: its account may see the runs with this tag.

    A tag is given once, removed once, and its row never deleted.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="own_tags")
    tag = models.CharField(max_length=200, help_text="In the form used on runs: late, or tenant:acme.")
    given_at = models.DateTimeField()
    given_for = models.TextField("reason", max_length=2000, help_text="Why the account may see runs with this tag.")
    taken_at = models.DateTimeField(null=True, blank=True)
    taken_for = models.TextField("reason to take it", max_length=2000, blank=True, default="", db_default="")

    class Meta:
        # This permission lets accounts read all payloads. Payloads of an account's own runs need no
        # permission (ledger/web/seeing).
        permissions = [("read_payloads", "Can read the payloads of runs")]
        constraints = [
            models.UniqueConstraint(
                fields=["user", "tag"], condition=models.Q(taken_at__isnull=True), name="durableagents_owntag_once"
            ),
            models.CheckConstraint(
                condition=~models.Q(tag="") & ~models.Q(given_for=""), name="durableagents_owntag_says_why"
            ),
            models.CheckConstraint(
                condition=models.Q(taken_at__isnull=True) | ~models.Q(taken_for=""),
                name="durableagents_owntag_says_why_not",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tag} of {self.user}"


class MasterKey(models.Model):
    """The single row that proves which master key belongs to this database. See keys.py."""

    id = models.SmallIntegerField(primary_key=True)
    salt = models.BinaryField(max_length=16)
    proof = models.BinaryField(max_length=32)
    stored_at = models.DateTimeField()

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="durableagents_masterkey_is_one")]

    def __str__(self) -> str:
        return "master key"


class Attempts(models.Model):
    """The used part of an allowance, which is full again at `until`. See throttle.py. The table is unlogged."""

    key = models.BinaryField(max_length=32, primary_key=True)
    until = models.DateTimeField()

    def __str__(self) -> str:
        return f"{bytes(self.key).hex()[:8]}… until {self.until}"


class EndedSession(models.Model):
    """An ended session.

    A trigger writes the row. It is kept for a day, which is longer than a session can last.
    """

    session_key = models.TextField(primary_key=True)
    ended_at = models.DateTimeField()
