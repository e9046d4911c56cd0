"""What several people have said of one call so far, read from its journal: what decides whether a word is the last one.

Rows tell the pages; what counts is the journal, whose every line carries this installation's code, and for each vote
the decision that was written with it. Whoever writes votes past us stops the case, and completes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from approvals.genuine import genuine
from approvals.models import Approval, Decision
from approvals.policy import Standing
from ledger import events as e
from ledger.actors import Actor
from ledger.errors import DurableAgentsError, RecordDamaged
from runs.engine.errors import DefinitionError, JournalBroken
from runs.engine.gate.requirement import stage_of
from runs.engine.gate.votes import APPROVE, approving, is_enough, lacking
from runs.models import Wait
from runs.services.calls import told_at


class NotCounted(DurableAgentsError):
    """Votes on record that this installation did not write, or that don't hang together."""

    status, code, title = 409, "votes-damaged", "The votes can't be counted"

    def __init__(self, approval: Approval, problem: str) -> None:
        super().__init__(
            f"Nobody can complete this decision: {problem}. An operator has to look at run {approval.run_id}: "
            f"`manage.py ledger verify {approval.run_id}` names all that is wrong."
        )


@dataclass(frozen=True)
class Case:
    """One question among those of its call: `question` and its plan, and all that was asked, said and decided."""

    approval: Approval
    question: e.ApprovalRequested
    asked: dict[str, e.ApprovalRequested]
    decisions: list[e.ApprovalDecided]
    votes: list[e.ApprovalVoted]

    @property
    def stage(self) -> int:
        """Which stage this question is of."""
        return stage_of(self.question.payload)

    def vote(
        self, wait: Wait, verdict: str, standing: Standing, *, by: Actor, payload: dict[str, Any]
    ) -> e.ApprovalVoted:
        """Somebody's word, as it goes on record."""
        assert by.person is not None
        deputy = standing.deputyship
        return e.ApprovalVoted(
            slot=wait.slot,
            n=wait.n,
            approval_id=str(self.approval.id),
            verdict=verdict,
            by=by.ref,
            role=by.role,
            plan_hash=self.approval.plan_hash,
            person=by.person,
            principal=None if deputy is None else deputy.principal.person,
            payload=payload,
        )

    def is_last(self, vote: e.ApprovalVoted) -> bool:
        """Whether this yes completes its stage. Raises NotCounted where what stands there already is not what our
        processes wrote."""
        self._must_be_ours()
        return is_enough(self.question, [*self.votes, vote])

    def check(self, vote: e.ApprovalVoted, decided: e.ApprovalDecided) -> None:
        """Before a grant is given: whether with this word all is said that the plan demands. Raises NotCounted."""
        if problem := lacking(self.question, self.asked, [*self.decisions, decided], [*self.votes, vote]):
            raise NotCounted(self.approval, problem)

    def _must_be_ours(self) -> None:
        """Each yes that counts has the decision of the same person beside it, written by one of our processes."""
        yes = [vote for one in self.asked.values() for vote in approving(self.votes, one)]
        found = Decision.objects.filter(approval_id__in=list(self.asked), verdict=APPROVE).select_related("approval")
        rows = {(str(row.approval_id), row.person): row for row in found}
        ours = [rows.get((vote.approval_id, vote.person)) for vote in yes]
        if not all(genuine([row for row in ours if row is not None])) or None in ours:
            raise NotCounted(self.approval, "a vote stands there that this installation did not write")


def case_of(approval: Approval, wait: Wait) -> Case:
    """What was said of it so far. Raises RecordDamaged where its question is gone, NotCounted where its journal can't
    be believed."""
    try:
        told = told_at(approval.run_id, wait.slot)
    except JournalBroken as broken:
        raise NotCounted(approval, str(broken)) from broken
    asked = {x.approval_id: x for x in told if isinstance(x, e.ApprovalRequested)}
    question = asked.get(str(approval.id))
    if question is None:
        raise RecordDamaged(approval.run_id, "the question that this answers")
    case = Case(
        approval,
        question,
        asked,
        [x for x in told if isinstance(x, e.ApprovalDecided)],
        [x for x in told if isinstance(x, e.ApprovalVoted)],
    )
    try:
        case.stage  # noqa: B018 - raises for a plan whose stages can't be read
    except DefinitionError as error:
        raise NotCounted(approval, str(error)) from error
    return case
