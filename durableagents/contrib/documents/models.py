"""The bytes of documents, stored by their digest, so that people see exactly the document that a plan names."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Func, Q

from approvals.models import KEYED
from ledger.models import append_only

# Digest and size, computed as the check constraints do.
_DIGEST = Func(F("content"), template="encode(sha256(%(expressions)s), 'hex')", output_field=models.TextField())
_SIZE = Func(F("content"), function="octet_length", output_field=models.IntegerField())
_IS_KEYED = Q(digest__startswith=KEYED)


class Document(models.Model):
    """A document's bytes. The table refuses bytes that don't match the digest.

    Encrypted documents have a keyed digest; their bytes are checked when they are read (storage.py). Runs share
    documents, so documents are encrypted under the installation's key.
    """

    digest = models.TextField(primary_key=True)
    size = models.IntegerField()
    content = models.BinaryField()
    stored_at = models.DateTimeField()

    class Meta:
        db_table = "approvals_document"
        constraints = [
            models.CheckConstraint(condition=Q(digest=_DIGEST) | _IS_KEYED, name="approvals_document_is_its_digest"),
            models.CheckConstraint(condition=Q(size=_SIZE) | _IS_KEYED, name="approvals_document_has_its_size"),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.digest[:8]}… of {self.size} bytes"
