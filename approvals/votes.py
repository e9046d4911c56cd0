"""Count the votes on a call from its journal, in which each vote has a code and a decision row.

Rows are only for display: forged votes stop the case and complete nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.contrib.postgres.fields import ArrayField
from django.db.models import BinaryField, QuerySet, TextField
from django.db.models.expressions import RawSQL

from approvals.authentic import marks_of
from approvals.models import Approval, ApprovalState, Decision
from approvals.policy import ABSTAIN, Authority, judge
from approvals.queues.standing import facts_of
from ledger import events as e
from ledger.actors import Actor
from ledger.codec import read_clear
from ledger.errors import DurableAgentsError, RecordDamaged
from runs.engine.errors import DefinitionError, JournalBroken
from runs.engine.gating.proof import short_of
from runs.engine.gating.stages import APPROVE, approving, is_enough, lacking, required_by, stage_of
from runs.journal.asked.queues import QUEUES
from runs.models import Wait
from runs.services.calls import told_at


class NotCounted(DurableAgentsError):
    """The recorded votes are forged or inconsistent."""

    status, code, title = 409, "votes-damaged", "The votes can't be counted"

    def __init__(self, approval: Approval, problem: str) -> None:
        super().__init__(
            f"This decision can't be completed: {problem}. An operator must examine run {approval.run_id}: "
            f"`manage.py ledger verify {approval.run_id}` lists the problems."
        )


@dataclass(frozen=True)
class Case:
    """One question of a call: `question` with its plan, and all questions, votes and decisions of the call."""

    approval: Approval
    question: e.ApprovalRequested
    asked: dict[str, e.ApprovalRequested]
    decisions: list[e.ApprovalDecided]
    votes: list[e.ApprovalVoted]

    @property
    def stage(self) -> int:
        return stage_of(self.question.payload)

    def vote(
        self, wait: Wait, verdict: str, authority: Authority, *, by: Actor, payload: dict[str, Any]
    ) -> e.ApprovalVoted:
        """Return a person's vote as an event."""
        assert by.person is not None
        deputy = authority.deputyship
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
        """Return whether this approval completes its stage. Raises NotCounted if the recorded votes are forged."""
        self._must_be_ours()
        return is_enough(self.question, [*self.votes, vote])

    def check(self, vote: e.ApprovalVoted, decided: e.ApprovalDecided) -> None:
        """Check before a grant that all required votes have been cast. Raises NotCounted."""
        if problem := lacking(self.question, self.asked, [*self.decisions, decided], [*self.votes, vote]):
            raise NotCounted(self.approval, problem)

    def _must_be_ours(self) -> None:
        """Check that each counted approval has an authentic decision of the same person."""
        yes = [vote for one in self.asked.values() for vote in approving(self.votes, one)]
        found = Decision.objects.filter(approval_id__in=list(self.asked), verdict=APPROVE).select_related("approval")
        rows = {(str(row.approval_id), row.person): row for row in found}
        ours = [rows.get((vote.approval_id, vote.person)) for vote in yes]
        if not all(row is not None and row.is_authentic for row in ours):
            raise NotCounted(self.approval, "it has a vote that this installation did not write")


def case_of(approval: Approval, wait: Wait) -> Case:
    """Return the votes so far. Raises RecordDamaged if the question is missing, NotCounted if the journal is forged."""
    try:
        requested = told_at(approval.run_id, wait.slot)
    except JournalBroken as broken:
        raise NotCounted(approval, str(broken)) from broken
    fields = {x.approval_id: x for x in requested if isinstance(x, e.ApprovalRequested)}
    question = fields.get(str(approval.id))
    if question is None:
        raise RecordDamaged(approval.run_id, "the approval that this decides")
    case = Case(
        approval,
        question,
        fields,
        [x for x in requested if isinstance(x, e.ApprovalDecided)],
        [x for x in requested if isinstance(x, e.ApprovalVoted)],
    )
    try:
        case.stage  # noqa: B018 - raises for a plan whose stages can't be read
    except DefinitionError as error:
        raise NotCounted(approval, str(error)) from error
    return case


DONE, NOW, NEXT, AFTER, ENDED = "done", "now", "next", "after", "ended"
LOOKED_AT = 8  # limit for remaining people who are checked; if more remain, they are assumed able to approve
_TONES = {DONE: "ok", NOW: "wait", ENDED: "bad"}
_VERDICT_TEXTS = {APPROVE: "approved", "reject": "rejected", "fail": "failed the run", ABSTAIN: "abstained"}


@dataclass(frozen=True, slots=True)
class Vote:
    row: Decision
    is_authentic: bool
    lacks: str = ""  # missing proof

    @property
    def words(self) -> str:
        return _VERDICT_TEXTS.get(self.row.verdict, self.row.verdict)

    @property
    def counts(self) -> bool:
        return self.row.verdict == APPROVE and self.is_authentic and not self.lacks


@dataclass(frozen=True, slots=True)
class StageShown:
    """One stage of a case.

    `state` is done, now, next, after (a separate question after the one shown, which is done), or ended (by rejection,
    deadline, or with its run).
    """

    number: int
    queue: str
    quorum: int
    state: str
    votes: list[Vote] = field(default_factory=list)

    @property
    def yes(self) -> int:
        return sum(vote.counts for vote in self.votes)

    @property
    def tone(self) -> str:
        return _TONES.get(self.state, "")

    @property
    def missing(self) -> int:
        return max(0, self.quorum - self.yes)


def stages_of(
    approvals: Sequence[Approval], own: Iterable[Decision], known: Mapping[int, bool] = MappingProxyType({})
) -> dict[UUID, list[StageShown]]:
    """Return the stages of each question, with one query for votes at other stages.

    `own` are the questions' decisions; `known` tells by id which decisions are authentic, as far as they were checked.
    """
    cases = {one.case_id for one in approvals if one.case_id is not None}
    rows = {row.pk: row for row in own}
    if cases:
        of_cases = Decision.objects.filter(seats__case_id__in=cases).select_related("approval").distinct()
        rows |= {row.pk: row for row in of_cases}
    listed = sorted(rows.values(), key=lambda row: row.pk)
    plans = {one.id: one.planned() or {} for one in {row.approval for row in listed}}
    ours = {**known, **marks_of(row for row in listed if row.pk not in known)}
    votes = [
        Vote(row, ours[row.pk], short_of(plans[row.approval_id], row.proof) if row.verdict == APPROVE else "")
        for row in listed
    ]
    by_approval: dict[UUID, list[Vote]] = {}
    for vote in votes:
        by_approval.setdefault(vote.row.approval_id, []).append(vote)
    return {one.id: _stages(one, by_approval) for one in approvals}


def _stages(one: Approval, by_approval: Mapping[UUID, list[Vote]]) -> list[StageShown]:
    plan = one.planned() or {}
    try:
        stages, stage = required_by(plan, one.queue).stages, stage_of(plan)
    except DefinitionError:
        return [StageShown(1, one.queue, 1, ENDED, by_approval.get(one.id, []))]
    ids = [*_passed(plan)[: stage - 1], one.id]
    own = {ApprovalState.OPEN: NOW, ApprovalState.APPROVED: DONE}.get(one.state, ENDED)
    items = []
    for number, each in enumerate(stages, start=1):
        votes = by_approval.get(ids[number - 1], []) if number <= len(ids) else _later(one, number, by_approval)
        state = (
            DONE if number < stage else own if number == stage else NEXT if own != DONE else _after(each.quorum, votes)
        )
        items.append(StageShown(number, each.queue, each.quorum, state, votes))
    return items


def _after(quorum: int, votes: Sequence[Vote]) -> str:
    """Return the state of a stage after the one shown, from its votes."""
    if any(vote.row.verdict not in (APPROVE, ABSTAIN) and vote.is_authentic is not False for vote in votes):
        return ENDED
    return DONE if sum(vote.counts for vote in votes) >= quorum else AFTER


def _later(one: Approval, number: int, by_approval: Mapping[UUID, list[Vote]]) -> list[Vote]:
    for votes in by_approval.values():
        other = votes[0].row.approval
        if one.case_id is not None and other.case_id == one.case_id and stage_number(other) == number:
            return votes
    return []


def stage_number(one: Approval) -> int:
    """Return a question's stage by its plan; 1 if unreadable."""
    try:
        return stage_of(one.planned() or {})
    except DefinitionError:
        return 1


def _passed(plan: Mapping[str, Any]) -> list[UUID]:
    try:
        return [UUID(each["approval_id"]) for each in plan.get("passed", ())]
    except (KeyError, TypeError, ValueError):
        return []


def nobody_left(approval: Approval, stages: Sequence[StageShown]) -> str:
    """Return a warning if too few people remain who can complete the stage, else an empty text.

    The warning has no effect: someone may still get the role, or the deadline may pass.
    """
    now = next((each for each in stages if each.state == NOW), None)
    if approval.state != ApprovalState.OPEN or now is None or (len(stages) == 1 and now.quorum == 1 and not now.votes):
        return ""
    heard = {vote.row.person for each in stages for vote in each.votes}
    for each in stages:
        if each.state not in (NOW, NEXT):
            continue
        people = _members(approval, each).exclude(pk__in=[x for x in heard if x])
        names = list(people.order_by("pk")[: max(LOOKED_AT, each.quorum) + 1])
        left = sum(_may(approval, user) for user in names) if each is now and len(names) <= LOOKED_AT else len(names)
        if left < each.missing:
            who, where = "nobody" if left == 0 else f"only {left}", " or ".join(_queues(approval, each))
            return (
                f"Stage {each.number} needs {each.missing} more in {where}, but {who} can still approve. "
                "An administrator must assign the role to more people, or an operator end the run."
            )
    return ""


def _queues(approval: Approval, stage: StageShown) -> list[str]:
    return [stage.queue, *((approval.escalated_to or ()) if stage.state == NOW else ())]


def _members(approval: Approval, stage: StageShown) -> QuerySet[User]:
    """Return the active members of a stage's queue, and for the current stage, of the queues that it was escalated to.

    Deputies are left out, because they add no votes.
    """
    roles = [role for queue in _queues(approval, stage) if (role := QUEUES.get(queue))]
    return User.objects.filter(is_active=True, groups__name__in=roles).distinct()


def _may(approval: Approval, user: User) -> bool:
    by = Actor("user", user.get_username(), person=user.pk)
    return isinstance(judge(facts_of(approval, approval.run, by, frozenset()), approves=True), Authority)


_JUDGED = f"""SELECT e.clear FROM runs_wait w JOIN ledger_event e
        ON e.run_id = w.run_id AND e.slot = w.slot AND e.attempt = w.attempt AND e.kind = '{e.PolicyApplied.KIND}'
    WHERE w.id = approvals_approval.wait_id ORDER BY e.seq DESC LIMIT 1"""
_GRANTED = """SELECT a.queue FROM runs_wait here
    JOIN runs_wait w ON w.run_id = here.run_id AND w.slot = here.slot AND w.attempt = here.attempt
    JOIN approvals_approval a ON a.wait_id = w.id AND a.state = 'approved'
    WHERE here.id = approvals_approval.wait_id"""


def vote_annotations() -> dict[str, RawSQL]:
    """Return annotations for shown questions: the call's last policy evaluation, and the queues that approved it."""
    return {
        "judged": RawSQL(f"({_JUDGED})", [], output_field=BinaryField()),
        "granted_by": RawSQL(f"ARRAY({_GRANTED})", [], output_field=ArrayField(TextField())),
    }


def asked_after(approval: Approval) -> list[str]:
    """Return, in order, the queues that are asked after this open, annotated question."""
    judged = getattr(approval, "judged", None)
    if approval.state != ApprovalState.OPEN or judged is None:
        return []
    try:
        queues = read_clear(judged)["queues"]
    except (KeyError, TypeError, ValueError):
        return []  # a forged row must not break the page
    have = {approval.queue, *getattr(approval, "granted_by", ())}
    return [each for each in queues if isinstance(each, str) and each not in have] if isinstance(queues, list) else []
