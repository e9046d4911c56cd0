"""What somebody agreed to as the second person: they have done it too."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

from ledger.models import ActRecord, RuleChange


def agreed_to(person: int | None, since: datetime) -> Iterator[dict[str, Any]]:
    """Each act of the changes of rules that somebody has put in force since then, as its record has it: `action`,
    `subject`, `queue`, `before`, `after`."""
    own = ActRecord.objects.filter(action="rule_change_apply", person=person, at__gte=since)
    named = [_id_in(subject) for subject in own.values_list("subject", flat=True)] if person is not None else []
    for told in RuleChange.objects.filter(pk__in=[each for each in named if each]).values_list("told", flat=True):
        yield from (each for each in told if isinstance(each, dict)) if isinstance(told, list) else ()


def _id_in(subject: str) -> UUID | None:
    try:
        return UUID(subject.partition(" ")[2])
    except ValueError:
        return None
