"""The API's answers about journals, ledgers and overrides, as documented. A test holds the answers to these shapes."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import Field

from ledger.web.shapes import Page, Shape


class EventRow(Shape):
    """One event of a run's journal."""

    seq: int
    kind: str
    at: datetime
    epoch: int
    slot: str | None
    attempt: int
    fact: str | None
    data: dict[str, Any] = Field(description="Metadata, stored in the clear and covered by the hash chain.")
    payload: Any = Field(description="Arguments, results, messages and tracebacks.")
    damage: str | None = Field(default=None, description="Why the stored payload can't be read; null if it can.")
    hidden: bool = Field(default=False, description="True if there is a payload that the caller may not read.")
    hash: str
    prev_hash: str


class EventPage(Page):
    results: list[EventRow]


class EntryRow(Shape):
    """One fact about a side effect. Successive rows show the course of a call."""

    id: int
    seq: int
    slot: str
    attempt: int
    fact: str
    tool: str
    replay_class: str
    key: str | None = Field(description="Idempotency key; also null if the caller may not read it.")
    external_id: str | None
    digest: str | None
    actor: str
    at: datetime


class EntryPage(Page):
    results: list[EntryRow]


class OverrideRow(Shape):
    """A person's act on a run: actor, role, justification, and the exact state acted on."""

    id: int
    run_id: UUID
    action: str
    by: str
    role: str
    auth: str
    address: str
    justification: str
    seq: int
    chain: str
    before: Any
    after: Any
    at: datetime


class OverridePage(Page):
    results: list[OverrideRow]


class VerificationRow(Shape):
    """Result of verifying a run's record, computed for this request."""

    run_id: UUID
    holds: bool
    problems: list[str] = Field(description="Descriptions of the problems found; at most 200.")
    problem_count: int
    events: int
    first_at: datetime | None
    last_at: datetime | None
    chain: str = Field(
        description="Head of the hash chain. Keep it elsewhere to prove later that nothing before it was rewritten."
    )


class ListRow(Shape):
    """Result of verifying records that belong to no run."""

    name: str = Field(
        description="acts: other acts of people, such as declaring a host dead. accounts: who was given which "
        "account, role or key."
    )
    holds: bool
    problems: list[str] = Field(description="Descriptions of the problems found; at most 200.")
    problem_count: int
    records: int
    chain: str = Field(
        description="Hash of the last record. Keep it elsewhere: a list alone can't show that its end was cut off."
    )


class VerificationPage(Page):
    results: list[VerificationRow]
    lists: list[ListRow] = Field(description="Records that belong to no run; on the first page only.")
