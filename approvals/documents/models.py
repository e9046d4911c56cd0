"""The bytes of documents by their digest: what a plan names is what is shown."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Func, Q

from ledger.models import append_only

# As the database computes them.
_DIGEST = Func(F("content"), template="encode(sha256(%(expressions)s), 'hex')", output_field=models.TextField())
_SIZE = Func(F("content"), function="octet_length", output_field=models.IntegerField())


class Document(models.Model):
    """A document's bytes. The table refuses bytes that don't match the digest."""

    digest = models.TextField(primary_key=True)
    size = models.IntegerField()
    content = models.BinaryField()
    stored_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(digest=_DIGEST), name="approvals_document_is_its_digest"),
            models.CheckConstraint(condition=Q(size=_SIZE), name="approvals_document_has_its_size"),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.digest[:8]}… of {self.size} bytes"
