"""Check who may see a question and who may read its payload, from queue, delegation, inquiry and run.

Escalations count only if authentic.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from approvals.models import Approval, Escalation
from ledger.erasure import erased
from ledger.errors import NotFound
from ledger.web.roles import decides_case, has_case, stand_ins
from ledger.web.seeing.payloads import PayloadsHidden
from ledger.web.seeing.viewers import viewer
from runs import seen
from runs.queries.payloads import is_asked


def asked_at(approval: Approval) -> list[str]:
    """Return the queues that may decide a question, from its row. For display only: it grants nothing."""
    return [approval.queue, *(approval.escalated_to or [])]


def authentic_places(approvals: Collection[Approval]) -> dict[UUID, list[str]]:
    """Return the queues of each question: its own and those of authentic escalations.

    It takes at most one statement.
    """
    places = {one.id: [one.queue] for one in approvals}
    further = [one.id for one in approvals if one.escalated_to]
    for row in Escalation.objects.filter(approval__in=further).order_by("n") if further else ():
        places[row.approval_id] += [row.queue] if row.is_authentic else []
    return places


def is_shown(approval: Approval, held: frozenset[str]) -> bool:
    """Return whether the reader sees the question: by run, or as deputy, delegate or person asked."""
    if viewer().sees_all or has_case(held, approval.id) or seen.among([approval.run_id]):
        return True
    there = {one.queue for one in stand_ins(held)}
    return bool(there) and not there.isdisjoint(authentic_places([approval])[approval.id])


def shown_of(approvals: Sequence[Approval], held: frozenset[str]) -> list[Approval]:
    """Return the questions of a list that the reader may see.

    A question visible only through an escalation to a deputy's queue is left out if the escalation is forged.
    """
    there = {one.queue for one in stand_ins(held)}
    doubtful = {one.id for one in approvals if one.escalated_to and one.queue not in there}
    if not doubtful or viewer().sees_all:
        return list(approvals)
    places = authentic_places([one for one in approvals if one.id in doubtful])
    here = {id for id, queues in places.items() if not there.isdisjoint(queues)}
    runs = seen.among({one.run_id for one in approvals if one.id in doubtful - here})
    return [one for one in approvals if one.id not in doubtful - here or has_case(held, one.id) or one.run_id in runs]


def reads(approval: Approval) -> bool:
    """Return whether the viewer may read the payload: as decider, deputy, delegate, or payload reader of the run."""
    return approval.id in readable([approval])


def read_one(approval_id: UUID, held: frozenset[str]) -> Approval:
    """Return a question with its payload. Raises NotFound if not visible, PayloadsHidden if not readable."""
    approval = Approval.objects.select_related("run").filter(pk=approval_id).first()
    if approval is None or not is_shown(approval, held):
        raise NotFound("approval", approval_id)
    if not reads(approval):
        raise PayloadsHidden(approval.run_id) if approval.run.erased_at is None else erased(approval.run_id)
    return approval


def readable(approvals: Sequence[Approval]) -> frozenset[UUID]:
    """Return which of these visible questions the viewer may read.

    People who were only asked about a question need the right to read its run. Nobody may read the questions of an
    erased run.
    """
    who = viewer()
    own = {one.id for one in approvals if decides_case(who.held, one.id) or is_asked(one.queue, who)}
    rest = [one for one in approvals if one.id not in own]
    further = [one for one in rest if any(is_asked(to, who) for to in one.escalated_to or ())]
    own |= {id for id, places in authentic_places(further).items() if any(is_asked(to, who) for to in places)}
    others = [one for one in approvals if one.id not in own]
    hidden = {one.run_id for one in others if has_case(who.held, one.id)}
    hidden -= seen.among(hidden)
    runs = seen.readable({one.run_id: one.run.creator for one in others if one.run_id not in hidden})
    found = own | {one.id for one in others if one.run_id in runs}
    return frozenset(found - {one.id for one in approvals if one.run.erased_at is not None})
