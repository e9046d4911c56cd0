"""What a question tells of itself first, if its call was asked about or made before: what was answered, and what came
of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ledger import events as e
from runs.engine.amending.record import in_words
from runs.engine.canonical import printable
from runs.engine.gate.evidence import Evidence
from runs.engine.gate.votes import approving, next_stage
from runs.engine.tape import Slot, payload_of

# The label and the source of the evidence that tells of earlier answers and attempts.
HISTORY = ("This call was asked for before", "this run's journal")
# Of a yes of which nothing more is known than that nothing went out under it.
_NOT_UNDER_IT = "the call was not made under it"
_EXPIRED = "it expired before the call was made"
_EXPIRED_OR_BACK = "it was taken back, or expired, before the call was made"


@dataclass(frozen=True, slots=True)
class Unused:
    """Why a yes that was given has let nothing through, as its call is asked about once more. `expired` is the slot
    whose yes lay too long; else `because` says why somebody is asked besides."""

    because: str = ""
    expired: str = ""

    def of(self, name: str) -> str:
        """The same of the last yes of the slot `name`."""
        if self.expired:
            return _EXPIRED if name == self.expired else _NOT_UNDER_IT
        return f"the call was not made yet, for {self.because}" if self.because else _NOT_UNDER_IT


NOT_TOLD = Unused()


def asked_besides(who: str, queue: str, *, is_more: bool) -> str:
    """That `who`, a policy or a rule, wants the yes of a queue too, or `is_more` to be shown with the one there is."""
    return f"{who} wants more shown with the yes of {queue}" if is_more else f"{who} asks {queue} as well"


def with_history(
    plan: dict[str, Any], record: Slot, given: tuple[str, Slot] | None, problem: str = "", unused: Unused = NOT_TOLD
) -> dict[str, Any]:
    """A plan that says first, if this call was asked about or made before, what was answered and what came of it:
    whoever decides binds that too. `given` is the slot whose grant was passed to the call, with its name, `problem` why
    the last yes let nothing through, and `unused` the same in general."""
    known = [*(() if given is None else _answers(given[1], record, unused.of(given[0])))]
    known += _answers(record, record, unused.of(str(plan["slot"])))
    history = [*known, *_attempts(record)]
    history += [in_words(event) for event, _ in record.amended]
    history += [f"Nothing was sent, and it is asked again: {problem}."] if problem else []
    evidence = [x for x in plan["evidence"] if (x["label"], x["source"]) != HISTORY]
    if history:
        label, source = HISTORY
        evidence.insert(0, Evidence(label, source, printable(history)).as_json())
    return plan | {"evidence": evidence}


def _answers(gate: Slot, record: Slot, unused: str) -> list[str]:
    """What people said, and whether the call ever went out under it, or else why not: the last one `unused`, those
    before as the question after them has it."""
    lines, asked = [], list(gate.asked.values())
    after = {one.approval_id: later for one, later in pairwise(asked)}
    for decision in gate.decisions:
        used = [str(n) for n, (_, approval_id) in record.grants.items() if approval_id in ("", decision.approval_id)]
        question, said = gate.asked.get(decision.approval_id), f"(approval {decision.approval_id})"
        if decision.verdict == "approved" and question is not None and next_stage(question, gate.votes) is not None:
            names = ", ".join(x.by for x in approving(gate.votes, question))
            lines.append(f"Approved by {names} {said}, for {question.queue}.")
        elif decision.verdict == "approved":
            grant, later = _grant_of(decision), after.get(decision.approval_id)
            begin = f"Approved by {decision.by}{f', beforehand by standing grant {grant},' if grant else ''} {said}: "
            why = unused if question is None or later is None else _told_then(question, later, begin)
            why = _EXPIRED_OR_BACK if grant and why == _EXPIRED else why
            what = f"attempt {', '.join(used)} went out under it" if used else why
            lines.append(f"{begin}{what}.")
        else:
            lines.append(f"{decision.verdict.capitalize()} by {decision.by} {said}.")
    return lines


def _grant_of(decision: e.ApprovalDecided) -> object:
    """The number of the standing grant that gave a yes; nothing where somebody said it then."""
    standing = payload_of(decision).get("standing")
    return standing.get("grant") if isinstance(standing, Mapping) else None


def _told_then(question: e.ApprovalRequested, later: e.ApprovalRequested, begin: str) -> str:
    """Why a yes was not used, by the question that came after it: whom a policy asked besides, or what it told of the
    answers before. Questions of before this was told apart say of each yes that it expired."""
    plan = payload_of(later)
    policy = plan.get("policy")
    if isinstance(policy, Mapping):
        name = f"the policy {policy.get('name')} (version {policy.get('version')})"
        return Unused(asked_besides(name, later.queue, is_more=later.queue == question.queue)).of("")
    told = [x["content"] for x in plan.get("evidence", ()) if (x["label"], x["source"]) == HISTORY]
    lines = [line for content in told if isinstance(content, list) for line in content if isinstance(line, str)]
    return next((line.removeprefix(begin).removesuffix(".") for line in lines if line.startswith(begin)), _NOT_UNDER_IT)


def _attempts(record: Slot) -> list[str]:
    """What became of the call so far."""
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
