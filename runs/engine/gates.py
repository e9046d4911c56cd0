"""Gates: freeze a plan, ask people, and turn their yes into a grant for exactly these bytes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from ledger import events as e
from runs.engine.canonical import canonical, printable
from runs.engine.dispatch import ATTENTION
from runs.engine.errors import Expired, Rejected
from runs.engine.journal import GateOpening, Grant, WaitSpec, deadline_in
from runs.engine.outcomes import Broken
from runs.engine.tape import LAPSED, Slot, payload_of
from runs.engine.tools import Evidence
from runs.engine.visit import Visit

# The label and the source of the evidence that tells of earlier answers and attempts.
HISTORY = ("This call was asked for before", "this run's journal")


def plan_of(
    visit: Visit,
    slot: str,
    *,
    queue: str,
    rule: str,
    tool: str,
    arguments: Any,
    title: str,
    effect: str,
    headline: str,
    evidence: Sequence[Evidence],
) -> dict[str, Any]:
    """All that a decision binds, as plain data: who would do what, exactly how, by which rule, on what evidence."""
    shown = [x.as_json() for x in evidence]
    title, effect, rule, headline, shown = printable([title, effect, rule, headline, shown])
    return {
        "agent": visit.agent.graph_id, "run_id": visit.run_id, "slot": slot, "queue": queue, "rule": rule, "tool": tool, "arguments": arguments,
        "title": title, "effect": effect, "headline": headline, "evidence": shown,
    }  # fmt: skip


def with_history(plan: dict[str, Any], record: Slot, given: Slot | None) -> dict[str, Any]:
    """A plan that says first, if this call was asked about or made before, what was answered and what came of it: whoever decides
    binds that too. `given` is the slot whose grant was passed to the call."""
    told = [*(() if given is None else _answers(given, record)), *_answers(record, record), *_attempts(record)]
    evidence = [x for x in plan["evidence"] if (x["label"], x["source"]) != HISTORY]
    if told:
        label, source = HISTORY
        evidence.insert(0, Evidence(label, source, printable(told)).as_json())
    return plan | {"evidence": evidence}


def _answers(gate: Slot, record: Slot) -> list[str]:
    """What people said, and whether the call ever went out under it."""
    told = []
    for said in gate.decisions:
        used = [str(n) for n, (_, approval_id) in record.grants.items() if approval_id in ("", said.approval_id)]
        if said.verdict == "approved":
            what = f"attempt {', '.join(used)} went out under it" if used else "it expired before the call was made"
            told.append(f"Approved by {said.by} (approval {said.approval_id}): {what}.")
        else:
            told.append(f"{said.verdict.capitalize()} by {said.by} (approval {said.approval_id}).")
    return told


def _attempts(record: Slot) -> list[str]:
    """What became of the call so far."""
    told = []
    for n, attempt in sorted(record.attempts.items()):
        if attempt.intent is None and attempt.result is None:
            continue
        what = "its outcome is not on record"
        if isinstance(attempt.result, e.ToolFailed):
            what = f"the other side refused it: {attempt.result.code}: {payload_of(attempt.result).get('message', '')}"
        elif attempt.reconciled is not None:
            reason = payload_of(attempt.reconciled).get("justification", "")
            what = f"{attempt.reconciled.by} found: {attempt.reconciled.verdict.replace('_', ' ')}{f': {reason}' if reason else ''}"
        told.append(f"Attempt {n}: {what}.")
        if attempt.testimony is not None or attempt.is_called_back_late:
            told.append(f"Attempt {n}: an answer that came later says that it did happen.")
    return told


async def open_gate(
    visit: Visit, slot: str, plan: dict[str, Any], *, requested_hash: str, why: str, within: timedelta, n: int = 0
) -> None:
    """Put the question to its queue and park. Always unwinds. `n` counts how often the slot has asked before."""
    must_be_known(visit, slot, plan["queue"], visit.runtime.queues, "queues")
    deadline = deadline_in(visit.journal.now(), within)
    approval_id = uuid5(NAMESPACE_URL, f"{visit.run_id}|{slot}|approval|{n}")
    plan_hash = visit.runtime.hasher(plan)
    asked = e.ApprovalRequested(
        slot=slot, payload=plan, approval_id=str(approval_id), queue=plan["queue"], tool=plan["tool"], requested_hash=requested_hash,
        plan_hash=plan_hash, rule=plan["rule"], deadline=deadline.isoformat(), n=n,
    )  # fmt: skip
    detail = {
        "queue": plan["queue"],
        "title": plan["title"],
        "headline": plan["headline"],
        "tool": plan["tool"],
        "approval_id": str(approval_id),
    }
    wait = WaitSpec(visit.run_id, slot, 0, "approval", n, deadline, detail)
    gate = GateOpening(
        approval_id, plan["queue"], plan["tool"], plan["title"], plan["effect"], plan["rule"], canonical(plan), plan_hash, plan["evidence"], printable(why),
        visit.created.by,
    )  # fmt: skip
    await visit.record(asked, wait=wait, gate=gate)
    raise visit.park(wait)


def must_be_known(visit: Visit, slot: str, name: str, known: Collection[str] | None, what: str) -> None:
    """To ask people who don't exist is to wait for a deadline: an operator hears of it at once, with who could be asked."""
    if known is not None and name not in known:
        told = f"{name!r} is asked, whom nobody answers for: the {what} are {', '.join(sorted(known)) or 'none'}"
        raise visit.unwind(Broken("unknown_queue", {"slot": slot, "queue": name, "known": sorted(known), "problem": told}))


async def decided(visit: Visit, slot: str, record: Slot, *, tool: str, arguments: Any) -> Grant:
    """The grant of an approved gate for what is about to be sent now. Parks if undecided; raises Rejected if denied.

    The plan is hashed again with the arguments in hand: if they are not what was approved, the grant won't fit its wait and the
    database refuses the intent. What the wait says is not believed, since whoever may write to the database can write there too: the
    decision, whose code was checked when it was read, must name this question and these very bytes. A yes that lapsed is asked for again.
    """
    asked, decision = record.gate, record.decision
    assert asked is not None
    if decision is None:
        raise visit.park(WaitSpec(visit.run_id, slot, 0, "approval", asked.n, visit.journal.now()))
    if decision.verdict == LAPSED and not is_used(visit, slot):
        await open_gate(visit, slot, asked.payload, requested_hash=asked.requested_hash, why="", within=ATTENTION, n=asked.n + 1)
    if decision.verdict not in ("approved", LAPSED):
        reason = (decision.payload or {}).get("justification") or "no decision before the deadline"
        denied = Expired if decision.verdict == "expired" else Rejected
        raise denied(asked.queue, reason, decision.by, decision.verdict)
    plan_hash = visit.runtime.hasher({**asked.payload, "tool": tool, "arguments": arguments})
    bound, now = (decision.approval_id, decision.n, decision.plan_hash), (asked.approval_id, asked.n, plan_hash)
    if bound != now:
        problem = "the decision is about another question, or about other bytes than are to be sent"
        raise visit.unwind(Broken("approval_missing", {"slot": slot, "tool": tool, "problem": problem, "decided": bound, "now": now}))
    return Grant(slot, asked.approval_id, plan_hash, asked.requested_hash, decision.by, asked.queue)


def is_used(visit: Visit, slot: str, *, besides: str = "") -> bool:
    """Whether a call went out under this slot's grant, other than the one at `besides`, which may try again under it."""
    intents = (a.intent for name, known in visit.tape.slots.items() if name != besides for a in known.attempts.values())
    return any(isinstance(x, e.ToolInvoked) and x.grant == slot for x in intents)
