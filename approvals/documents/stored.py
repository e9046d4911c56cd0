"""Read documents, with a question's statement or one by one, and check their bytes against their digest."""

from __future__ import annotations

import binascii
import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any
from uuid import UUID

from django.db.models import TextField
from django.db.models.expressions import RawSQL

from approvals.documents.models import Document, key_of
from ledger.contents import file_in
from runs.engine.gating.documents import TEXTS, Named, digest_of, named_in

GONE = "its bytes are not stored"
CHANGED = "the stored bytes are not those that the plan names"

# SQL: a question's documents as base64 by digest, except those already drawn, and the texts of the previous revision.
# It reads the row's lists, which are checked against the plan: the plan's bytes might be anything.
_CONTENTS = """
    (SELECT json_object_agg(d.digest, encode(d.content, 'base64')) FROM approvals_document d WHERE d.digest IN (
        SELECT x->>'sha256' FROM jsonb_array_elements(
            CASE jsonb_typeof(approvals_approval.documents) WHEN 'array' THEN approvals_approval.documents
                 ELSE coalesce(approvals_approval.documents -> 'shown', '[]'::jsonb) END) x
        WHERE x->>'media_type' = ANY(%s)
           OR approvals_approval.id = %s AND NOT x->>'sha256' = ANY(%s)))::text"""
_OF_TWO = f"""
    CASE WHEN approvals_approval.id = %s OR approvals_approval.id = (
        SELECT p.previous_id FROM approvals_approval p WHERE p.id = %s) THEN {_CONTENTS} END"""


def along(approval_id: UUID, drawn: Collection[str]) -> RawSQL:
    """Return annotations for this question's undrawn documents, and the texts of its previous revision."""
    names = [*drawn, *map(key_of, drawn)]
    return RawSQL(_OF_TWO, [approval_id, approval_id, sorted(TEXTS), approval_id, names], output_field=TextField())


def contents_in(told: str | None, plan: Any) -> dict[str, bytes]:
    """Return the annotated documents of a plan by digest; empty without annotation."""
    found: Mapping[str, Any] = json.loads(told) if told else {}
    try:
        digests = {key_of(each.digest): each.digest for each in named_in(plan)}
    except ValueError:
        return {}
    contents = {name: _content_in(binascii.a2b_base64(text)) for name, text in (found or {}).items()}
    return {digests.get(name, name): content for name, content in contents.items()}


def contents_of(named: Iterable[Named]) -> dict[str, bytes]:
    digests = {key_of(each.digest): each.digest for each in named}
    rows = Document.objects.filter(digest__in=[*digests, *digests.values()])
    return {digests.get(row.digest, row.digest): _content_in(row.content) for row in rows}


def _content_in(stored: bytes | memoryview) -> bytes:
    """Return a document's bytes; what is stored if it can't be decrypted, which `unsound` then tells."""
    try:
        return file_in(stored)
    except ValueError:
        return bytes(stored)


def unsound(named: Named, content: bytes | None) -> str:
    """Return why the bytes don't match the document that a plan names; empty if they do."""
    if content is None:
        return GONE
    return "" if digest_of(content) == named.digest and len(content) == named.size else CHANGED
