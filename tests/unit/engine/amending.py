"""Amends a run in memory as `approvals.cases.amending` does in the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from ledger import events as e
from runs.engine.canonical import Hasher, canonical
from runs.engine.gate import amend_question
from runs.engine.journal import GateOpening
from runs.engine.memory import MemoryRun, MemoryWait

if TYPE_CHECKING:
    from runs.engine.tools import Tool


def amend(
    run: MemoryRun,
    wait_id: UUID,
    changed: dict[str, Any],
    *,
    tool: Tool | None,
    hasher: Hasher,
    by: str = "user:finance",
    role: str = "approver_finance",
    justification: str = "as quoted",
    approves: bool = True,
) -> None:
    wait = run.waits[wait_id]
    assert wait.gate is not None and wait.resolution is None
    gate = wait.gate
    question = next(
        x for x in run.events if isinstance(x, e.ApprovalRequested) and x.approval_id == str(gate.approval_id)
    )
    arguments = question.payload["arguments"] | changed
    why = {"by": by, "role": role, "justification": justification}
    amended, new = amend_question(run.id, question, arguments, tool=tool, hasher=hasher, **why)
    plan = new.plan
    run.resolve(wait_id, "amended", event=amended)
    run.append([new.asked])
    run.waits[new.wait.id] = MemoryWait(
        new.wait,
        GateOpening(
            UUID(new.asked.approval_id),
            plan["queue"],
            plan["tool"],
            plan["title"],
            plan["effect"],
            plan["rule"],
            canonical(plan),
            new.asked.plan_hash,
            plan["evidence"],
            gate.why,
            gate.requested_by,
        ),
    )
    if approves:
        run.decide("approved", by=by, role=role, justification=justification, slot=new.wait.slot)
