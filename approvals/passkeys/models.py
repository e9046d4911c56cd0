"""The assertion beside a decision: see signed.py."""

from __future__ import annotations

from typing import Any

from django.db import models

from approvals.passkeys.signed import Signed, key_digest
from ledger.models import Json, append_only


class Assertion(models.Model):
    """What a passkey signed for one decision. Append-only; a challenge is there once. It needs no code of its own: the
    decision and its event, which have one, name its digest."""

    id = models.BigAutoField(primary_key=True)
    run_id = models.UUIDField()
    decision = models.OneToOneField("approvals.Decision", on_delete=models.PROTECT, related_name="assertion")
    person = models.BigIntegerField(help_text="The account whose passkey it is.")
    challenge = models.BinaryField(max_length=32, unique=True)
    terms = Json(help_text="What was signed: question, revision, plan, verdict, person, number, time.")
    rp_id = models.TextField()
    origin = models.TextField()
    credential = models.TextField()
    public_key = models.BinaryField()
    authenticator_data = models.BinaryField()
    client_data = models.BinaryField()
    signature = models.BinaryField()

    class Meta:
        indexes = [models.Index(fields=["run_id"], name="approvals_assertion_of")]
        triggers = append_only()

    def __str__(self) -> str:
        return f"assertion of account {self.person} for decision {self.decision_id}"

    @classmethod
    def of(cls, signed: Signed, *, decision: Any, run_id: Any) -> Assertion:
        """The row that keeps it, not saved yet."""
        return cls(
            run_id=run_id,
            decision=decision,
            person=signed.terms["person"],
            challenge=signed.challenge,
            terms=signed.terms,
            rp_id=signed.rp_id,
            origin=signed.origin,
            credential=signed.credential,
            public_key=signed.public_key,
            authenticator_data=signed.authenticator_data,
            client_data=signed.client_data,
            signature=signed.signature,
        )

    @property
    def signed(self) -> Signed:
        """What it keeps."""
        return Signed(
            terms=self.terms,
            rp_id=self.rp_id,
            origin=self.origin,
            credential=self.credential,
            public_key=bytes(self.public_key),
            authenticator_data=bytes(self.authenticator_data),
            client_data=bytes(self.client_data),
            signature=bytes(self.signature),
        )

    @property
    def key(self) -> str:
        return key_digest(bytes(self.public_key))
