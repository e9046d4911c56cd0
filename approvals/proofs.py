"""Proofs that an approval requires before it counts. An app checks them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from approvals.guards import DecisionGuard, PendingDecision
from approvals.models import Approval
from ledger.errors import DurableAgentsError
from runs import features
from runs.engine.agents import registry
from runs.engine.errors import DefinitionError
from runs.engine.gating.fields import amount_in
from runs.engine.gating.proof import Threshold, Wanted, wanted_in, wanted_of
from runs.engine.gating.stages import APPROVE


class ProofNeeded(DurableAgentsError):
    """The approver's authentication is too old or too weak. Nothing was done; they may try again."""

    status, code, title = 403, "proof-needed", "Recent sign-in required"

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        what = "your second factor" if wanted.factor else "your password or second factor"
        super().__init__(
            f"Approving this requires {what}, given within the last {minutes(wanted.within)}. "
            "Decide it on its page in the console.",
            within_seconds=wanted.within,
            second_factor=wanted.factor,
        )


class KeyCannotProve(DurableAgentsError):
    status, code, title = 403, "key-cannot-prove", "An API key can't prove who uses it"

    def __init__(self, wanted: Wanted) -> None:
        what = "a second factor" if wanted.factor else "a password or a second factor"
        super().__init__(
            f"Approving this requires {what}, given within the last {minutes(wanted.within)}, which an API key "
            "can't provide. Approve it in the console; a key may only reject it.",
            within_seconds=wanted.within,
            second_factor=wanted.factor,
        )


class NothingProves(DurableAgentsError):
    """No installed app checks proofs. Nothing was done."""

    status, code, title = 409, "proof-unavailable", "Proofs can't be checked"

    def __init__(self) -> None:
        super().__init__(
            "Approving this requires a proof, and no installed app checks proofs: ask an administrator to install one. "
            "It can only be rejected."
        )


def minutes(seconds: int) -> str:
    """Return a duration in minutes as text."""
    count = max(1, seconds // 60)
    return f"{count} minute{'' if count == 1 else 's'}"


def wanted_for(approval: Approval, agent: str, thresholds: Iterable[Threshold]) -> Wanted:
    """Return what an approval of a question must prove now. Raises DefinitionError for an unreadable plan."""
    return wanted_by(approval.planned(), agent, approval.tool, thresholds)


def wanted_by(plan: Any, agent: str, tool: str, thresholds: Iterable[Threshold]) -> Wanted:
    """Do the same as `wanted_for`, for a parsed plan. Raises DefinitionError."""
    if not isinstance(plan, dict):
        raise DefinitionError("the plan can't be read")
    wanted = wanted_in(plan)
    for each in thresholds:
        wanted = wanted.joined(wanted_of(plan, each.asked_of(amount_in(plan), _risk(agent, tool))))
    return wanted


def _risk(agent: str, tool: str) -> str:
    """Return the tool's declared risk; empty if this process doesn't know the agent."""
    try:
        return next((each.risk for each in registry.find(agent).all_tools() if each.name == tool), "")
    except DurableAgentsError:
        return ""


class ProofNeedsApp(DecisionGuard):
    """Refuses an approval whose required proof no installed app checks."""

    def proof(self, pending: PendingDecision) -> dict[str, Any]:
        """Check that an app checks the required proof.

        Raises NothingProves, and DefinitionError for an unreadable plan.
        """
        if pending.verdict == APPROVE and features.only(lambda each: each.step_up) is None:
            wanted = wanted_for(pending.approval, pending.run.graph_id, pending.thresholds)
            if wanted.within or wanted.typed:
                raise NothingProves
        return {}
