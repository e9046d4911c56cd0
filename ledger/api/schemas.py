"""The API's answers about journals, ledgers and overrides, as documented. A test holds the answers to these shapes."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import Field

from ledger.web.shapes import Page, Shape


class EventRow(Shape):
    """One line of a run's journal."""

    seq: int
    kind: str
    at: datetime
    epoch: int
    slot: str | None
    attempt: int
    fact: str | None
    data: dict[str, Any] = Field(description="The metadata that the hash chain covers in the clear.")
    payload: Any = Field(description="Arguments, results, messages, tracebacks.")
    damage: str | None = Field(default=None, description="Why the stored payload can't be read, if so.")
    hidden: bool = Field(default=False, description="There is a payload, and the caller has no right to read it.")
    hash: str
    prev_hash: str


class EventPage(Page):
    results: list[EventRow]


class EntryRow(Shape):
    """One fact about one side effect. A call's story is its successive rows."""

    id: int
    seq: int
    slot: str
    attempt: int
    fact: str
    tool: str
    replay_class: str
    key: str | None = Field(description="The idempotency key; null also where the caller has no right to read it.")
    external_id: str | None
    digest: str | None
    actor: str
    at: datetime


class EntryPage(Page):
    results: list[EntryRow]


class OverrideRow(Shape):
    """An act of a person on a run: who, as what, why, on what exact state."""

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
    """Whether a run's record, recomputed just now, is what was written."""

    run_id: UUID
    holds: bool
    problems: list[str] = Field(description="What doesn't hold, in words; the first 200.")
    problem_count: int
    events: int
    first_at: datetime | None
    last_at: datetime | None
    chain: str = Field(
        description="The chain's head: note it down elsewhere to be able to tell later that nothing before it was "
        "rewritten."
    )


class ListRow(Shape):
    """Whether records that belong to no run are what was written."""

    name: str = Field(
        description="acts: what people did besides, such as declaring a host dead; "
        "accounts: who was given which account, role or key."
    )
    holds: bool
    problems: list[str] = Field(description="What doesn't hold, in words; the first 200.")
    problem_count: int
    records: int
    chain: str = Field(
        description="The last record's hash: note it down elsewhere, since a list can't tell that its end was cut off."
    )


class VerificationPage(Page):
    results: list[VerificationRow]
    lists: list[ListRow] = Field(description="What belongs to no run; on the first page alone.")
