"""The core's guards of decisions, in the order in which they are asked; those of features follow."""

from __future__ import annotations

from approvals.deadlines import InTime
from approvals.guards import DecisionGuard, DocumentsNeedApp
from approvals.proofs import ProofNeedsApp

GUARDS: tuple[DecisionGuard, ...] = (DocumentsNeedApp(), InTime(), ProofNeedsApp())
