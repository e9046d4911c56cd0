"""Gates: freeze a plan, ask people, and turn their yes into a grant for exactly these bytes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from ledger import events as e
from runs.engine.canonical import canonical, printable
from runs.engine.errors import Expired, Rejected
from runs.engine.journal import GateOpening, Grant, WaitSpec, deadline_in
from runs.engine.outcomes import Broken
from runs.engine.tape import Slot
from runs.engine.tools import Evidence
from runs.engine.visit import Visit


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


def decided(visit: Visit, slot: str, record: Slot, *, tool: str, arguments: Any) -> Grant:
    """The grant of an approved gate for what is about to be sent now. Parks if undecided; raises Rejected if denied.

    The plan is hashed again with the arguments in hand: if they are not what was approved, the grant won't fit its wait and the
    database refuses the intent.
    """
    asked, decision = record.gate, record.decision
    assert asked is not None
    if decision is None:
        raise visit.park(WaitSpec(visit.run_id, slot, 0, "approval", asked.n, visit.journal.now()))
    if decision.verdict != "approved":
        reason = (decision.payload or {}).get("justification") or "no decision before the deadline"
        denied = Expired if decision.verdict == "expired" else Rejected
        raise denied(asked.queue, reason, decision.by, decision.verdict)
    plan_hash = visit.runtime.hasher({**asked.payload, "tool": tool, "arguments": arguments})
    return Grant(slot, asked.approval_id, plan_hash, asked.requested_hash, decision.by, asked.queue)
