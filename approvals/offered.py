"""Additions to a run's `why`: decisions that the reader may make, and notes about too few deciders."""

from __future__ import annotations

from collections.abc import Sequence

from approvals import services
from approvals.bodies import DecisionBody
from approvals.models import Approval, ApprovalState, Decision
from approvals.votes import nobody_left, stages_of
from ledger.errors import Forbidden
from runs.models import Wait
from runs.queries.actions import MAX_OFFERED, Offer, Reader, due_first, offer
from runs.queries.run_facts import RunFacts

MAX_LOOKED_AT = 5  # limit for one run, because each question requires a check of everybody who may decide it


def decisions(facts: RunFacts, reader: Reader) -> list[Offer]:
    """Return the decisions offered on the open questions with the earliest deadlines.

    Only a few are returned, because each requires a check of who may decide.
    """
    return [_decision(approval, reader) for approval in _open(facts, MAX_OFFERED)]


def how_many_more(facts: RunFacts) -> str:
    """Return a note about open questions for which no decision is offered."""
    more = len(_gates(facts)) - MAX_OFFERED
    if more <= 0:
        return ""
    return (
        f"{more} more approvals are not listed as actions: "
        f"GET /api/v1/approvals?state=open&run_id={facts.run.pk} lists all of them."
    )


def who_is_missing(facts: RunFacts) -> str:
    """Return a note if too few people remain to decide, for the first few questions."""
    open_approvals = _open(facts, MAX_LOOKED_AT)
    stages = (
        stages_of(open_approvals, Decision.objects.filter(approval__in=open_approvals).select_related("approval"))
        if open_approvals
        else {}
    )
    return " ".join(dict.fromkeys(text for each in open_approvals if (text := nobody_left(each, stages[each.id]))))


def _open(facts: RunFacts, most: int) -> list[Approval]:
    waits = [wait.pk for wait in due_first(_gates(facts), most)]
    if not waits:
        return []
    open_approvals = Approval.objects.filter(wait_id__in=waits, state=ApprovalState.OPEN).select_related("run")
    return list(open_approvals.order_by("deadline", "opened_at"))


def _gates(facts: RunFacts) -> Sequence[Wait]:
    return [wait for wait in facts.waits if wait.kind == Wait.Kind.APPROVAL]


def _decision(approval: Approval, reader: Reader) -> Offer:
    path, subject = f"/api/v1/approvals/{approval.pk}/decision", str(approval.pk)
    found = offer("decide", path, DecisionBody, "justification", subject=subject)
    try:
        by = services.actor_for_decision(approval, reader.by, reader.held)
    except (Forbidden, services.AlreadyVoted, services.AlreadyDecided) as no:
        return found.refused(no)
    return found.model_copy(update={"role": by.role})
