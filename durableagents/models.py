"""API keys: how programs prove who they are. And what is left of attempts to sign in."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class ApiKey(models.Model):
    """A bearer token of one user. Only its digest is kept; `prefix` lets a person recognise it."""

    # The token itself, on the object that has just been issued and nowhere else.
    shown_once: str = ""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_keys")
    name = models.TextField()
    prefix = models.TextField()
    # A plain SHA-256 is enough: tokens are 256 random bits, there is nothing to guess or to salt.
    hash = models.BinaryField(max_length=32, unique=True)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    budget = models.JSONField(
        null=True,
        blank=True,
        help_text='The most that it may give to a run: {"usd": "5.00", "steps": 200}. Empty: as much as it likes.',
    )

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


class MasterKey(models.Model):
    """The one row by which a process sees whether its master key is this database's. See keys.py."""

    id = models.SmallIntegerField(primary_key=True)
    salt = models.BinaryField(max_length=16)
    proof = models.BinaryField(max_length=32)
    stored_at = models.DateTimeField()

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="durableagents_masterkey_is_one")]

    def __str__(self) -> str:
        return "master key"


class Attempts(models.Model):
    """How much of an allowance is used up: it is full again at `until`. See throttle.py; the table is unlogged."""

    key = models.BinaryField(max_length=32, primary_key=True)
    until = models.DateTimeField()

    def __str__(self) -> str:
        return f"{bytes(self.key).hex()[:8]}… until {self.until}"
