"""Stages of an approval, and whether recorded votes meet them. Pure.

Plans that need a single approval have the same bytes as before stages existed. Only authenticated journal entries
count. A person counts only once in all stages together, whatever key they use, and even when they act as a deputy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ledger import events as e
from runs.engine.errors import DefinitionError
from runs.engine.gating.proof import Proof, in_plan, short_of, wanted_of

STAGES = "stages"  # key in a plan; without it, one approval is enough
MAX_STAGES = 8
MAX_PEOPLE = 20  # per stage


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of an approval: `quorum` (default 1) different people of `queue` must approve.

    They must not have taken part in an earlier stage. Raises DefinitionError.
    """

    queue: str
    quorum: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.queue, str) or not self.queue.strip():
            raise DefinitionError(f"Stage(queue={self.queue!r}): give a non-empty string")
        if isinstance(self.quorum, bool) or not isinstance(self.quorum, int) or not 1 <= self.quorum <= MAX_PEOPLE:
            raise DefinitionError(f"Stage(quorum={self.quorum!r}) of queue {self.queue!r}: from 1 to {MAX_PEOPLE}")

    def as_json(self) -> dict[str, Any]:
        """Return plain data for the plan."""
        return {"queue": self.queue, "quorum": self.quorum}


@dataclass(frozen=True, slots=True)
class Requirement:
    """All stages of an approval, in order. Raises DefinitionError."""

    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.stages) <= MAX_STAGES or not all(isinstance(each, Stage) for each in self.stages):
            raise DefinitionError(f"a gate must have 1 to {MAX_STAGES} stages, each a Stage: {self.stages!r}")

    @classmethod
    def of(cls, queue: str, quorum: int = 1, then: Sequence[Stage] = ()) -> Requirement:
        """Build a requirement from the first stage's queue and quorum, and the further stages."""
        if isinstance(then, (str, bytes, Stage)) or not isinstance(then, Sequence):
            raise DefinitionError(f"then={then!r}: give a list of Stage(queue, quorum)")
        return cls((Stage(queue, quorum), *then))

    @property
    def is_plain(self) -> bool:
        return len(self.stages) == 1 and self.stages[0].quorum == 1

    @property
    def pairs(self) -> tuple[tuple[str, int], ...]:
        """Return the queue and the quorum of each stage. The result is empty if a single approval is enough."""
        return () if self.is_plain else tuple((stage.queue, stage.quorum) for stage in self.stages)

    @property
    def queues(self) -> list[str]:
        """Return the queues of all stages in order, without duplicates."""
        return list(dict.fromkeys(stage.queue for stage in self.stages))

    def in_plan(self) -> dict[str, Any]:
        return {} if self.is_plain else {STAGES: [each.as_json() for each in self.stages], "stage": 1}


def required_by(plan: Any, queue: str) -> Requirement:
    """Return the stages that a plan requires; without stages, one approval of `queue`.

    Raises DefinitionError if they can't be read.
    """
    if not isinstance(plan, Mapping) or STAGES not in plan:
        return Requirement((Stage(queue),))
    try:
        return Requirement(tuple(Stage(each["queue"], each["quorum"]) for each in plan[STAGES]))
    except (KeyError, TypeError) as error:
        raise DefinitionError(f"the stages of a plan can't be read: {type(error).__name__}") from error


def stage_of(plan: Any) -> int:
    """Return the number of a plan's current stage, counted from 1. Raises DefinitionError if there is no such stage."""
    if not isinstance(plan, Mapping) or STAGES not in plan:
        return 1
    stage, most = plan.get("stage"), len(required_by(plan, "").stages)
    if isinstance(stage, bool) or not isinstance(stage, int) or not 1 <= stage <= most:
        raise DefinitionError(f"the plan is for stage {stage!r} of {most}")
    return stage


def is_staged(plan: Any) -> bool:
    """Return whether the plan has stages, so that votes are counted and a single approval may not be enough."""
    return isinstance(plan, Mapping) and STAGES in plan


def in_words(requirement: Requirement) -> str:
    """Return the stages as text: `claims, then 2 of board`."""
    return ", then ".join(f"{x.quorum} of {x.queue}" if x.quorum > 1 else x.queue for x in requirement.stages)


# --- votes ------------------------------------------------------------------------------------------------------------

APPROVE, REJECT, FAIL, ABSTAIN = "approve", "reject", "fail", "abstain"


def approving(votes: Iterable[e.ApprovalVoted], question: e.ApprovalRequested) -> list[e.ApprovalVoted]:
    """Return the votes that approve exactly this question, with the proof that its plan requires."""
    about = (question.slot, question.approval_id, question.n, question.plan_hash)
    yes = [x for x in votes if x.verdict == APPROVE and (x.slot, x.approval_id, x.n, x.plan_hash) == about]
    return [x for x in yes if not short_of(question.payload, shown_with(x))]


def shown_with(word: e.ApprovalVoted | e.ApprovalDecided) -> Any:
    return word.payload.get("proof") if isinstance(word.payload, Mapping) else None


def earlier_stages(question: e.ApprovalRequested) -> list[str]:
    """Return the ids of the questions of earlier stages, in order."""
    payload = question.payload if isinstance(question.payload, Mapping) else {}
    return [str(each["approval_id"]) for each in payload.get("passed", ())]


def has_proof(
    question: e.ApprovalRequested,
    decisions: Iterable[e.ApprovalDecided],
    votes: Iterable[e.ApprovalVoted],
    proof: Proof,
) -> bool:
    """Return whether each approval of this question has this proof, whatever its own plan requires."""
    if not proof.is_any:
        return True
    words: Sequence[e.ApprovalVoted | e.ApprovalDecided] = approving(votes, question)
    if not is_staged(question.payload):
        words = [decision for decision in decisions if _is_yes(decision, question)]
    plan = {**question.payload, **in_plan(wanted_of(question.payload, proof))}
    return bool(words) and not any(short_of(plan, shown_with(word)) for word in words)


def lacking(
    question: e.ApprovalRequested,
    fields: Mapping[str, e.ApprovalRequested],
    decisions: Sequence[e.ApprovalDecided],
    votes: Sequence[e.ApprovalVoted],
) -> str:
    """Return which part of its plan's requirement a decided question lacks; empty if none.

    The other arguments are the questions, decisions and votes of its call.
    """
    if not is_staged(question.payload):
        yes_to_it = [decision for decision in decisions if _is_yes(decision, question)]
        return next(filter(None, (short_of(question.payload, shown_with(yes)) for yes in yes_to_it)), "")
    try:
        stages, stage = required_by(question.payload, "").stages, stage_of(question.payload)
        ids = [*earlier_stages(question), question.approval_id]
    except (DefinitionError, KeyError, TypeError) as error:
        return f"the requirements of its plan can't be read: {error}"
    if len(ids) != stage:
        return f"it is for stage {stage}, but names {len(ids) - 1} earlier stages"
    heard: set[int] = set()
    for number, (approval_id, of) in enumerate(zip(ids, stages, strict=False), start=1):
        one = fields.get(approval_id)
        if one is None or not _belongs(one, question, number):
            return f"the request of stage {number} belongs to another call"
        yes = approving(votes, one)
        if not any(_is_yes(decision, one) for decision in decisions):
            return f"nobody has decided stage {number}"
        if len(yes) < of.quorum:
            return f"stage {number} has {len(yes)} of {of.quorum} votes"
        for vote in yes:
            if vote.people & heard:
                return f"{vote.by} voted or decided twice"
            heard |= vote.people
    return ""


def is_whole(
    question: e.ApprovalRequested,
    fields: Mapping[str, e.ApprovalRequested],
    decisions: Sequence[e.ApprovalDecided],
    votes: Sequence[e.ApprovalVoted],
) -> bool:
    return not lacking(question, fields, decisions, votes) and next_stage(question, votes) is None


def is_enough(question: e.ApprovalRequested, votes: Iterable[e.ApprovalVoted]) -> bool:
    """Return whether these votes reach the quorum of the question's stage."""
    quorum = required_by(question.payload, question.queue).stages[stage_of(question.payload) - 1].quorum
    return len(approving(votes, question)) >= quorum


def _is_yes(decision: e.ApprovalDecided, one: e.ApprovalRequested) -> bool:
    about = (decision.approval_id, decision.n, decision.plan_hash)
    return decision.verdict == "approved" and about == (one.approval_id, one.n, one.plan_hash)


# The fields that the questions of all stages have in common: the call, and who must approve it.
_SHARED = ("tool", "arguments", "rule", STAGES, "documents")


def _belongs(one: e.ApprovalRequested, last: e.ApprovalRequested, number: int) -> bool:
    of: dict[str, Any] = one.payload if isinstance(one.payload, dict) else {}
    now: dict[str, Any] = last.payload if isinstance(last.payload, dict) else {}
    return (
        (one.slot, one.requested_hash) == (last.slot, last.requested_hash)
        and of.get("stage") == number
        and of.get("queue") == now[STAGES][number - 1]["queue"] == one.queue
        and all(of.get(name) == now.get(name) for name in _SHARED)
    )


def next_stage(question: e.ApprovalRequested, votes: Sequence[e.ApprovalVoted]) -> dict[str, Any] | None:
    """Return the plan of the next stage's question, including the approvals so far; None if there is no next stage.

    Raises DefinitionError.
    """
    plan = question.payload
    if not is_staged(plan) or (stage := stage_of(plan)) >= len(stages := required_by(plan, "").stages):
        return None
    yes = {
        "approval_id": question.approval_id,
        "queue": question.queue,
        "by": [x.by for x in approving(votes, question)],
    }
    return {**plan, "queue": stages[stage].queue, "stage": stage + 1, "passed": [*plan.get("passed", ()), yes]}
