"""The bytes of documents by their digest: what a plan names is what is shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import models
from django.db.models import F, Func, Q

from ledger.codes import mac
from ledger.contents import INSTALLATION, stored_file
from ledger.keys import word_key
from ledger.models import append_only

KEYED = "hmac-sha256:"

# As the database computes them.
_DIGEST = Func(F("content"), template="encode(sha256(%(expressions)s), 'hex')", output_field=models.TextField())
_SIZE = Func(F("content"), function="octet_length", output_field=models.IntegerField())

_IS_KEYED = Q(digest__startswith=KEYED)


def key_of(digest: str) -> str:
    """Return the name in the table of an encrypted document, by the digest of its bytes. Nobody without the
    installation's key can name a document before it is stored, nor learn from the table what it contains."""
    return KEYED + mac(word_key(), b"document\x00" + digest.encode()).hex()


def as_stored(contents: Mapping[str, bytes]) -> list[list[Any]]:
    """Return documents by digest as columns: names, stored bytes and sizes."""
    rows = []
    for digest, content in contents.items():
        stored = stored_file(content, INSTALLATION)
        rows.append((digest if stored is content else key_of(digest), stored, len(content)))
    return [list(column) for column in zip(*rows, strict=True)]


def listed_in_row(documents: list[Any]) -> list[dict[str, str]]:
    """Return what SQL needs of a question's documents, which are encrypted: their types, and their names in the
    table."""
    return [{"media_type": each["media_type"], "sha256": key_of(each["sha256"])} for each in documents]


class Document(models.Model):
    """A document's bytes. The table refuses bytes that don't match the digest. Encrypted ones have a keyed digest, and
    are compared when they are read (stored.py). Documents are shared by runs, so their key is the installation's."""

    digest = models.TextField(primary_key=True)
    size = models.IntegerField()
    content = models.BinaryField()
    stored_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(digest=_DIGEST) | _IS_KEYED, name="approvals_document_is_its_digest"),
            models.CheckConstraint(condition=Q(size=_SIZE) | _IS_KEYED, name="approvals_document_has_its_size"),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.digest[:8]}… of {self.size} bytes"
