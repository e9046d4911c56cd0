"""What an approver is shown of one question: everything that the decision binds, read from the bytes that its hash covers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from approvals.models import Approval, ApprovalState, Decision
from approvals.policy import QUEUES, is_own_request, may_decide
from ledger.errors import DurableAgentsError, NotFound
from ledger.models import Head
from ledger.visible import Change, compare, leaves
from runs.engine.agents import registry
from runs.subject import subject
from runs.toolcards import ToolCard, cards_of


@dataclass(frozen=True, slots=True)
class Earlier:
    """The revision before, and what was said to it."""

    approval: Approval
    decision: Decision | None


@dataclass(frozen=True)
class Brief:
    """One question whole. `changes` are the arguments, each against the revision before if there is one."""

    approval: Approval
    plan: dict[str, Any]
    changes: list[Change]
    earlier: list[Earlier]
    decision: Decision | None
    head: Head | None
    tool: ToolCard | None
    role: str
    is_mine: bool
    is_own: bool

    @property
    def is_open(self) -> bool:
        return bool(self.approval.state == ApprovalState.OPEN)

    @property
    def headline(self) -> str:
        return str(self.plan.get("headline") or "")

    @property
    def about(self) -> str:
        """The party, in the arguments' own words."""
        return subject(self.plan.get("arguments"))

    @property
    def covered(self) -> list[str]:
        """What the hash covers besides the arguments, by its names in the plan."""
        return [name for name in self.plan if name not in ("arguments", "evidence")]


def plan_of(approval: Approval) -> dict[str, Any]:
    """The plan, read from the exact bytes that were hashed."""
    plan = json.loads(bytes(approval.plan))
    return plan if isinstance(plan, dict) else {}


def brief(approval_id: UUID, held: frozenset[str], name: str) -> Brief:
    """One question for a reader with this name and these roles. Raises NotFound."""
    approval = Approval.objects.select_related("run").filter(id=approval_id).first()
    if approval is None:
        raise NotFound("approval", approval_id)
    plan = plan_of(approval)
    earlier = _earlier(approval)
    before = leaves(plan_of(earlier[0].approval).get("arguments")) if earlier else None
    now = leaves(plan.get("arguments"))
    changes = [Change(leaf.path, "only", leaf, None) for leaf in now] if before is None else compare(now, before)
    return Brief(
        approval=approval,
        plan=plan,
        changes=changes,
        earlier=earlier,
        decision=Decision.objects.filter(approval=approval).first(),
        head=Head.objects.filter(run_id=approval.run_id).first(),
        tool=_tool(approval),
        role=QUEUES.get(approval.queue, ""),
        is_mine=may_decide(approval.queue, held),
        is_own=is_own_request(approval.requested_by, name),
    )


def _earlier(approval: Approval) -> list[Earlier]:
    """The revisions before this one, newest first, in two queries: they all belong to one run."""
    if approval.previous_id is None:
        return []
    known = {one.id: one for one in Approval.objects.filter(run_id=approval.run_id)}
    decisions = {one.approval_id: one for one in Decision.objects.filter(approval__run_id=approval.run_id)}
    chain: list[Earlier] = []
    at: UUID | None = approval.previous_id
    while at in known and len(chain) < len(known):
        chain.append(Earlier(known[at], decisions.get(at)))
        at = known[at].previous_id
    return chain


def _tool(approval: Approval) -> ToolCard | None:
    try:
        return cards_of(registry.find(approval.run.graph_id)).get(approval.tool)
    except DurableAgentsError:
        return None
