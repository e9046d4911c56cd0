"""People's changes to the arguments of a call awaiting approval, which binds the newest question's bytes. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, UUID, uuid5

from ledger import events as e
from runs.engine.canonical import Hasher, canonical, plain, printable
from runs.engine.gating.fields import Evidence, editable_in
from runs.engine.gating.stages import approving, is_staged, next_stage, required_by
from runs.engine.journal import WaitSpec
from runs.engine.tape import Slot, payload_of

if TYPE_CHECKING:
    from pydantic import BaseModel

    from runs.engine.tools import Gate, Tool

NO_CODE = "it was changed where this agent's code is not installed"


@dataclass(frozen=True, slots=True)
class Amendment:
    """A change that a person made to a call before it was sent. `by` is the person, `why` their reason. `changes`
    maps each changed field to what the node (or the model) asked for and what was sent: `{"amount": (5000, 4000)}`."""

    by: str
    why: str
    changes: dict[str, tuple[Any, Any]]


def amended_plan(plan: dict[str, Any], arguments: dict[str, Any], tool: Tool | None) -> dict[str, Any]:
    """Return the plan with these arguments, as far as the tool is known. Raises ValueError if they don't fit it."""
    plan = _from_the_first_stage(plan) | {"arguments": arguments, "headline": ""}
    if tool is None:
        return plan | ({"amount": {"problem": NO_CODE}} if "amount" in plan else {})
    args, gate = tool.input.model_validate(arguments), tool.gate
    if gate is None or gate.requirement != required_by(plan, plan["queue"]):
        return plan | ({"amount": {"problem": "its gate asks other people now"}} if "amount" in plan else {})
    rule = {"rule": printable(gate.rule_for(args))} if gate.is_needed(args) else {}
    return plan | rule | {"headline": printable(gate.headline_for(args))} | gate.amount_for(args)


def _from_the_first_stage(plan: dict[str, Any]) -> dict[str, Any]:
    """Reset a plan to its first stage. Proof is kept, but for the text to type, which is of the old arguments."""
    kept = {name: value for name, value in plan.items() if name not in ("passed", "proof")}
    shown = plan.get("proof")
    if isinstance(shown, dict) and (shown := {name: value for name, value in shown.items() if name != "typed"}):
        kept |= {"proof": shown}
    return kept | ({"stage": 1, "queue": required_by(plan, "").stages[0].queue} if is_staged(plan) else {})


def changes(before: Any, after: Any) -> dict[str, dict[str, Any]]:
    names = [*before, *(name for name in after if name not in before)]
    return {
        name: {"from": before.get(name), "to": after.get(name)}
        for name in names
        if name not in before or name not in after or _differ(before[name], after[name])
    }


def _differ(one: Any, other: Any) -> bool:
    return json.dumps(_by_value(one), sort_keys=True) != json.dumps(_by_value(other), sort_keys=True)


def _by_value(value: Any) -> Any:
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {name: _by_value(each) for name, each in value.items()}
        case list():
            return list(map(_by_value, value))
        case _:
            return value


def moved_along(tool: Tool, before: Any, made: BaseModel, fields: Collection[str]) -> list[str]:
    """Return fields, beyond the editable `fields`, that the tool's own code changed with the arguments."""
    try:
        was = plain(tool.input.model_validate(before))
    except ValueError:  # from another version of the code
        was = before
    return sorted(name for name in changes(was, plain(made)) if name not in fields)


def arguments_of(record: Slot) -> Any:
    """Return the arguments that people set, while the newest question is about them; else None."""
    if not record.amended:
        return None
    given = payload_of(record.amended[-1][0]).get("arguments")
    return given if record.gate is not None and payload_of(record.gate).get("arguments") == given else None


def editable_of(record: Slot) -> set[str]:
    """Return the fields that people could change, from the questions whose arguments they changed."""
    asked = (record.asked.get(event.approval_id) for event, _ in record.amended)
    return {name for question in asked for name in editable_in(payload_of(question))["properties"]}


def asked_for(record: Slot) -> Any:
    """Return what the node asked for; of an amended call, the arguments of its first question."""
    first = next(iter(record.asked.values()), None)
    return payload_of(first).get("arguments") if record.amended and first is not None else record.arguments


def looks_before(record: Slot) -> int:
    return record.amended[-1][1] if record.amended and arguments_of(record) is not None else 0


def amendment_of(record: Slot | None) -> Amendment | None:
    """Return the amendment of a call that was sent: all that people changed since the node asked."""
    if record is None or not record.was_invoked or arguments_of(record) is None:
        return None
    merged: dict[str, tuple[Any, Any]] = {}
    for event, _ in record.amended:
        for name, change in payload_of(event).get("changes", {}).items():
            first = merged[name][0] if name in merged else change.get("from")
            merged[name] = (first, change.get("to"))
    last = record.amended[-1][0]
    merged = {name: (was, became) for name, (was, became) in merged.items() if _differ(was, became)}
    return Amendment(last.by, str(payload_of(last).get("justification", "")), merged)


def in_words(event: e.PlanAmended) -> str:
    said = ", ".join(
        f"{name} from {json.dumps(change.get('from'), ensure_ascii=False)} to "
        f"{json.dumps(change.get('to'), ensure_ascii=False)}"
        for name, change in payload_of(event).get("changes", {}).items()
    )
    return f"Amended by {event.by} (approval {event.approval_id}): {said}."


def became(record: Slot, gate: Gate | None, args: Any) -> str:
    """Return how the gate's current rule or amount differs from the amended question; empty if not."""
    question = record.gate
    if gate is None or question is None or not gate.is_needed(args):
        return ""
    said = payload_of(question)
    if gate.requirement != required_by(said, question.queue):
        return ""
    if printable(gate.rule_for(args)) != said.get("rule"):
        return "the rule that asks for it is another one than its question said"
    if gate.amount_for(args) != {name: said[name] for name in ("amount",) if name in said}:
        return "the amount that it is about was another one in its question"
    return ""


# The label and the source of the evidence about earlier answers and attempts.
HISTORY = ("This call was asked for before", "this run's journal")
# For an approval of which we only know that nothing was sent under it.
_NOT_UNDER_IT = "the call was not made under it"
_EXPIRED = "it expired before the call was made"
_EXPIRED_OR_BACK = "it was taken back, or expired, before the call was made"


@dataclass(frozen=True, slots=True)
class Unused:
    """Why an approval was not used: `expired` is the slot of an expired one, otherwise `because` has the reason."""

    because: str = ""
    expired: str = ""

    def of(self, name: str) -> str:
        """Return the reason for the last approval of the slot `name`."""
        if self.expired:
            return _EXPIRED if name == self.expired else _NOT_UNDER_IT
        return f"the call was not made yet, for {self.because}" if self.because else _NOT_UNDER_IT


NOT_TOLD = Unused()


def asked_besides(who: str, queue: str, *, is_more: bool) -> str:
    """Say that `who` also requires a queue's approval, or (`is_more`) more proof with the current one."""
    return f"{who} wants more shown with the yes of {queue}" if is_more else f"{who} asks {queue} as well"


def with_history(
    plan: dict[str, Any], record: Slot, given: tuple[str, Slot] | None, problem: str = "", unused: Unused = NOT_TOLD
) -> dict[str, Any]:
    """Return a plan whose evidence starts with earlier answers and attempts, so that the decision binds them. `given`
    is the slot (with its name) of a passed grant; `problem` and `unused` say why the last approval did not serve."""
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
    """List the decisions, and whether the call was sent under each; `unused` is the reason for the last one."""
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
    """Return the number of the standing grant that gave an approval; None if a person decided."""
    standing = payload_of(decision).get("standing")
    return standing.get("grant") if isinstance(standing, Mapping) else None


def _told_then(question: e.ApprovalRequested, later: e.ApprovalRequested, begin: str) -> str:
    """Return why an approval was not used, by the question after it. Old questions always say that it expired."""
    plan = payload_of(later)
    policy = plan.get("policy")
    if isinstance(policy, Mapping):
        name = f"the policy {policy.get('name')} (version {policy.get('version')})"
        return Unused(asked_besides(name, later.queue, is_more=later.queue == question.queue)).of("")
    told = [x["content"] for x in plan.get("evidence", ()) if (x["label"], x["source"]) == HISTORY]
    lines = [line for content in told if isinstance(content, list) for line in content if isinstance(line, str)]
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


# In a plan and its wait: the slot of the approval passed to the call, in addition to which this one is requested.
BROUGHT = "brought"


def id_of(run_id: str, slot: str, n: int) -> UUID:
    """Return the id of a slot's `n`-th question."""
    return uuid5(NAMESPACE_URL, f"{run_id}|{slot}|approval|{n}")


def detail_of(plan: dict[str, Any], approval_id: UUID, said: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what the wait of a question shows to people and the API; `said` are its terms."""
    told = {name: plan[name] for name in ("queue", "title", "headline", "tool")} | {"approval_id": str(approval_id)}
    told |= {name: plan[name] for name in (BROUGHT,) if name in plan}
    word = "reject" if said is None else said["on_timeout"]
    return told if word == "reject" else told | {"on_timeout": word}


@dataclass(frozen=True, slots=True)
class PutAnew:
    """The events, the wait and the plan of the next question."""

    amended: e.PlanAmended
    asked: e.ApprovalRequested
    wait: WaitSpec
    plan: dict[str, Any]
    timed: e.ApprovalTimed | None = None

    @property
    def events(self) -> list[e.Event]:
        return [self.amended, self.asked, *([] if self.timed is None else [self.timed])]

    @property
    def bytes(self) -> bytes:
        return canonical(self.plan)


def put_anew(
    run_id: str,
    question: e.ApprovalRequested,
    arguments: dict[str, Any],
    *,
    tool: Tool | None,
    hasher: Hasher,
    by: str,
    role: str,
    justification: str,
    deadline: datetime | None = None,
    standing: Any = None,
    said: dict[str, Any] | None = None,
) -> PutAnew:
    """Build the next question after `by` replaces the arguments; time limit and terms stay. `standing` says as what
    they may decide, if not by their own role. Raises ValueError if the tool rejects the arguments."""
    plan, slot, n = amended_plan(payload_of(question), arguments, tool), question.slot or "", question.n + 1
    approval_id, plan_hash = id_of(run_id, slot, n), hasher(plan)
    until = datetime.fromisoformat(question.deadline) if deadline is None else deadline
    payload = {
        "justification": justification,
        "arguments": arguments,
        "changes": changes(payload_of(question)["arguments"], arguments),
    } | ({} if standing is None else {"standing": standing})
    amended = e.PlanAmended(
        slot=slot,
        n=question.n,
        approval_id=question.approval_id,
        plan_hash=question.plan_hash,
        by=by,
        role=role,
        next=str(approval_id),
        payload=payload,
    )
    asked = e.ApprovalRequested(
        slot=slot,
        payload=plan,
        approval_id=str(approval_id),
        queue=plan["queue"],
        tool=question.tool,
        requested_hash=question.requested_hash,
        plan_hash=plan_hash,
        rule=plan["rule"],
        deadline=until.isoformat(),
        n=n,
    )
    wait = WaitSpec(run_id, slot, 0, "approval", n, until, detail_of(plan, approval_id, said))
    return PutAnew(amended, asked, wait, plan, None if said is None else timed(asked, said))


def timed(question: e.ApprovalRequested, said: dict[str, Any]) -> e.ApprovalTimed:
    """Return the event that records a question's time limit."""
    calendar = said["calendar"] or {"name": "", "version": 0}
    return e.ApprovalTimed(
        slot=question.slot,
        approval_id=question.approval_id,
        on_timeout=said["on_timeout"],
        calendar=calendar["name"],
        calendar_version=calendar["version"],
        n=question.n,
        payload=said,
    )
