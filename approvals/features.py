"""The conditions of all features for decisions, in the order in which they are checked."""

from __future__ import annotations

from approvals.conditions import Condition
from approvals.documents.shown import DOCUMENTS
from approvals.stepup import STEP_UP
from approvals.timing.course import TIMING

CONDITIONS: tuple[Condition, ...] = (DOCUMENTS, TIMING, STEP_UP)
