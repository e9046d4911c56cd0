"""Stored passkey signatures of decisions: see accounts/assertions.py."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import models

from durableagents.contrib.accounts.assertions import Signed, key_digest
from ledger.models import Json, append_only

YES = "a yes to a question"
_TEXTS = ("rp_id", "origin", "credential")
_BYTES = ("public_key", "authenticator_data", "client_data", "signature")


def terms_of_yes(approval_id: UUID, revision: int, plan_hash: str, verdict: str, person: int | None) -> dict[str, Any]:
    """Return the terms that a signature covers, except nonce and time."""
    return {
        "v": 1,
        "what": YES,
        "approval": str(approval_id),
        "revision": revision,
        "plan_hash": plan_hash,
        "verdict": verdict,
        "person": person,
    }


class Assertion(models.Model):
    """A passkey's signature of one decision. Rows are append-only, and each challenge can occur once.

    It needs no authentication code, because the decision and its event have such codes, and contain its digest."""

    id = models.BigAutoField(primary_key=True)
    run_id = models.UUIDField()
    decision = models.OneToOneField("approvals.Decision", on_delete=models.PROTECT, related_name="assertion")
    person = models.BigIntegerField(help_text="The account that the passkey belongs to.")
    challenge = models.BinaryField(max_length=32, unique=True)
    terms = Json(help_text="Signed values: question, revision, plan, verdict, person, number, time.")
    rp_id = models.TextField()
    origin = models.TextField()
    credential = models.TextField()
    public_key = models.BinaryField()
    authenticator_data = models.BinaryField()
    client_data = models.BinaryField()
    signature = models.BinaryField()

    class Meta:
        db_table = "approvals_assertion"
        indexes = [models.Index(fields=["run_id"], name="approvals_assertion_of")]
        triggers = append_only()

    def __str__(self) -> str:
        return f"assertion of account {self.person} for decision {self.decision_id}"

    @classmethod
    def of(cls, signed: Signed, *, decision: Any, run_id: Any) -> Assertion:
        """Build the row for a signature, without saving it."""
        parts = {name: getattr(signed, name) for name in ("terms", *_TEXTS, *_BYTES)}
        person = signed.terms["person"]
        return cls(run_id=run_id, decision=decision, person=person, challenge=signed.challenge, **parts)

    @property
    def signed(self) -> Signed:
        """Return the stored signature."""
        parts: dict[str, Any] = {name: bytes(getattr(self, name)) for name in _BYTES}
        return Signed(**parts, **{name: getattr(self, name) for name in ("terms", *_TEXTS)})

    @property
    def key(self) -> str:
        return key_digest(bytes(self.public_key))
