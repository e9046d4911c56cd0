"""The API's answers about approvals, as documented. A test holds the answers to these shapes."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import Field

from approvals.models import ApprovalState
from ledger.shapes import Page, Shape


class DecisionRow(Shape):
    verdict: str
    plan_hash: str
    justification: str
    by: str
    role: str
    at: datetime


class PreviousRow(Shape):
    """The revision before, and what was said to it."""

    id: UUID
    decision: DecisionRow | None


class ApprovalRow(Shape):
    """One revision of one question to one queue."""

    id: UUID
    run_id: UUID
    queue: str
    state: ApprovalState
    revision: int
    tool: str
    title: str
    effect: str
    rule: str
    arguments: Any = Field(description="Read from the bytes that plan_hash covers.")
    plan_hash: str = Field(description="Name it in the decision.")
    evidence: list[Any]
    why: str = Field(description="The agent's own words. Untrusted.")
    requested_by: str
    opened_at: datetime
    deadline: datetime
    decided_at: datetime | None
    decision: DecisionRow | None
    previous: PreviousRow | None


class ApprovalPage(Page):
    results: list[ApprovalRow]
