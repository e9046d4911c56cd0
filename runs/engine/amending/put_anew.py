"""What an amendment writes: the end of one question, and the next one about the same call with a person's arguments.
Pure; the same for the journal in memory and for the service."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, UUID, uuid5

from ledger import events as e
from runs.engine.amending.record import amended_plan, changes
from runs.engine.canonical import Hasher, canonical
from runs.engine.journal import WaitSpec
from runs.engine.tape import payload_of

if TYPE_CHECKING:
    from runs.engine.tools import Tool


def id_of(run_id: str, slot: str, n: int) -> UUID:
    """The id of a slot's `n`-th question."""
    return uuid5(NAMESPACE_URL, f"{run_id}|{slot}|approval|{n}")


def detail_of(plan: dict[str, Any], approval_id: UUID) -> dict[str, Any]:
    """What its wait tells people and the API of a question."""
    return {name: plan[name] for name in ("queue", "title", "headline", "tool")} | {"approval_id": str(approval_id)}


@dataclass(frozen=True, slots=True)
class PutAnew:
    """The events, the wait and the plan of the next question."""

    amended: e.PlanAmended
    asked: e.ApprovalRequested
    wait: WaitSpec
    plan: dict[str, Any]

    @property
    def bytes(self) -> bytes:
        """The text that its hash covers."""
        return canonical(self.plan)


def put_anew(
    run_id: str, question: e.ApprovalRequested, arguments: dict[str, Any], *,
    tool: Tool | None, hasher: Hasher, by: str, role: str, justification: str, deadline: datetime | None = None,
    standing: Any = None,
) -> PutAnew:  # fmt: skip
    """What follows when somebody puts these arguments in the place of a question's. It keeps its time: `deadline`, or
    that of the question. `standing` says as what they may decide it, where that is more than their own role. Raises
    ValueError for what is no input of the tool."""
    plan, slot, n = amended_plan(payload_of(question), arguments, tool), question.slot or "", question.n + 1
    approval_id, plan_hash = id_of(run_id, slot, n), hasher(plan)
    until = datetime.fromisoformat(question.deadline) if deadline is None else deadline
    payload = {
        "justification": justification, "arguments": arguments,
        "changes": changes(payload_of(question)["arguments"], arguments),
    } | ({} if standing is None else {"standing": standing})  # fmt: skip
    amended = e.PlanAmended(
        slot=slot, n=question.n, approval_id=question.approval_id, plan_hash=question.plan_hash, by=by, role=role,
        next=str(approval_id), payload=payload,
    )  # fmt: skip
    asked = e.ApprovalRequested(
        slot=slot, payload=plan, approval_id=str(approval_id), queue=question.queue, tool=question.tool,
        requested_hash=question.requested_hash, plan_hash=plan_hash, rule=plan["rule"], deadline=until.isoformat(), n=n,
    )  # fmt: skip
    return PutAnew(amended, asked, WaitSpec(run_id, slot, 0, "approval", n, until, detail_of(plan, approval_id)), plan)
