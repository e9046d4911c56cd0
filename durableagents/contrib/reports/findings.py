"""What people do with findings: report a duplicate effect, and close a finding with its root cause.

Both are recorded.
"""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID, uuid4

from django.db import transaction
from pydantic import Field

from durableagents.contrib.reports.models import Closure, Finding
from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, NotFound
from ledger.web.seeing.viewers import must_see
from runs.services import lifecycle
from runs.services.bodies import SteerBody


class FindingBody(SteerBody):
    """A duplicate effect that a person has seen.

    The justification tells what happened twice, and how the person knows."""

    run_id: Annotated[UUID, Field(strict=False)] | None = Field(
        default=None, description="Run whose effect happened twice; leave it out if unknown."
    )
    tool: str = Field(default="", max_length=200, description="Tool whose effect happened twice, if known.")


class ClosureBody(SteerBody):
    """The result of an investigation. The justification is the root cause, or why the fact is harmless."""

    verdict: Literal["duplicate", "no_duplicate"] = Field(description="Whether the effect happened twice.")


class FindingClosed(DurableAgentsError):
    """The finding has already been closed."""

    status, code, title = 409, "finding-closed", "The finding is closed"

    def __init__(self, finding: Finding) -> None:
        super().__init__(
            f"Finding {finding.pk} was closed by {finding.closure.by} on {finding.closure.at:%Y-%m-%d %H:%M} UTC as "
            f"{finding.closure.verdict.replace('_', ' ')}. Report a new finding if that was wrong."
        )


@transaction.atomic
def report(body: FindingBody, *, by: Actor) -> Finding:
    """Store a finding that a person reports. Raises NotFound, JustificationRequired."""
    what = justified("Reporting a duplicate effect", body.justification)
    if body.run_id is not None:
        must_see(body.run_id)
        lifecycle.find(body.run_id)
    now = database_now()
    finding = Finding.objects.create(
        kind=Finding.Kind.PERSON,
        key=f"person:{uuid4()}",
        run_id=body.run_id,
        tool=body.tool.strip(),
        what=what,
        fact_at=now,
        found_at=now,
        by=by.ref,
    )
    after = {"finding": finding.pk, "run": str(body.run_id or ""), "tool": finding.tool}
    acted("finding_report", by=by, subject=f"finding {finding.pk}", justification=what, after=after, at=now)
    return finding


@transaction.atomic
def close(finding_id: int, body: ClosureBody, *, by: Actor) -> Finding:
    """Close a finding. Raises NotFound, FindingClosed, JustificationRequired."""
    why = justified("Closing a finding", body.justification)
    finding = Finding.objects.filter(pk=finding_id).first()
    if finding is None:
        raise NotFound("finding", finding_id)
    now = database_now()
    closure, is_new = Closure.objects.get_or_create(
        finding=finding,
        defaults={"verdict": body.verdict, "root_cause": why, "by": by.ref, "person": by.person, "at": now},
    )
    finding.closure = closure
    if not is_new:
        raise FindingClosed(finding)
    acted(
        "finding_close",
        by=by,
        subject=f"finding {finding.pk}",
        justification=why,
        before={"state": "open"},
        after={"state": "closed", "verdict": body.verdict},
        at=now,
    )
    return finding
