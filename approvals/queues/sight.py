"""Who is shown a question, and who reads what is asked: by the queues that it was put to, by what was handed to them,
by what they were asked about it, and by the run that it belongs to. Where a question went because nobody answered is
believed by rows that our processes wrote."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from approvals.calendars.models import Escalation
from approvals.models import Approval
from ledger.errors import NotFound
from ledger.web.roles import decides_case, has_case, stand_ins
from ledger.web.seeing.payloads import PayloadsHidden
from ledger.web.seeing.viewers import viewer
from runs import seen
from runs.queries.payloads import is_asked


def asked_at(approval: Approval) -> list[str]:
    """The queues whose people may decide it, as its row says: the one that was asked, and those that it went to. For
    words; nobody reads anything by it."""
    return [approval.queue, *(approval.escalated_to or [])]


def genuine_places(approvals: Collection[Approval]) -> dict[UUID, list[str]]:
    """The same of each of these questions, by rows that carry this installation's code: one statement for any number,
    and none where none went further."""
    places = {one.id: [one.queue] for one in approvals}
    further = [one.id for one in approvals if one.escalated_to]
    for row in Escalation.objects.filter(approval__in=further).order_by("n") if further else ():
        places[row.approval_id] += [row.queue] if row.is_genuine else []
    return places


def is_shown(approval: Approval, held: frozenset[str]) -> bool:
    """Whoever stands in at its queue, has it from somebody or was asked about it is shown the question, whatever runs
    they see."""
    if viewer().sees_all or has_case(held, approval.id) or seen.among([approval.run_id]):
        return True
    there = {one.queue for one in stand_ins(held)}
    return bool(there) and not there.isdisjoint(genuine_places([approval])[approval.id])


def shown_of(approvals: Sequence[Approval], held: frozenset[str]) -> list[Approval]:
    """Those of a list's that are shown: all but what is said to have gone to a queue where the reader stands in."""
    there = {one.queue for one in stand_ins(held)}
    doubtful = {one.id for one in approvals if one.escalated_to and one.queue not in there}
    if not doubtful or viewer().sees_all:
        return list(approvals)
    places = genuine_places([one for one in approvals if one.id in doubtful])
    here = {id for id, queues in places.items() if not there.isdisjoint(queues)}
    runs = seen.among({one.run_id for one in approvals if one.id in doubtful - here})
    return [one for one in approvals if one.id not in doubtful - here or has_case(held, one.id) or one.run_id in runs]


def reads(approval: Approval) -> bool:
    """Whether whoever looks reads what is asked, and not only that it is: who is asked, stands in for them or has it
    from them, and who reads the run's payloads."""
    return approval.id in readable([approval])


def read_one(approval_id: UUID, held: frozenset[str]) -> Approval:
    """A question for somebody with these roles who wants what is asked with it. Raises NotFound for whoever isn't shown
    it, PayloadsHidden for whoever doesn't read what is asked."""
    approval = Approval.objects.select_related("run").filter(pk=approval_id).first()
    if approval is None or not is_shown(approval, held):
        raise NotFound("approval", approval_id)
    if not reads(approval):
        raise PayloadsHidden(approval.run_id)
    return approval


def readable(approvals: Sequence[Approval]) -> frozenset[UUID]:
    """Those of these questions that whoever looks reads; all of them are shown to them. Who was only asked about one
    reads no more of it than of its run."""
    who = viewer()
    own = {one.id for one in approvals if decides_case(who.held, one.id) or is_asked(one.queue, who)}
    rest = [one for one in approvals if one.id not in own]
    further = [one for one in rest if any(is_asked(to, who) for to in one.escalated_to or ())]
    own |= {id for id, places in genuine_places(further).items() if any(is_asked(to, who) for to in places)}
    others = [one for one in approvals if one.id not in own]
    hidden = {one.run_id for one in others if has_case(who.held, one.id)}
    hidden -= seen.among(hidden)
    runs = seen.readable({one.run_id: one.run.creator for one in others if one.run_id not in hidden})
    return frozenset(own | {one.id for one in others if one.run_id in runs})
