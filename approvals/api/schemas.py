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
    standing: Any = Field(description="As whose deputy and under which limits; null: by their own role, without one.")
    proof: Any = Field(
        description="What its person showed: `by` what and `at` when, `age` in seconds, and what was `typed`; null: no "
        "more was asked than a yes."
    )
    at: datetime
    is_genuine: bool | None = Field(
        description="false: not written by this installation; it decided nothing. null: from before there were codes."
    )


class VoteRow(Shape):
    """One person's word on one stage."""

    verdict: str = Field(description="approve, reject, fail or abstain.")
    by: str
    role: str
    standing: Any = Field(description="As in a decision.")
    proof: Any = Field(description="As in a decision.")
    justification: str
    at: datetime
    is_genuine: bool | None = Field(description="false: not written by this installation; it counts for nothing.")


class StageRow(Shape):
    """One stage of a decision: so many different people of a queue."""

    number: int
    queue: str
    quorum: int
    state: Literal["done", "now", "next", "ended"]
    yes: int = Field(description="How many of those that it takes have said yes.")
    votes: list[VoteRow]


class InquiryRow(Shape):
    """What a named person was asked about it."""

    n: int
    by: str
    role: str
    to: str = Field(description="The name of the account that is asked.")
    question: str
    stops_clock: bool = Field(description="The deadline was put off meanwhile.")
    at: datetime
    outcome: Literal["", "answered", "withdrawn"] = Field(description="Empty: it waits.")
    answer: str = Field(description="Of one that was withdrawn: why.")
    ended_by: str
    ended_at: datetime | None
    is_genuine: bool


class DelegationRow(Shape):
    """To whom it was handed, who may decide it in the place of whoever handed it over until it is taken back."""

    n: int
    by: str
    role: str
    to: str = Field(description="The name of the account that may decide it.")
    reason: str
    made_at: datetime
    ended_at: datetime | None
    ended_by: str
    is_genuine: bool


class ClaimRow(Shape):
    """That somebody is on it. It binds nobody."""

    id: int = Field(description="To be named by whoever takes it over.")
    by: str
    role: str
    at: datetime
    until: datetime = Field(description="When it lapses by itself.")


class DocumentRow(Shape):
    """Something that whoever decides is shown. Its bytes are bound by plan_hash through their digest."""

    n: int
    name: str
    media_type: str
    size: int = Field(description="In bytes.")
    sha256: str = Field(description="Of its bytes, 64 hex digits.")
    url: str = Field(description="Its bytes; the pictures of its pages are listed at `pages` below it.")


class PageRow(Shape):
    n: int
    width: int = Field(description="In pixels.")
    height: int
    url: str


class PagesRow(Shape):
    """How a document looks. A text has no pages: it is read as it is."""

    problem: str = Field(description="Why it can't be shown, and so not be approved; empty: it can be.")
    note: str = Field(description="What it holds besides its pages.")
    pages: list[PageRow]


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
    editable: Any = Field(description="Schema of the arguments that may be changed with an approval; null: none may.")
    plan_hash: str = Field(description="Name it in the decision.")
    evidence: list[Any]
    documents: list[DocumentRow] = Field(description="What is shown with it, as the plan names it.")
    why: str = Field(description="The agent's own words. Untrusted.")
    wanted: Any = Field(
        description="What a yes has to show: who one is, shown `within` so many seconds, by a second `factor`; and the "
        "words to be `typed` (`amount`, `target`). Empty: no more than a yes. While it is open, as its plan and its "
        "queue ask it by now; after that, as the plan bound it."
    )
    hidden: bool = Field(
        description="The caller is not asked and has no right to read it: arguments, evidence, documents, effect, why."
    )
    requested_by: str
    opened_at: datetime
    deadline: datetime = Field(description="When time runs out; of what waits for ever, the next reminder.")
    timing: Any = Field(
        description="By which calendar it was counted, what comes when nobody answers (on_timeout: reject, escalate, "
        "remind), and when people are reminded. Null: a plain deadline, and a no after it."
    )
    escalated_to: list[str] = Field(description="Queues that may decide it too, because nobody answered in time.")
    reminded: int
    reminded_at: datetime | None
    decided_at: datetime | None = Field(description="Of one that nobody answered (state expired): when time ran out.")
    decision: DecisionRow | None = Field(description="What closed it; null while it is open.")
    stage: int = Field(description="Which stage this question is of. Each stage has a question of its own.")
    stages: list[StageRow] = Field(description="All that is asked, in order. One yes of one person is one stage.")
    claims: list[ClaimRow] = Field(description="Who is on it now, while it is open.")
    previous: PreviousRow | None
    inquiries: list[InquiryRow] = Field(
        description="What named people were asked about it; of one that is hidden, those to and by the caller."
    )
    delegations: list[DelegationRow] = Field(description="To whom it was handed.")


class ApprovalPage(Page):
    results: list[ApprovalRow]


class AuditRow(Shape):
    """One act of a person: who, as what, from where, why, on what exact state, before and after."""

    id: str
    kind: str = Field(description="override, decision, act or account: what recorded it.")
    action: str
    at: datetime
    is_genuine: bool | None = Field(
        description="false: without this installation's code, or changed; not a fact. "
        "null: from before there were codes, or of accounts, which the database records."
    )
    by: str = Field(
        description="As it was called then: user:, key:, os: (a command), system: or database: (past the application)."
    )
    person: int | None = Field(description="The account, which keeps its number when it is renamed.")
    role: str
    auth: str
    address: str
    justification: str
    run_id: UUID | None
    agent: str | None
    queue: str
    subject: str = Field(
        description="What it was about: an agent version, a question, a signal, a host, an account, a key."
    )
    approval_id: UUID | None
    plan_hash: str | None
    documents: list[str] = Field(description="SHA-256 of what was shown with what was decided.")
    seq: int | None = Field(description="The journal's last event when the person acted.")
    chain: str | None = Field(description="Its hash.")
    before: Any
    after: Any


class AuditPage(Page):
    results: list[AuditRow]
