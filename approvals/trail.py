"""The audit's list: acts of people from two append-only tables, merged by time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import QuerySet

from approvals.models import Decision
from ledger.models import OverrideRecord

PAGE = 50
DECISIONS = {"approve": "approved", "reject": "rejected"}
OVERRIDES = ("pause", "resume", "cancel", "retry", "reconcile")
_HEX = re.compile(r"[0-9a-f]{4,32}")


@dataclass(frozen=True, slots=True)
class Act:
    """One thing that a person did. `kind` names the template that words it: override or decision."""

    kind: str
    at: datetime
    run_id: UUID
    action: str
    by: str
    role: str
    auth: str
    address: str
    justification: str
    record: Any


@dataclass(frozen=True, slots=True)
class Filters:
    """What the address asks for."""

    action: str = ""
    by: str = ""
    run: str = ""
    before: str = ""

    @classmethod
    def of(cls, query: Any) -> Filters:
        """From a request's query string."""
        names = ("action", "by", "run", "before")
        return cls(**{name: str(query.get(name, "")).strip().replace("\x00", "")[:200] for name in names})

    @property
    def is_any(self) -> bool:
        return bool(self.action or self.by or self.run)

    def link(self, **change: str) -> str:
        """The query string with some filters changed."""
        now = {"action": self.action, "by": self.by, "run": self.run, **change}
        return "?" + urlencode({name: value for name, value in now.items() if value})

    @property
    def moment(self) -> datetime | None:
        """The cursor; one that was cut or made up means the first page."""
        try:
            at = datetime.fromisoformat(self.before)
        except ValueError:
            return None
        return at if at.tzinfo else None


def acts(filters: Filters) -> tuple[list[Act], str]:
    """One page of acts, newest first, and the query string of the next page."""
    found: list[Act] = []
    if filters.action not in DECISIONS:
        found += [_override(row) for row in _overrides(filters)[: PAGE + 1]]
    if filters.action not in OVERRIDES:
        found += [_decision(row) for row in _decisions(filters)[: PAGE + 1]]
    found.sort(key=lambda act: act.at, reverse=True)
    more = filters.link(before=found[PAGE - 1].at.isoformat()) if len(found) > PAGE else ""
    return found[:PAGE], more


def _overrides(filters: Filters) -> QuerySet[OverrideRecord]:
    rows = OverrideRecord.objects.order_by("-at")
    if filters.action:
        rows = rows.filter(action=filters.action)
    if filters.run:
        rows = rows.filter(**_run(filters.run, "run_id"))
    return _common(rows, filters)


def _decisions(filters: Filters) -> QuerySet[Decision]:
    rows = Decision.objects.select_related("approval").order_by("-at")
    if filters.action:
        rows = rows.filter(verdict=filters.action)
    if filters.run:
        rows = rows.filter(**_run(filters.run, "approval__run_id"))
    return _common(rows, filters)


def _common(rows: QuerySet[Any], filters: Filters) -> QuerySet[Any]:
    if filters.by:
        rows = rows.filter(by__icontains=filters.by)
    return rows.filter(at__lt=filters.moment) if filters.moment else rows


def _run(text: str, column: str) -> dict[str, Any]:
    """A run by its id or the beginning of it; what can't be one matches nothing."""
    digits = text.lower().replace("-", "")
    if not _HEX.fullmatch(digits):
        return {f"{column}__in": []}
    return {f"{column}__gte": UUID(digits.ljust(32, "0")), f"{column}__lte": UUID(digits.ljust(32, "f"))}


def _override(row: OverrideRecord) -> Act:
    return Act("override", row.at, row.run_id, row.action, row.by, row.role, row.auth, row.address, row.justification, row)


def _decision(row: Decision) -> Act:
    return Act("decision", row.at, row.approval.run_id, row.verdict, row.by, row.role, row.auth, row.address, row.justification, row)
