"""Evidence about earlier answers to a call and earlier attempts at it, for its approvers. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from ledger import events as e
from runs.engine.gating.stages import approving, next_stage
from runs.engine.tape import Slot, payload_of

# Label and source of this evidence.
HISTORY = ("This call was asked for before", "this run's journal")
# The reason given if all that is known about an approval is that nothing was sent under it.
_NOT_UNDER_IT = "the call was not made under it"
_EXPIRED = "it expired before the call was made"
_EXPIRED_OR_BACK = "it was taken back, or expired, before the call was made"


@dataclass(frozen=True, slots=True)
class Unused:
    """Why an approval was not used.

    `expired` is the slot of the approval if it expired; otherwise `because` is the reason.
    """

    because: str = ""
    expired: str = ""

    def of(self, name: str) -> str:
        """Return why the last approval of the slot `name` was not used."""
        if self.expired:
            return _EXPIRED if name == self.expired else _NOT_UNDER_IT
        return f"the call was not made yet, for {self.because}" if self.because else _NOT_UNDER_IT


UNEXPLAINED = Unused()


def requires_as_well(who: str, queue: str, *, is_more: bool) -> str:
    """Return the text that `who` also requires a queue's approval or, if `is_more`, more proof with it."""
    return f"{who} wants more shown with the yes of {queue}" if is_more else f"{who} asks {queue} as well"


def history_of(
    record: Slot, slot: str, given: tuple[str, Slot] | None, problem: str = "", unused: Unused = UNEXPLAINED
) -> list[str]:
    """Return lines about earlier answers, attempts and amendments of the call at `slot`.

    `given` is the slot of a grant passed to the call, with its record; `problem` and `unused` tell why the last
    approval was not sufficient.
    """
    known = [] if given is None else _answers(given[1], record, unused.of(given[0]))
    known += [*_answers(record, record, unused.of(slot)), *_attempts(record)]
    known += [_amended(event) for event, _ in record.amended]
    return known + ([f"Nothing was sent, and it is asked again: {problem}."] if problem else [])


def _answers(gate: Slot, record: Slot, unused: str) -> list[str]:
    """List the decisions, and whether the call was sent under each. `unused` tells why the last one wasn't used."""
    lines, requests = [], list(gate.asked.values())
    after = {one.approval_id: later for one, later in pairwise(requests)}
    for decision in gate.decisions:
        used = [str(n) for n, (_, approval_id) in record.grants.items() if approval_id in ("", decision.approval_id)]
        question, text = gate.asked.get(decision.approval_id), f"(approval {decision.approval_id})"
        if decision.verdict == "approved" and question is not None and next_stage(question, gate.votes) is not None:
            names = ", ".join(x.by for x in approving(gate.votes, question))
            lines.append(f"Approved by {names} {text}, for {question.queue}.")
        elif decision.verdict == "approved":
            grant, later = _grant_of(decision), after.get(decision.approval_id)
            begin = f"Approved by {decision.by}{f', beforehand by standing grant {grant},' if grant else ''} {text}: "
            why = unused if question is None or later is None else _told_then(question, later, begin)
            why = _EXPIRED_OR_BACK if grant and why == _EXPIRED else why
            what = f"attempt {', '.join(used)} went out under it" if used else why
            lines.append(f"{begin}{what}.")
        else:
            lines.append(f"{decision.verdict.capitalize()} by {decision.by} {text}.")
    return lines


def _grant_of(decision: e.ApprovalDecided) -> object:
    """Return the number of the standing approval that gave an approval; None if a person decided."""
    grant = payload_of(decision).get("standing")
    return grant.get("grant") if isinstance(grant, Mapping) else None


def _told_then(question: e.ApprovalRequested, later: e.ApprovalRequested, begin: str) -> str:
    """Return why an approval was not used, according to the request that followed it.

    If the request gives none, the reason is that the call was not made under the approval.
    """
    plan = payload_of(later)
    policy = plan.get("policy")
    if isinstance(policy, Mapping):
        name = f"the policy {policy.get('name')} (version {policy.get('version')})"
        return Unused(requires_as_well(name, later.queue, is_more=later.queue == question.queue)).of("")
    contents = [x["content"] for x in plan.get("evidence", ()) if (x["label"], x["source"]) == HISTORY]
    lines = [line for content in contents if isinstance(content, list) for line in content if isinstance(line, str)]
    return next((line.removeprefix(begin).removesuffix(".") for line in lines if line.startswith(begin)), _NOT_UNDER_IT)


def _attempts(record: Slot) -> list[str]:
    lines = []
    for n, attempt in sorted(record.attempts.items()):
        if attempt.intent is None and attempt.result is None:
            continue
        what = "its outcome is not on record"
        if isinstance(attempt.result, e.ToolFailed):
            what = f"the other side refused it: {attempt.result.code}: {payload_of(attempt.result).get('message', '')}"
        elif attempt.reconciled is not None:
            reason = payload_of(attempt.reconciled).get("justification", "")
            verdict = attempt.reconciled.verdict.replace("_", " ")
            what = f"{attempt.reconciled.by} found: {verdict}{f': {reason}' if reason else ''}"
        lines.append(f"Attempt {n}: {what}.")
        if attempt.testimony is not None or attempt.is_called_back_late:
            lines.append(f"Attempt {n}: an answer that came later says that it did happen.")
    return lines


def _amended(event: e.PlanAmended) -> str:
    text = ", ".join(
        f"{name} from {json.dumps(change.get('from'), ensure_ascii=False)} to "
        f"{json.dumps(change.get('to'), ensure_ascii=False)}"
        for name, change in payload_of(event).get("changes", {}).items()
    )
    return f"Amended by {event.by} (approval {event.approval_id}): {text}."
