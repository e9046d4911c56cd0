"""Documents as they are read: along with the statement that reads a question, or one by one; and never without holding
their bytes against their digest."""

from __future__ import annotations

import binascii
import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any
from uuid import UUID

from django.db.models import TextField
from django.db.models.expressions import RawSQL

from approvals.documents.models import Document
from runs.engine.gate.documents import TEXTS, Named, digest_of

GONE = "its bytes are not stored"
CHANGED = "the stored bytes are not those that the plan names"

# By digest, as base64: those of a question, but for what this process has drawn already; and the texts of the one
# before, which they are compared with. The rows' own lists are asked: what they say is held against the plan, whose
# bytes might be anything.
_CONTENTS = """
    (SELECT json_object_agg(d.digest, encode(d.content, 'base64')) FROM approvals_document d WHERE d.digest IN (
        SELECT x->>'sha256' FROM jsonb_array_elements(
            CASE jsonb_typeof(approvals_approval.documents) WHEN 'array' THEN approvals_approval.documents
                 ELSE '[]'::jsonb END) x
        WHERE x->>'media_type' = ANY(%s)
           OR approvals_approval.id = %s AND NOT x->>'sha256' = ANY(%s)))::text"""
_OF_TWO = f"""
    CASE WHEN approvals_approval.id = %s OR approvals_approval.id = (
        SELECT p.previous_id FROM approvals_approval p WHERE p.id = %s) THEN {_CONTENTS} END"""


def along(approval_id: UUID, drawn: Collection[str]) -> RawSQL:
    """What to annotate questions with: the documents of the one with this id, but for the digests of those that are
    `drawn` already, and the texts of its revision before."""
    return RawSQL(
        _OF_TWO, [approval_id, approval_id, sorted(TEXTS), approval_id, list(drawn)], output_field=TextField()
    )


def contents_in(told: str | None) -> dict[str, bytes]:
    """By digest, what was read along; empty where nothing was."""
    found: Mapping[str, Any] = json.loads(told) if told else {}
    return {digest: binascii.a2b_base64(text) for digest, text in (found or {}).items()}


def contents_of(named: Iterable[Named]) -> dict[str, bytes]:
    rows = Document.objects.filter(digest__in={each.digest for each in named})
    return {row.digest: bytes(row.content) for row in rows}


def unsound(named: Named, content: bytes | None) -> str:
    """Why these bytes are not the document that a plan names, in words; empty where they are."""
    if content is None:
        return GONE
    return "" if digest_of(content) == named.digest and len(content) == named.size else CHANGED
