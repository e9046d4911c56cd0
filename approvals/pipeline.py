"""The guards of decisions, in the order in which they are asked."""

from __future__ import annotations

from approvals.documents.shown import DOCUMENTS
from approvals.guards import DecisionGuard
from approvals.stepup import STEP_UP
from approvals.timing.course import TIMING

GUARDS: tuple[DecisionGuard, ...] = (DOCUMENTS, TIMING, STEP_UP)
