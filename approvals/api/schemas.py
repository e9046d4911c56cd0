"""The API's answers about approvals, as documented. A test holds the answers to these shapes."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import Field

from approvals.models import ApprovalState
from ledger.web.shapes import Page, Shape


class DecisionRow(Shape):
    verdict: str
    plan_hash: str
    justification: str
    by: str
    role: str
    standing: Any = Field(
        description="Deputyship and limit under which the person decided; null: in their own role, without a limit."
    )
    proof: Any = Field(
        description="Proof that the person gave: `by` which means, `at` which time, `age` in seconds, and "
        "what they `typed`. Null: none was required."
    )
    at: datetime
    is_genuine: bool = Field(description="False: not written by this installation, so it decided nothing.")


class VoteRow(Shape):
    """One person's vote on one stage."""

    verdict: str = Field(description="approve, reject, fail or abstain.")
    by: str
    role: str
    standing: Any = Field(description="As in a decision.")
    proof: Any = Field(description="As in a decision.")
    justification: str
    at: datetime
    is_genuine: bool | None = Field(description="False: not written by this installation, so it doesn't count.")


class StageRow(Shape):
    """One stage of an approval: a number of different people of one queue."""

    number: int
    queue: str
    quorum: int
    state: Literal["done", "now", "next", "ended"]
    yes: int = Field(description="Number of approvals so far; `quorum` are required.")
    votes: list[VoteRow]


class InquiryRow(Shape):
    """An inquiry to a named person about an approval."""

    n: int
    by: str
    role: str
    to: str = Field(description="User name of the person asked.")
    question: str
    stops_clock: bool = Field(description="Whether the approval's deadline was postponed meanwhile.")
    at: datetime
    outcome: Literal["", "answered", "withdrawn"] = Field(description="Empty: not answered yet.")
    answer: str = Field(description="The answer; if withdrawn, the reason.")
    ended_by: str
    ended_at: datetime | None
    is_genuine: bool


class DelegationRow(Shape):
    """A person who may decide the approval in another's place until the delegation ends."""

    n: int
    by: str
    role: str
    to: str = Field(description="User name of the person who may decide it.")
    reason: str
    made_at: datetime
    ended_at: datetime | None
    ended_by: str
    is_genuine: bool


class ClaimRow(Shape):
    """A person reviews the approval now. A claim is information only: others may still decide."""

    id: int = Field(description="Name it to take the claim over.")
    by: str
    role: str
    at: datetime
    until: datetime = Field(description="Time when the claim lapses.")


class DocumentRow(Shape):
    """A document shown to approvers. Its digest, and so its bytes, are covered by plan_hash."""

    n: int
    name: str
    media_type: str
    size: int = Field(description="In bytes.")
    sha256: str = Field(description="SHA-256 of its bytes, 64 hex digits.")
    url: str = Field(description="Address of its bytes. Add `/pages` for the list of page images.")


class PageRow(Shape):
    n: int
    width: int = Field(description="In pixels.")
    height: int
    url: str


class PagesRow(Shape):
    """Page images of a document. A text document has none: read its bytes."""

    problem: str = Field(description="Why it can't be shown, and so not be approved; empty: it can be shown.")
    note: str = Field(description="Content that the pages don't show.")
    pages: list[PageRow]


class PreviousRow(Shape):
    """The previous revision and its decision."""

    id: UUID
    decision: DecisionRow | None


class ApprovalRow(Shape):
    """One revision of an approval request to one queue."""

    id: UUID
    run_id: UUID
    queue: str
    state: ApprovalState
    revision: int
    tool: str
    title: str
    effect: str
    rule: str
    arguments: Any = Field(description="The call's arguments, read from the bytes that plan_hash covers.")
    editable: Any = Field(description="Schema of the arguments that an approver may change; null: none.")
    plan_hash: str = Field(description="Send it with the decision.")
    evidence: list[Any]
    documents: list[DocumentRow] = Field(description="Documents attached to the plan.")
    why: str = Field(description="The agent's own explanation. Untrusted.")
    wanted: Any = Field(
        description="Proof required to approve: authentication within the last `within` seconds, a second "
        "`factor`, and text to be `typed` (`amount`, `target`). Empty: none. While the approval "
        "is open this follows its plan and the queue's current settings; afterwards, the plan as "
        "decided."
    )
    hidden: bool = Field(
        description="True if the caller may not read arguments, evidence, documents, effect and why: they "
        "don't decide here and have no right to read payloads."
    )
    requested_by: str
    opened_at: datetime
    deadline: datetime = Field(description="Time of expiry; if the approval never expires, time of the next reminder.")
    timing: Any = Field(
        description="Calendar by which the deadline was counted, what happens at time-out (on_timeout: "
        "reject, escalate, remind), and reminder times. Null: a plain deadline, after which the "
        "call is denied."
    )
    escalated_to: list[str] = Field(description="Queues that may also decide it because nobody did in time.")
    reminded: int
    reminded_at: datetime | None
    decided_at: datetime | None = Field(description="Time of the decision; if it expired without one, time of expiry.")
    decision: DecisionRow | None = Field(description="The decision that closed it; null while it is open.")
    stage: int = Field(description="Stage that this approval belongs to. Each stage has an approval of its own.")
    stages: list[StageRow] = Field(description="All stages, in order. A person's approval counts for one stage only.")
    claims: list[ClaimRow] = Field(description="People who are reviewing it now, while it is open.")
    previous: PreviousRow | None
    inquiries: list[InquiryRow] = Field(
        description="Inquiries to named people about it. If its content is hidden, only those from or to the caller."
    )
    delegations: list[DelegationRow] = Field(description="People to whom it was delegated.")


class ApprovalPage(Page):
    results: list[ApprovalRow]


class AuditRow(Shape):
    """One recorded act of a person: actor, role, source address, justification, exact state acted on, and values before
    and after."""

    id: str
    kind: str = Field(description="Type of the record: override, decision, act or account.")
    action: str
    at: datetime
    is_genuine: bool | None = Field(
        description="False: the record lacks this installation's authentication code or was changed, so it is "
        "not a fact. Null: it is an account record, which the database writes."
    )
    by: str = Field(
        description="Actor's name at that time, with a prefix: user:, key:, os: (a command), system:, or "
        "database: (outside the application)."
    )
    person: int | None = Field(description="Id of the account; it survives renaming.")
    role: str
    auth: str
    address: str
    justification: str
    run_id: UUID | None
    agent: str | None
    queue: str
    subject: str = Field(
        description="Object of the act: an agent version, a question, a signal, a host, an account or a key."
    )
    approval_id: UUID | None
    plan_hash: str | None
    documents: list[str] = Field(description="SHA-256 of the documents shown with the decision.")
    seq: int | None = Field(description="Last journal event when the person acted.")
    chain: str | None = Field(description="Hash of that event.")
    before: Any
    after: Any


class AuditPage(Page):
    results: list[AuditRow]
