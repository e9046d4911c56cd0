"""Documented response schemas for approvals. A test checks real answers against them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import Field

from approvals.models import ApprovalState
from ledger.web.fields import ActorName, ApprovalId, IsAuthentic, Reason, RoleName, Rows, RunId, ToolName
from ledger.web.shapes import Page, Shape


class DecisionRow(Shape):
    verdict: str = Field(description="approve, reject, fail or expired.")
    plan_hash: str = Field(description="Hash of the plan that was decided.")
    justification: Reason
    by: ActorName
    role: RoleName
    standing: Any = Field(
        description="Deputyship and limit under which the person decided; null for their own role without a limit."
    )
    proof: Any = Field(
        description="Proof that the person gave: `by` which means, `at` which time, `age` in seconds, and "
        "what they `typed`. Null: none was required."
    )
    at: datetime = Field(description="Time of the decision.")
    is_authentic: bool = Field(description="False: not written by this installation, so it decided nothing.")


class VoteRow(Shape):
    """One person's vote on one stage."""

    verdict: str = Field(description="approve, reject, fail or abstain.")
    by: ActorName
    role: RoleName
    standing: Any = Field(description="As in a decision.")
    proof: Any = Field(description="As in a decision.")
    justification: Reason
    at: datetime = Field(description="Time of the vote.")
    is_authentic: bool | None = Field(description="False: not written by this installation, so it doesn't count.")


class StageRow(Shape):
    """One stage of an approval: a number of different people of one queue."""

    number: int = Field(description="Number of the stage, from 1.")
    queue: str = Field(description="Queue whose people vote.")
    quorum: int = Field(description="Number of approvals required.")
    state: Literal["done", "now", "next", "ended"] = Field(
        description="done, now (people vote), next (not reached) or ended (not needed any more)."
    )
    yes: int = Field(description="Number of approvals so far; `quorum` are required.")
    votes: list[VoteRow] = Field(description="Votes so far.")


class InquiryRow(Shape):
    """An inquiry to a named person about an approval."""

    n: int = Field(description="Number of the inquiry, from 1.")
    by: ActorName
    role: RoleName
    to: str = Field(description="User name of the person asked.")
    question: str = Field(description="Text of the question.")
    stops_clock: bool = Field(description="Whether the approval's deadline was extended meanwhile.")
    at: datetime = Field(description="Time when it was asked.")
    outcome: Literal["", "answered", "withdrawn"] = Field(description="Empty: not answered yet.")
    answer: str = Field(description="The answer; if withdrawn, the reason.")
    ended_by: str = Field(description="Person who answered or withdrew it; empty: nobody yet.")
    ended_at: datetime | None = Field(description="Time of the answer or withdrawal; null while it is open.")
    is_authentic: IsAuthentic


class DelegationRow(Shape):
    """A person who may decide the approval on behalf of someone else until the delegation ends."""

    n: int = Field(description="Number of the delegation, from 1.")
    by: ActorName
    role: RoleName
    to: str = Field(description="User name of the person who may decide it.")
    reason: str = Field(description="Justification.")
    made_at: datetime = Field(description="Time when it was delegated.")
    ended_at: datetime | None = Field(description="Time when the delegation ended; null while it is in force.")
    ended_by: str = Field(description="Person who ended it; empty: nobody.")
    is_authentic: IsAuthentic


class ClaimRow(Shape):
    """A claim: a person is reviewing the approval now. It is for information only: others may still decide."""

    id: int = Field(description="Send this user name to take over the claim.")
    by: ActorName
    role: RoleName
    at: datetime = Field(description="Time when the review started.")
    until: datetime = Field(description="Time when the claim lapses.")


class DocumentRow(Shape):
    """A document shown to approvers. Its digest, and so its bytes, are covered by plan_hash."""

    n: int = Field(description="Number of the document, from 1.")
    name: str = Field(description="File name.")
    media_type: str = Field(description="Media type of its bytes.")
    size: int = Field(description="In bytes.")
    sha256: str = Field(description="SHA-256 of its bytes, 64 hex digits.")
    url: str = Field(description="Address of its bytes. Add `/pages` for the list of page images.")


class PreviousRow(Shape):
    """The previous revision and its decision."""

    id: ApprovalId
    decision: DecisionRow | None = Field(description="Its decision; null if it has none.")


class ApprovalRow(Shape):
    """One revision of an approval request to one queue."""

    id: ApprovalId
    run_id: RunId
    queue: str = Field(description="Queue that decides it.")
    state: ApprovalState = Field(description="State of the approval.")
    revision: int = Field(
        description="Number of the revision, from 1; a rejected request that is made again gets the next number."
    )
    tool: ToolName
    title: str = Field(description="Title of the requested call.")
    effect: str = Field(description="Effect of the call, in the tool author's words.")
    rule: str = Field(description="Rule that requires the approval.")
    arguments: Any = Field(description="The call's arguments, read from the bytes that plan_hash covers.")
    editable: Any = Field(description="Schema of the arguments that an approver may change; null: none.")
    plan_hash: str = Field(description="Send it with the decision.")
    evidence: list[Any] = Field(description="Evidence that the agent attached.")
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
    requested_by: str = Field(description="Actor who started the run.")
    opened_at: datetime = Field(description="Time when it was requested.")
    deadline: datetime = Field(description="Time of expiry; if the approval never expires, time of the next reminder.")
    timing: Any = Field(
        description="Calendar by which the deadline was counted, what happens at the deadline (on_timeout: "
        "reject, escalate, remind), and reminder times. Null: a plain deadline, after which the "
        "call is denied."
    )
    escalated_to: list[str] = Field(description="Queues that may also decide it because nobody decided in time.")
    reminded: int = Field(description="Number of reminders sent.")
    reminded_at: datetime | None = Field(description="Time of the last reminder; null if none was sent.")
    decided_at: datetime | None = Field(description="Time of the decision; if it expired without one, time of expiry.")
    decision: DecisionRow | None = Field(description="The decision that closed it; null while it is open.")
    stage: int = Field(description="Stage that this approval belongs to. Each stage has an approval of its own.")
    stages: list[StageRow] = Field(description="All stages, in order. A person's approval counts for one stage only.")
    claims: list[ClaimRow] = Field(description="People who are reviewing it now, while it is open.")
    previous: PreviousRow | None = Field(description="The previous revision; null for the first.")
    inquiries: list[InquiryRow] = Field(
        description="Inquiries to named people about it. If its content is hidden, only those from or to the caller."
    )
    delegations: list[DelegationRow] = Field(description="People to whom it was delegated.")


class ApprovalPage(Page):
    results: Rows[ApprovalRow]


class AuditRow(Shape):
    """One recorded act of a person: actor, role, source address, justification, exact state acted on, and values before
    and after."""

    id: str = Field(description="Id of the record.")
    kind: str = Field(description="Type of the record: override, decision, act or account.")
    action: str = Field(description="Name of the act, such as pause or decide.")
    at: datetime = Field(description="Time of the act.")
    is_authentic: bool | None = Field(
        description="False: the record lacks this installation's authentication code or was changed, so it is "
        "not a fact. Null: it is an account record, which the database writes."
    )
    by: str = Field(
        description="Actor's name at that time, with a prefix: user:, key:, os: (a command), system:, or "
        "database: (outside the application)."
    )
    person: int | None = Field(description="Id of the account; it survives renaming.")
    role: RoleName
    auth: str = Field(description="Means by which the person was authenticated.")
    address: str = Field(description="Source address of the request; empty: unknown.")
    justification: Reason
    run_id: UUID | None = Field(description="Run that was acted on; null: none.")
    agent: str | None = Field(description="Agent of the run; null: none.")
    queue: str = Field(description="Queue that was acted on; empty: none.")
    subject: str = Field(
        description="Target of the act: an agent version, a question, a signal, a host, an account or a key."
    )
    approval_id: UUID | None = Field(description="Approval that was acted on; null: none.")
    plan_hash: str | None = Field(description="Hash of the plan that was decided; null if the act is no decision.")
    documents: list[str] = Field(description="SHA-256 of the documents shown with the decision.")
    seq: int | None = Field(description="Last journal event when the person acted.")
    chain: str | None = Field(description="Hash of that event.")
    before: Any = Field(description="Values before the act.")
    after: Any = Field(description="Values after the act.")


class AuditPage(Page):
    results: Rows[AuditRow]
