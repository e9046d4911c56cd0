"""Documents that plans name, held against their bytes: see ledger/verification/runs.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from approvals.documents.models import Document
from approvals.documents.stored import unsound
from runs.engine.gate.documents import DOCUMENTS, named_in


def document_problems(what: str, row: Any, plan: Any) -> Iterator[str]:
    """What is wrong with the documents of one question, whose `row` lists them as its plan does."""
    told = plan.get(DOCUMENTS, []) if isinstance(plan, dict) else []
    if row.documents != told:
        yield f"{what}: documents are not what the plan says"
    try:
        listed = named_in(plan)
    except ValueError as error:
        yield f"{what}: {error}"
        return
    for n, named in enumerate(listed, 1):
        stored = Document.objects.filter(digest=named.digest).first()
        if problem := unsound(named, None if stored is None else bytes(stored.content)):
            yield f"{what}: document {n} ({named.name!r}): {problem}"
