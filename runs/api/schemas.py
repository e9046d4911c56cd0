"""The API's answers about runs, as documented. A test holds the answers to these shapes."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, Self
from uuid import UUID

from pydantic import Field

from ledger.web.shapes import Page, Problem, Shape
from runs.api.endings import Cancellation, JournalRow, Trouble
from runs.api.halts import HaltedRow
from runs.api.releases import AssignedRow
from runs.api.waits import Status, WaitRow
from runs.engine.certification import Word
from runs.fleet.incidents import IncidentRow
from runs.models import Firing, Schedule, State


class Usage(Shape):
    tokens_in: int
    tokens_out: int
    usd_micro: int
    tool_calls: int
    model_calls: int


class Amounts(Shape):
    """Of each resource as much; null: no cap."""

    usd: str | None = Field(description="US dollars, to the millionth.")
    tokens_in: int | None
    tokens_out: int | None
    model_calls: int | None
    tool_calls: int | None
    steps: int | None


class ExceededRow(Shape):
    """The cap at which a run stands still; its amounts are of that resource, dollars as text."""

    wait_id: UUID
    resource: str = Field(description="As a budget names it: usd, tokens_in, …, wall_seconds.")
    most: int | str | None
    used: int | str | None
    reserved: int | str | None = Field(description="Set aside for calls whose outcome is not on record.")
    wanted: int | str | None
    enough: dict[str, int | str] = Field(
        description="The least that each cap has to be for it to go on: all of them, by their names."
    )
    since: datetime
    until: datetime = Field(description="When it ends as cancelled if nobody raises it.")
    queue: str = Field(description="Who is asked besides the operators; empty: nobody.")


class Caps(Amounts):
    """The most that a run may use; null: no cap."""

    wall_seconds: int | None = Field(description="The time from its start, waits included.")


class BudgetRow(Shape):
    """What a run may use, has used, and has set aside."""

    caps: Caps
    used: Amounts
    reserved: Amounts = Field(description="Set aside for calls whose outcome is not on record.")
    left: Amounts = Field(description="What is neither used nor set aside.")
    cost_usd: str | None = Field(description="What it cost so far; null where a model that it asked has no price.")
    unpriced_calls: int = Field(description="Model requests of whose cost nobody knows anything.")
    time_up_at: datetime | None = Field(description="When people are asked whether it may go on; null once they are.")
    exceeded: ExceededRow | None


class PriceRow(Shape):
    """What a model's tokens cost, in US dollars for a million of them."""

    id: int = Field(description="The version that a run's journal names.")
    model: str
    usd_in: str
    usd_out: str
    valid_from: datetime
    set_by: str
    set_at: datetime


class PricePage(Page):
    results: list[PriceRow]


class ParentRow(Shape):
    """The run that started this one, and as which of its steps."""

    id: UUID
    slot: str
    attempt: int


class ChildCounts(Shape):
    """How many runs it has started that are now so."""

    running: int
    waiting: int
    paused: int
    completed: int
    failed: int
    cancelled: int


class ProgressRow(Shape):
    """How far a run has come, by its own word."""

    done: float
    total: float | None = Field(description="The whole; null: nobody knows.")
    note: str
    at: datetime
    left_seconds: float | None = Field(description="What is left, as it went on last; null where that can't be told.")


class LogCounts(Shape):
    """Lines that a run's nodes said for people."""

    kept: int
    lost: int = Field(description="Older than the newest that are kept, or dropped on the way.")


class LogRow(Shape):
    """One of them."""

    id: int
    at: datetime
    level: Literal["debug", "info", "warning", "error"]
    text: str


class LogPage(Page):
    results: list[LogRow]


class RunRow(Shape):
    """One run as it is now."""

    id: UUID
    agent: str
    version: str
    state: State
    status: Status
    waiting_for: list[WaitRow]
    step_index: int = Field(description="Steps done so far.")
    epoch: int = Field(description="Rises with every worker that takes the run over.")
    seq: int = Field(description="The journal's last event.")
    journal: JournalRow
    renewed_as: UUID | None = Field(description="The run that it goes on as, with an empty journal.")
    handed_off_to: UUID | None = Field(description="The run of another agent that it goes on as.")
    came_from: UUID | None = Field(description="The run that goes on as this one.")
    turn: int = Field(description="How many runs went before it.")
    forked_from: UUID | None = Field(description="The run that it began again from, or within.")
    fork_how: Literal["", "fork", "what_if", "start_again"] = Field(description="what_if: it sends nothing at all.")
    last_checkpoint_at: datetime | None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    priority: int
    output: Any
    output_omitted: bool = Field(description="Too large for a list: GET the run itself.")
    error: Trouble | None
    cancelled: Cancellation | None = Field(description="Null also of one that was cancelled before this was kept.")
    blocked: str | None = Field(
        description="Why nothing drives it though it is ready: no running worker has its version, or begins its runs."
    )
    halted: HaltedRow | None = Field(description="The halt that it is under: nothing begins before it is lifted.")
    served: bool | None = Field(description="Whether a living worker drives its version; null: it has ended.")
    assigned: AssignedRow | None = Field(description="Null: no ramp chose its version.")
    business_key: str | None = Field(description="Of the caller's business: one run of an agent and a key lives.")
    queued_behind: UUID | None = Field(description="The run of its key whose end it waits for before it begins.")
    start_at: datetime | None = Field(description="Not begun before.")
    start_before: datetime | None = Field(description="Not begun by then, it ends as cancelled.")
    tags: list[str] | dict[str, str]
    attributes: dict[str, Any] = Field(description="What it is found by: as its agent declares them.")
    hidden: bool = Field(
        description="The caller has no right to read what it holds: output, the words of its error, details of waits."
    )
    trace_id: str
    created_by: str
    node: str | None
    visit: int
    resumable: bool = Field(
        description="A person can let it go on: resume if paused, unless for its budget; retry if failed."
    )
    pause_requested: bool
    cancel_requested: bool
    usage: Usage
    budget: BudgetRow
    parent: ParentRow | None = Field(description="Null: no run started it.")
    depth: int = Field(description="How many runs are above it.")
    children: ChildCounts
    last_durable_at: datetime | None = Field(description="When the last thing was put on record; null before a claim.")
    progress: ProgressRow | None = Field(description="Null: it has said nothing of it.")
    log: LogCounts


class RunPage(Page):
    results: list[RunRow]


class AskedRow(Shape):
    """Which models an assistant's requests go to: the first that serves."""

    assistant: str = Field(description="Empty: every one that the run hasn't asked by yet.")
    models: list[str]
    by: str = Field(description="Who said so; `system:settings` is what counted when the run began to ask.")


class AskedPage(Page):
    results: list[AskedRow]


class FiringRow(Shape):
    """What became of one planned time."""

    planned_at: datetime
    at: datetime
    outcome: Firing.Outcome
    run_id: UUID | None = Field(description="The run that it started; of a skipped one the run that lived.")
    why: str
    n: int = Field(description="Of missed ones: how many planned times up to this one.")


class ScheduleRow(Shape):
    """Starts by the clock."""

    id: UUID
    name: str
    agent: str
    input: Any
    hidden: bool = Field(description="The caller has no right to read the input.")
    cron: str
    zone: str
    missed: Schedule.Missed
    overlap: Schedule.Overlap
    tags: list[str] | dict[str, str]
    budget: dict[str, Any] | None
    set_by: str = Field(description="Whoever set what it starts, agent and input: it starts runs as they would.")
    created_at: datetime
    updated_at: datetime
    is_paused: bool
    stopped: str = Field(description="Why it starts nothing any more; empty: it does.")
    trouble: str = Field(description="Why what is due has not started yet; empty: nothing is amiss.")
    next: list[datetime] = Field(description="The next planned times; none while it is paused or stopped.")
    last: list[FiringRow] = Field(description="What became of the last planned times, newest first.")


class SchedulePage(Page):
    results: list[ScheduleRow]


class BulkItem(Shape):
    """What became of one start of many: as the start alone would have been answered."""

    status: int
    run: RunRow | None
    problem: Problem | None


class BulkAnswer(Shape):
    """One result for each start, in their order."""

    results: list[BulkItem]


class SentRow(Shape):
    """A signal that a run was sent."""

    name: str
    n: int = Field(
        description="Its number among the run's signals of that name, from 1 in the order in which they came."
    )
    run: UUID = Field(description="The run that has it: the newest that the one in the address goes on as.")


class RequestError(Shape):
    """Why a message was not taken: the agent's own words where it refused."""

    code: str
    message: str


class RequestRow(Shape):
    """A message that a run was sent, and what became of it."""

    id: int = Field(description="Its place among the run's messages, from 1.")
    run: UUID
    name: str
    by: str
    sender_id: str | None
    outcome: Literal["waiting", "answered", "refused", "failed", "ended"] = Field(
        description="`refused` by the agent, `failed` where its code broke, `ended`: the run did, before it got to it."
    )
    body: Any
    answer: Any
    hidden: bool = Field(description="Body, answer and reason are there, and the caller has no right to read them.")
    error: RequestError | None
    sent_at: datetime | None
    answered_at: datetime | None


class RequestPage(Page):
    results: list[RequestRow]


class ViewRow(Shape):
    """What a view says of a run's recorded state."""

    run: UUID
    name: str
    value: Any


class RequestKindRow(Shape):
    """A message that an agent takes."""

    name: str
    title: str
    doc: str
    body_schema: dict[str, Any]
    answer_schema: dict[str, Any] | None


class ViewKindRow(Shape):
    """A view that an agent has."""

    name: str
    title: str
    doc: str
    answer_schema: dict[str, Any]


class MessageRow(Shape):
    """One thing said in a conversation between the run and its models."""

    conversation: str
    idx: int
    role: Literal["system", "user", "agent", "tool", "engine"]
    content: Any
    about: str | None
    tool: str | None
    node: str | None
    model: str | None
    tokens_in: int | None
    tokens_out: int | None
    seq: int
    at: datetime


class MessagePage(Page):
    results: list[MessageRow]


class SampleRow(Shape):
    label: str
    input: dict[str, Any]


class NodeRow(Shape):
    name: str
    title: str
    edges: list[str]
    doc: str


class AttributeRow(Shape):
    """Something that runs of an agent are found by."""

    name: str
    kind: Literal["keyword", "keywords", "number", "money", "date", "flag"]
    title: str


class GateRow(Shape):
    queue: str
    rule: str


class CertificateRow(Shape):
    """How a keyed tool stands."""

    standing: Word
    until: datetime | None = Field(description="Until when what was found counts.")
    told: str = Field(description="What the newest probe saw; empty: there was none.")
    by: str
    at: datetime | None


class ToolRow(Shape):
    name: str
    title: str
    system: str
    effect: str
    replay_class: str
    gate: GateRow | None
    certificate: CertificateRow | None = Field(description="Null: it isn't keyed.")


class AgentRow(Shape):
    """One version of an agent, with all that is needed to start it."""

    name: str
    version: str
    graph_id: str
    title: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    samples: list[SampleRow]
    start: str
    nodes: list[NodeRow]
    tools: list[ToolRow]
    attributes: list[AttributeRow]
    messages: list[RequestKindRow] = Field(description="What its runs take while they are under way.")
    views: list[ViewKindRow]
    signals: list[str] | None = Field(description="The signals that its nodes wait for; null: of any name.")


class AgentPage(Page):
    results: list[AgentRow]


class BusyToolRow(Shape):
    """A blocking tool whose threads in one worker are all busy: its further calls there wait."""

    tool: str
    busy: int
    threads: int = Field(description="How many threads the tool has in a worker.")
    since: datetime = Field(description="When a thread was free last.")


class ProcessRow(Shape):
    """One process that is alive now."""

    id: UUID
    kind: str
    host: str
    pid: int
    started_at: datetime
    last_heartbeat_at: datetime
    slots_used: int
    slots_total: int
    busy_tools: list[BusyToolRow] = Field(description="Of a worker: the tools whose threads are all busy.")
    drain_asked_at: datetime | None = Field(description="Of a worker that an operator has asked to let go and end.")

    @classmethod
    def of(cls, stored: Any, **more: Any) -> Self:
        """Return what is stored of a process."""
        return super().of(stored, busy_tools=[BusyToolRow.of(each) for each in stored.busy_tools], **more)


class ProcessPage(Page):
    results: list[ProcessRow]


class IncidentPage(Page):
    results: list[IncidentRow]
