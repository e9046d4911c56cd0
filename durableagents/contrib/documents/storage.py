"""Store documents in the statement that stores their question, read them, and check them against their digest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from approvals.models import key_of
from durableagents.contrib.documents.models import Document
from ledger.contents import INSTALLATION, file_in, stored_file
from runs.engine.gating.documents import Named, digest_of

MISSING = "its bytes are not stored"
CHANGED = "the stored bytes do not match the plan's digest"

# Each digest is stored once, in the order of digests to avoid deadlocks. The table refuses unencrypted bytes that don't
# match their digest.
_STORE = """
WITH stored AS (
    INSERT INTO approvals_document (digest, size, content, stored_at)
    SELECT d.digest, d.size, d.content, clock_timestamp()
    FROM unnest(%s::text[], %s::bytea[], %s::int[]) AS d (digest, content, size)
    ORDER BY d.digest ON CONFLICT DO NOTHING)
"""


def store_statement(contents: Mapping[str, bytes]) -> tuple[str, list[Any]]:
    """Return the WITH clause that stores these documents by digest, and its values."""
    rows = []
    for digest, content in contents.items():
        stored = stored_file(content, INSTALLATION)
        rows.append((digest if stored is content else key_of(digest), stored, len(content)))
    return _STORE, [list(column) for column in zip(*rows, strict=True)]


def read_contents(documents: Iterable[Named]) -> dict[str, bytes]:
    """Return the bytes of documents by digest.

    If they can't be decrypted, the stored bytes are returned, and `mismatch` then reports the difference.
    """
    digests = {key_of(each.digest): each.digest for each in documents}
    rows = Document.objects.filter(digest__in=[*digests, *digests.values()]) if digests else ()
    return {digests.get(row.digest, row.digest): _decrypted(row.content) for row in rows}


def _decrypted(stored: bytes | memoryview) -> bytes:
    try:
        return file_in(stored)
    except ValueError:
        return bytes(stored)


def mismatch(document: Named, content: bytes | None) -> str:
    """Return why the bytes aren't those of the document that a plan names; empty if they are."""
    if content is None:
        return MISSING
    return "" if digest_of(content) == document.digest and len(content) == document.size else CHANGED
