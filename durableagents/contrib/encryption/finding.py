"""Find runs in the database and in archives by business key, tag or agent, for requests for erasure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Q

from durableagents.contrib.encryption.erasure import SEES_TOO_LITTLE, entries
from ledger.errors import Forbidden, InvalidInput
from ledger.verification.archives import ListedRun, Sought, listed
from ledger.web.seeing.viewers import viewer
from runs import features
from runs.models import ENDED, Run, RunTag

LISTED = 50


@dataclass(frozen=True, slots=True)
class ErasableRun:
    """A run that matches. `kept` says why the run's content can't be erased now; it is empty if it can be."""

    run: ListedRun
    erased_at: datetime | None
    kept: str

    @property
    def where(self) -> str:
        if self.run.deleted_at is not None:
            return "deleted"
        return "database" if self.run.archived_at is None else "archive"


def find_runs(sought: Sought, limit: int = LISTED) -> list[ErasableRun]:
    """Return at most `limit` matching runs, newest first.

    Raises Forbidden for viewers who don't see all runs, since an incomplete list would mislead, and InvalidInput
    without a condition.
    """
    if not viewer().sees_all:
        raise Forbidden(SEES_TOO_LITTLE)
    if not (sought.business_key or sought.tag or sought.agent):
        fix = "give a business key, a tag or an agent"
        raise InvalidInput(
            f"Nothing to search by: {fix}.", errors=[{"field": "business_key", "problem": "is empty", "fix": fix}]
        )
    rows = sorted(
        [*_live(sought, limit), *listed(sought, limit)], key=lambda row: (row.created_at, row.run_id), reverse=True
    )[:limit]
    erased = entries([row.run_id for row in rows])
    return [
        ErasableRun(row, erased[row.run_id].at if row.run_id in erased else None, _why_kept(row, erased))
        for row in rows
    ]


def _live(sought: Sought, limit: int) -> list[ListedRun]:
    given = {"business_key": sought.business_key, "agent": sought.agent}
    rows = Run.objects.filter(**{name: text for name, text in given.items() if text})
    if sought.tag:
        rows = rows.filter(pk__in=RunTag.objects.filter(tag=sought.tag).values("run_id"))
    if sought.before is not None:
        at, run_id = sought.before
        rows = rows.filter(Q(created_at__lt=at) | Q(created_at=at, pk__lt=run_id))
    return [
        ListedRun(
            run_id=run.pk,
            agent=run.agent,
            version=run.version,
            state=run.state,
            business_key=run.business_key or "",
            created_at=run.created_at,
        )
        for run in rows.order_by("-created_at", "-pk")[:limit]
    ]


def _why_kept(row: ListedRun, erased: Mapping[UUID, object]) -> str:
    if row.run_id in erased:
        return "erased"
    if row.deleted_at is not None:
        return "its content is already gone"
    if row.archived_at is None and row.state not in ENDED:
        return "it has not ended"
    return features.removal_refusal(row.run_id) or ""
