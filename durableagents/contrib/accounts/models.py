"""Models of invitations, the set-up link, and sessions of accounts."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from ledger.models import Json


class SetupLink(models.Model):
    """The link for the first administrator, as a digest. A newer link replaces it."""

    id = models.SmallIntegerField(primary_key=True)
    token_hash = models.BinaryField(max_length=32)
    made_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "durableagents_setuplink"
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="durableagents_setuplink_is_one")]

    def __str__(self) -> str:
        return f"set-up link of {self.made_at}"


class Invitation(models.Model):
    """An invitation with name, address and roles."""

    username = models.TextField()
    email = models.TextField()
    roles = Json()
    is_admin = models.BooleanField()
    token_hash = models.BinaryField(max_length=32, unique=True)
    made_by = models.TextField()
    maker = models.BigIntegerField()  # an id instead of a foreign key, because the account may be deleted later
    made_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True)
    accepted_at = models.DateTimeField(null=True)
    account = models.BigIntegerField(null=True)

    class Meta:
        db_table = "durableagents_invitation"
        constraints = [
            models.UniqueConstraint(
                fields=["username"],
                condition=models.Q(revoked_at__isnull=True, accepted_at__isnull=True),
                name="durableagents_invitation_one_open",
            )
        ]
        indexes = [models.Index(fields=["-made_at"], name="durableagents_invitation_new")]

    def __str__(self) -> str:
        return f"invitation of {self.username}"


class SignedIn(models.Model):
    """A session of an account, by the digest of its key. Sessions themselves are signed and can't be searched."""

    key = models.BinaryField(max_length=32, primary_key=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="signed_in")
    since = models.DateTimeField()
    address = models.TextField()
    browser = models.TextField()
    # The digest of Django's session hash. A new password changes that hash, which ends the session.
    auth_hash = models.BinaryField(max_length=32)

    class Meta:
        db_table = "durableagents_signedin"

    def __str__(self) -> str:
        return f"session {bytes(self.key).hex()[:8]}… of {self.user_id}"
