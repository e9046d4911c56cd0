"""Checks whether recorded votes meet a question's plan. Only authenticated journal entries count, and a person counts
once over all stages, with any key and also as a stand-in. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ledger import events as e
from runs.engine.errors import DefinitionError
from runs.engine.gate.proof import Proof, in_plan, short_of, wanted_of
from runs.engine.gate.requirement import is_staged, required_by, stage_of

APPROVE, REJECT, FAIL, ABSTAIN = "approve", "reject", "fail", "abstain"


def approving(votes: Iterable[e.ApprovalVoted], question: e.ApprovalRequested) -> list[e.ApprovalVoted]:
    """Return the approving votes on exactly this question with the proof its plan requires."""
    about = (question.slot, question.approval_id, question.n, question.plan_hash)
    yes = [x for x in votes if x.verdict == APPROVE and (x.slot, x.approval_id, x.n, x.plan_hash) == about]
    return [x for x in yes if not short_of(question.payload, shown_with(x))]


def shown_with(word: e.ApprovalVoted | e.ApprovalDecided) -> Any:
    return word.payload.get("proof") if isinstance(word.payload, Mapping) else None


def passed(question: e.ApprovalRequested) -> list[str]:
    """Return the ids of the earlier stages' questions, in order."""
    payload = question.payload if isinstance(question.payload, Mapping) else {}
    return [str(each["approval_id"]) for each in payload.get("passed", ())]


def shows(
    question: e.ApprovalRequested,
    decisions: Iterable[e.ApprovalDecided],
    votes: Iterable[e.ApprovalVoted],
    proof: Proof,
) -> bool:
    """Return whether each approval of this question also has this proof, whatever its own plan requires."""
    if not proof.is_any:
        return True
    words: Sequence[e.ApprovalVoted | e.ApprovalDecided] = approving(votes, question)
    if not is_staged(question.payload):
        words = [decision for decision in decisions if _is_yes(decision, question)]
    plan = {**question.payload, **in_plan(wanted_of(question.payload, proof))}
    return bool(words) and not any(short_of(plan, shown_with(word)) for word in words)


def lacking(
    question: e.ApprovalRequested,
    asked: Mapping[str, e.ApprovalRequested],
    decisions: Sequence[e.ApprovalDecided],
    votes: Sequence[e.ApprovalVoted],
) -> str:
    """Return what a decided question lacks of its plan's requirement, given its call's events; empty if nothing."""
    if not is_staged(question.payload):
        yes_to_it = [decision for decision in decisions if _is_yes(decision, question)]
        return next(filter(None, (short_of(question.payload, shown_with(yes)) for yes in yes_to_it)), "")
    try:
        stages, stage = required_by(question.payload, "").stages, stage_of(question.payload)
        ids = [*passed(question), question.approval_id]
    except (DefinitionError, KeyError, TypeError) as error:
        return f"what its plan demands can't be read: {error}"
    if len(ids) != stage:
        return f"it is of stage {stage}, and tells of {len(ids) - 1} before it"
    heard: set[int] = set()
    for number, (approval_id, of) in enumerate(zip(ids, stages, strict=False), start=1):
        one = asked.get(approval_id)
        if one is None or not _belongs(one, question, number):
            return f"the question of stage {number} is another one's"
        yes = approving(votes, one)
        if not any(_is_yes(decision, one) for decision in decisions):
            return f"nobody has decided stage {number}"
        if len(yes) < of.quorum:
            return f"stage {number} has {len(yes)} of {of.quorum} votes"
        for vote in yes:
            if vote.people & heard:
                return f"{vote.by} has a part in it twice"
            heard |= vote.people
    return ""


def is_whole(
    question: e.ApprovalRequested,
    asked: Mapping[str, e.ApprovalRequested],
    decisions: Sequence[e.ApprovalDecided],
    votes: Sequence[e.ApprovalVoted],
) -> bool:
    return not lacking(question, asked, decisions, votes) and next_stage(question, votes) is None


def is_enough(question: e.ApprovalRequested, votes: Iterable[e.ApprovalVoted]) -> bool:
    """Return whether these votes complete the question's stage."""
    quorum = required_by(question.payload, question.queue).stages[stage_of(question.payload) - 1].quorum
    return len(approving(votes, question)) >= quorum


def _is_yes(decision: e.ApprovalDecided, one: e.ApprovalRequested) -> bool:
    about = (decision.approval_id, decision.n, decision.plan_hash)
    return decision.verdict == "approved" and about == (one.approval_id, one.n, one.plan_hash)


# Common to all stages' questions: the call, and who must approve it.
_SHARED = ("tool", "arguments", "rule", "stages", "documents")


def _belongs(one: e.ApprovalRequested, last: e.ApprovalRequested, number: int) -> bool:
    of: dict[str, Any] = one.payload if isinstance(one.payload, dict) else {}
    now: dict[str, Any] = last.payload if isinstance(last.payload, dict) else {}
    return (
        (one.slot, one.requested_hash) == (last.slot, last.requested_hash)
        and of.get("stage") == number
        and of.get("queue") == now["stages"][number - 1]["queue"] == one.queue
        and all(of.get(name) == now.get(name) for name in _SHARED)
    )


def next_stage(question: e.ApprovalRequested, votes: Sequence[e.ApprovalVoted]) -> dict[str, Any] | None:
    """Return the plan of the next stage's question, with the approvals so far, or None. Raises DefinitionError."""
    plan = question.payload
    if not is_staged(plan) or (stage := stage_of(plan)) >= len(stages := required_by(plan, "").stages):
        return None
    yes = {
        "approval_id": question.approval_id,
        "queue": question.queue,
        "by": [x.by for x in approving(votes, question)],
    }
    return {**plan, "queue": stages[stage].queue, "stage": stage + 1, "passed": [*plan.get("passed", ()), yes]}
