"""Protocol by which features take part in decisions; services.py runs all guards at fixed points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ledger.actors import Actor
from runs.engine.gating.proof import Threshold
from runs.models import Run, Wait

if TYPE_CHECKING:
    from approvals.models import Approval, Decision
    from approvals.passkeys.signed import Signed


@dataclass(frozen=True, slots=True)
class PendingDecision:
    """A decision that is about to be made, with everything locked. `thresholds` are those of the queues decided at,
    `typed` is what was typed as proof, `signed` a passkey's signature."""

    approval: Approval
    run: Run
    verdict: str
    by: Actor
    now: datetime
    thresholds: Sequence[Threshold]
    typed: Mapping[str, str]
    signed: Signed | None


class DecisionGuard:
    """A feature's say in decisions. It refuses by raising an error, and then nothing has changed. It holds no state."""

    def before_locks(self, plan: bytes) -> None:
        """Check a plan before it is approved. No lock is held yet, so this may take long."""

    def is_late(self, approval: Approval, wait: Wait, now: datetime) -> bool:
        """Return whether the deadline has passed although the question is still open."""
        return False

    def proof(self, pending: PendingDecision) -> dict[str, Any]:
        """Return what the decision records as proof. May raise DefinitionError for an unreadable plan."""
        return {}

    def store(self, pending: PendingDecision, decision: Decision) -> None:
        """Store what belongs to the decision, after it, in its transaction."""
