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
    """An amount per resource; null: no cap."""

    usd: str | None = Field(description="US dollars, with six decimal places.")
    tokens_in: int | None
    tokens_out: int | None
    model_calls: int | None
    tool_calls: int | None
    steps: int | None


class ExceededRow(Shape):
    """The cap that stopped the run. Amounts are of that resource; dollars are strings."""

    wait_id: UUID
    resource: str = Field(description="Resource name as in a budget: usd, tokens_in, …, wall_seconds.")
    most: int | str | None
    used: int | str | None
    reserved: int | str | None = Field(description="Reserved for calls without a recorded outcome.")
    wanted: int | str | None
    enough: dict[str, int | str] = Field(
        description="The minimum of every cap with which the run continues, by resource."
    )
    since: datetime
    until: datetime = Field(description="Time when the run is cancelled if nobody raises the cap.")
    queue: str = Field(description="Queue that is asked in addition to operators; empty: none.")


class Caps(Amounts):
    """A run's caps; null: no cap."""

    wall_seconds: int | None = Field(description="Time since its start, including waits.")


class BudgetRow(Shape):
    """A run's caps, use and reservations."""

    caps: Caps
    used: Amounts
    reserved: Amounts = Field(description="Reserved for calls without a recorded outcome.")
    left: Amounts = Field(description="Neither used nor reserved.")
    cost_usd: str | None = Field(description="Cost so far; null if a model it used has no price.")
    unpriced_calls: int = Field(description="Model requests whose cost is unknown.")
    time_up_at: datetime | None = Field(
        description="Time when the run reaches its time cap and people are asked whether it may continue; null "
        "once they are asked."
    )
    exceeded: ExceededRow | None


class PriceRow(Shape):
    """The price of a model's tokens, in US dollars per million."""

    id: int = Field(description="Price version named in a run's journal.")
    model: str
    usd_in: str
    usd_out: str
    valid_from: datetime
    set_by: str
    set_at: datetime


class PricePage(Page):
    results: list[PriceRow]


class ParentRow(Shape):
    """The run that started this one, and the step that did so."""

    id: UUID
    slot: str
    attempt: int


class ChildCounts(Shape):
    """Number of child runs, by state."""

    running: int
    waiting: int
    paused: int
    completed: int
    failed: int
    cancelled: int


class ProgressRow(Shape):
    """Progress reported by the run."""

    done: float
    total: float | None = Field(description="Total; null: unknown.")
    note: str
    at: datetime
    left_seconds: float | None = Field(description="Estimated remaining time at the latest pace; null: unknown.")


class LogCounts(Shape):
    """Number of log lines by a run's nodes."""

    kept: int
    lost: int = Field(
        description="Lines no longer kept because newer ones replaced them, or lost before they were stored."
    )


class LogRow(Shape):
    """A log line of a run's node."""

    id: int
    at: datetime
    level: Literal["debug", "info", "warning", "error"]
    text: str


class LogPage(Page):
    results: list[LogRow]


class RunRow(Shape):
    """The current state of a run."""

    id: UUID
    agent: str
    version: str
    state: State
    status: Status
    waiting_for: list[WaitRow]
    step_index: int = Field(description="Number of steps done.")
    epoch: int = Field(description="Increases each time a worker claims the run.")
    seq: int = Field(description="Number of the journal's last event.")
    journal: JournalRow
    renewed_as: UUID | None = Field(description="Run that continues this one, with an empty journal.")
    handed_off_to: UUID | None = Field(description="Run of another agent that continues this one.")
    came_from: UUID | None = Field(description="Run that this one continues.")
    turn: int = Field(description="Number of runs before it in the chain of continuations.")
    forked_from: UUID | None = Field(description="Run that this one was forked or started again from.")
    fork_how: Literal["", "fork", "start_again"] = Field(description="Empty: the run is no fork.")
    last_checkpoint_at: datetime | None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    priority: int
    output: Any
    output_omitted: bool = Field(description="The output is too large for a list; get the single run.")
    error: Trouble | None
    cancelled: Cancellation | None = Field(
        description="Null also for runs that were cancelled before this was recorded."
    )
    blocked: str | None = Field(
        description="Why no worker executes it although it is ready: none has its version, or none starts runs of it."
    )
    halted: HaltedRow | None = Field(description="The halt that holds it; nothing starts until the halt is lifted.")
    served: bool | None = Field(description="Whether a live worker can execute its version; null: the run has ended.")
    assigned: AssignedRow | None = Field(description="Null: no ramp chose its version.")
    business_key: str | None = Field(
        description="Your own key, such as an invoice number. At most one run per agent and key is active."
    )
    queued_behind: UUID | None = Field(description="Run with the same key that must end before this one starts.")
    start_at: datetime | None = Field(description="The run does not start before this time.")
    start_before: datetime | None = Field(description="If the run has not started by this time, it ends as cancelled.")
    tags: list[str] | dict[str, str]
    attributes: dict[str, Any] = Field(description="Attributes by which it can be searched, as declared by its agent.")
    hidden: bool = Field(
        description="True if the caller may not read its contents: output, error messages and details of waits."
    )
    trace_id: str
    created_by: str
    node: str | None
    visit: int
    resumable: bool = Field(
        description="A person can let it continue: resume if paused (unless its budget is exhausted), retry if failed."
    )
    pause_requested: bool
    cancel_requested: bool
    usage: Usage
    budget: BudgetRow
    parent: ParentRow | None = Field(description="Null: not started by another run.")
    depth: int = Field(description="Number of ancestors.")
    children: ChildCounts
    last_durable_at: datetime | None = Field(
        description="Time when it last recorded something; null before its first claim."
    )
    progress: ProgressRow | None = Field(description="Null: the run reported none.")
    log: LogCounts


class RunPage(Page):
    results: list[RunRow]


class AskedRow(Shape):
    """Models that an assistant's requests go to. The first available one is used."""

    assistant: str = Field(description="Empty: every assistant that the run has not used yet.")
    models: list[str]
    by: str = Field(
        description="Actor who set them; `system:settings` are the models in the settings when the run first used them."
    )


class AskedPage(Page):
    results: list[AskedRow]


class FiringRow(Shape):
    """One planned time of a schedule and what happened at it."""

    planned_at: datetime
    at: datetime
    outcome: Firing.Outcome
    run_id: UUID | None = Field(description="Run that it started; if skipped, the run that was still active.")
    why: str
    n: int = Field(description="If missed: how many planned times up to this one were missed.")


class ScheduleRow(Shape):
    """A schedule."""

    id: UUID
    name: str
    agent: str
    input: Any
    hidden: bool = Field(description="True if the caller may not read the input.")
    cron: str
    zone: str
    missed: Schedule.Missed
    overlap: Schedule.Overlap
    tags: list[str] | dict[str, str]
    budget: dict[str, Any] | None
    set_by: str = Field(description="Person who last set its agent and input. Runs start with that person's rights.")
    created_at: datetime
    updated_at: datetime
    is_paused: bool
    stopped: str = Field(description="Why it no longer starts runs; empty: it does.")
    trouble: str = Field(description="Why due runs have not started yet; empty: no problem.")
    next: list[datetime] = Field(description="The next planned times; none while it is paused or stopped.")
    last: list[FiringRow] = Field(description="Results of the latest planned times, newest first.")


class SchedulePage(Page):
    results: list[ScheduleRow]


class BulkItem(Shape):
    """Result of one start, as the single start would have returned it."""

    status: int
    run: RunRow | None
    problem: Problem | None


class BulkAnswer(Shape):
    """One result for each start, in order."""

    results: list[BulkItem]


class SentRow(Shape):
    """A signal that was sent to a run."""

    name: str
    n: int = Field(description="Number among the run's signals of that name, from 1, in order of arrival.")
    run: UUID = Field(description="Run that received it: the newest continuation of the run in the address.")


class RequestError(Shape):
    """The reason why a message was not accepted; if the agent refused it, in the agent's words."""

    code: str
    message: str


class RequestRow(Shape):
    """A message to a run and its result."""

    id: int = Field(description="Number of the message within the run, from 1.")
    run: UUID
    name: str
    by: str
    sender_id: str | None
    outcome: Literal["waiting", "answered", "refused", "failed", "ended"] = Field(
        description="`refused`: by the agent. `failed`: the agent's code failed. `ended`: the run ended "
        "before handling it."
    )
    body: Any
    answer: Any
    hidden: bool = Field(description="True if body, answer and reason exist but the caller may not read them.")
    error: RequestError | None
    sent_at: datetime | None
    answered_at: datetime | None


class RequestPage(Page):
    results: list[RequestRow]


class ViewRow(Shape):
    """Result of a view on a run's recorded state."""

    run: UUID
    name: str
    value: Any


class RequestKindRow(Shape):
    """A message that an agent accepts."""

    name: str
    title: str
    doc: str
    body_schema: dict[str, Any]
    answer_schema: dict[str, Any] | None


class ViewKindRow(Shape):
    """A view that an agent offers."""

    name: str
    title: str
    doc: str
    answer_schema: dict[str, Any]


class MessageRow(Shape):
    """A message in the conversation between the run and its models."""

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
    """A typed attribute by which an agent's runs can be searched."""

    name: str
    kind: Literal["keyword", "keywords", "number", "money", "date", "flag"]
    title: str


class GateRow(Shape):
    queue: str
    rule: str


class CertificateRow(Shape):
    """Certification status of a keyed tool."""

    standing: Word
    until: datetime | None = Field(description="Time until which the finding is valid.")
    told: str = Field(description="Finding of the newest probe; empty: no probe was run.")
    by: str
    at: datetime | None


class ToolRow(Shape):
    name: str
    title: str
    system: str
    effect: str
    replay_class: str
    gate: GateRow | None
    certificate: CertificateRow | None = Field(description="Null: not a keyed tool.")


class AgentRow(Shape):
    """One version of an agent, with everything needed to start it."""

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
    messages: list[RequestKindRow] = Field(description="Messages that its runs accept while they are active.")
    views: list[ViewKindRow]
    signals: list[str] | None = Field(description="Signals that its nodes wait for; null: signals of any name.")


class AgentPage(Page):
    results: list[AgentRow]


class BusyToolRow(Shape):
    """A blocking tool with all its threads in one worker in use; further calls there wait."""

    tool: str
    busy: int
    threads: int = Field(description="Number of threads that the tool has in a worker.")
    since: datetime = Field(description="Time when a thread was last free.")


class ProcessRow(Shape):
    """A live process."""

    id: UUID
    kind: str
    host: str
    pid: int
    started_at: datetime
    last_heartbeat_at: datetime
    slots_used: int
    slots_total: int
    busy_tools: list[BusyToolRow] = Field(description="For a worker: tools with all their threads in use.")
    drain_asked_at: datetime | None = Field(description="For a worker: time when an operator asked it to drain.")

    @classmethod
    def of(cls, stored: Any, **more: Any) -> Self:
        """Return what is stored of a process."""
        return super().of(stored, busy_tools=[BusyToolRow.of(each) for each in stored.busy_tools], **more)


class ProcessPage(Page):
    results: list[ProcessRow]


class IncidentPage(Page):
    results: list[IncidentRow]
