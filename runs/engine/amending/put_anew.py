"""What an amendment writes: the end of one question, and the next one about the same call with a person's arguments.
Pure; the same for the journal in memory and for the service."""

from __future__ import annotations

from collections.abc import Mapping
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


# In a plan, and with its wait: the slot of the yes that was brought along, which this one is asked for besides.
BROUGHT = "brought"


def id_of(run_id: str, slot: str, n: int) -> UUID:
    """The id of a slot's `n`-th question."""
    return uuid5(NAMESPACE_URL, f"{run_id}|{slot}|approval|{n}")


def detail_of(plan: dict[str, Any], approval_id: UUID, said: Mapping[str, Any] | None) -> dict[str, Any]:
    """What its wait tells people and the API of a question whose terms are `said`."""
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
        """All that goes on record, in this order."""
        return [self.amended, self.asked, *([] if self.timed is None else [self.timed])]

    @property
    def bytes(self) -> bytes:
        """The text that its hash covers."""
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
    """What follows when somebody puts these arguments in the place of a question's. It keeps its time: `deadline`, or
    that of the question, and its terms are what is `said` of them. `standing` says as what they may decide it, where
    that is more than their own role. Raises ValueError for what is no input of the tool."""
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
    """What holds of a question's time, to be recorded with it."""
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
