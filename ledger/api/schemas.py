"""Documented response schemas for journals, ledgers and overrides. A test checks real answers against them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from ledger.web.fields import ActorName, Attempt, Reason, ReplayClass, RoleName, Rows, RunId, Seq, Slot, ToolName
from ledger.web.shapes import Page, Shape


class EventRow(Shape):
    """One event of a run's journal."""

    seq: int = Field(description="Number of the event in the run's journal, from 1.")
    kind: str = Field(description="Type of the event.")
    at: datetime = Field(description="Time of the event, on the database's clock.")
    epoch: int = Field(description="Epoch of the worker that wrote the event.")
    slot: str | None = Field(description="Step that the event belongs to; null if none.")
    attempt: Attempt
    fact: str | None = Field(description="Fact about the step that the event records; null if none.")
    data: dict[str, Any] = Field(description="Metadata, stored unencrypted and covered by the hash chain.")
    payload: Any = Field(description="Arguments, results, messages and tracebacks.")
    damage: str | None = Field(default=None, description="Why the stored payload can't be read; null if it can.")
    hidden: bool = Field(default=False, description="True if there is a payload that the caller may not read.")
    omitted: bool = Field(
        default=False, description="True if the payload has more than 16 MiB; get `…/events/{seq}/content`."
    )
    erased: bool = Field(default=False, description="True if there was a payload that nobody can read any more.")
    hash: str = Field(description="SHA-256 of this event, chained to the previous one.")
    prev_hash: str = Field(description="Hash of the previous event.")


class EventPage(Page):
    results: Rows[EventRow]


class EntryRow(Shape):
    """One fact about a side effect. Successive rows of a call show its progress."""

    id: int = Field(description="Id of the row.")
    seq: Seq
    slot: Slot
    attempt: Attempt
    fact: str = Field(description="pending, committed, failed, unknown, reconciled or compensated.")
    tool: ToolName
    replay_class: ReplayClass
    key: str | None = Field(description="Beginning of the idempotency key; also null if the caller may not read it.")
    external_id: str | None = Field(description="Id that the upstream system returned; null if none.")
    digest: str | None = Field(description="SHA-256 of the arguments or of the result; null if none.")
    actor: ActorName
    at: datetime = Field(description="Time of the fact.")
    span_id: str = Field(description="Span of the call in the run's trace, 16 hex digits, if the run is traced.")


class EntryPage(Page):
    results: Rows[EntryRow]


class OverrideRow(Shape):
    """A person's act on a run: actor, role, justification, and the exact state acted on."""

    id: int = Field(description="Id of the override.")
    run_id: RunId
    action: str = Field(description="Name of the act, such as pause or reconcile.")
    by: ActorName
    role: RoleName
    auth: str = Field(description="Means by which the person was authenticated.")
    address: str = Field(description="Source address of the request; empty: unknown.")
    justification: Reason
    seq: int = Field(description="Last journal event when the person acted.")
    chain: str = Field(description="Hash of that event.")
    before: Any = Field(description="Values before the act.")
    after: Any = Field(description="Values after the act.")
    at: datetime = Field(description="Time of the act.")


class OverridePage(Page):
    results: Rows[OverrideRow]


class VerificationRow(Shape):
    """Result of verifying a run's record, computed for this request."""

    run_id: RunId
    holds: bool = Field(description="Whether no problem was found.")
    problems: list[str] = Field(description="Descriptions of the problems found; at most 200.")
    problem_count: int = Field(description="Number of problems found.")
    notes: list[str] = Field(description="Parts that could not be checked, and why: for example, erased content.")
    events: int = Field(description="Number of events in the journal.")
    first_at: datetime | None = Field(description="Time of the first event; null if the journal is empty.")
    last_at: datetime | None = Field(description="Time of the last event; null if the journal is empty.")
    chain: str = Field(
        description="Head of the hash chain. Keep a copy elsewhere to prove later that nothing was rewritten."
    )


class ListRow(Shape):
    """Result of verifying records that belong to no run."""

    name: str = Field(
        description="acts: other acts of people, such as declaring a host dead. accounts: who was given which "
        "account, role or key."
    )
    holds: bool = Field(description="Whether no problem was found.")
    problems: list[str] = Field(description="Descriptions of the problems found; at most 200.")
    problem_count: int = Field(description="Number of problems found.")
    records: int = Field(description="Number of records verified.")
    chain: str = Field(
        description="Hash of the last record. Keep a copy elsewhere: a list alone can't show that its end was cut off."
    )


class VerificationPage(Page):
    results: Rows[VerificationRow]
    lists: list[ListRow] = Field(description="Records that belong to no run; on the first page only.")
