"""The documented models of the API's responses about runs. A test compares responses with them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, Self
from uuid import UUID

from pydantic import ConfigDict, Field

from ledger.web.fields import (
    ActorName,
    AgentName,
    AgentVersion,
    Attempt,
    Reason,
    ReplayClass,
    Rows,
    RunId,
    RunTags,
    Seq,
    ToolName,
)
from ledger.web.shapes import Page, Problem, Shape
from runs.engine.certification import Word
from runs.fleet.incidents import IncidentRow
from runs.models import State, Wait
from runs.queries.families import ChildRow
from runs.queries.halts import Halted
from runs.queries.progress import JournalRow, LogCounts, ProgressRow
from runs.queries.status import RunStatus


class Trouble(Shape):
    """The reason for a failure."""

    model_config = ConfigDict(extra="allow")

    code: str = Field(description="Stable code of the failure.")
    message: str = Field(description="Description of the failure.")


class Cancellation(Shape):
    """The reason for a cancellation."""

    by: str = Field(description="Who cancelled it: a person, the parent run, or the rule whose time had passed.")
    why: str = Field(description="Reason that was given.")


class ProposedRow(Shape):
    """One person's proposed verdict on a call that two people must settle."""

    n: int = Field(description="Number to send as `agrees_with` when confirming it.")
    seq: int = Field(description="Event of the proposal.")
    at: datetime = Field(description="Time of the proposal.")
    by: ActorName
    verdict: Literal["happened", "did_not"] = Field(description="Proposed verdict.")
    receipt: Any = Field(description="Also null if the caller may not read the run's payloads.")
    justification: Reason
    news: int | None = Field(
        description="A later event with new information about the call, which invalidates the proposal."
    )


class UpstreamRow(Shape):
    """A query to the upstream system about an unknown outcome, and the latest answer."""

    asked_by: str = Field(description="Actor who requested the query.")
    asked_at: datetime = Field(description="Time of the request.")
    is_asked: bool = Field(description="Whether the answer is pending.")
    answer: Literal["happened", "did_not", "nothing"] | None = Field(
        description="Answer of the upstream system; null if there is none yet."
    )
    result: Any = Field(
        description="Result of a call that happened; also null if the caller may not read the run's payloads."
    )
    told_at: datetime | None = Field(description="Time of the answer; null if there is none yet.")


class WaitRow(Shape):
    """A wait of a run."""

    id: UUID = Field(description="Id of the wait.")
    kind: Wait.Kind = Field(description="Type of the wait.")
    since: datetime = Field(description="Time since when the run has been waiting.")
    deadline: datetime = Field(description="Latest time at which the wait ends.")
    detail: dict[str, Any] = Field(description="Details by type, such as the question of an approval.")
    slot: str = Field(description="Step that waits.")
    child: ChildRow | None = Field(description="For a wait for a child run: its state, if it can be read.")
    proposed: ProposedRow | None = Field(
        description="For an unknown outcome that two people must settle: the first person's verdict."
    )
    upstream: UpstreamRow | None = Field(
        description="For an unknown outcome: the query to the upstream system, if one was made."
    )


class Usage(Shape):
    tokens_in: int = Field(description="Input tokens of all model requests.")
    tokens_out: int = Field(description="Output tokens of all model requests.")
    usd_micro: int = Field(description="Cost in millionths of a US dollar.")
    tool_calls: int = Field(description="Number of tool calls.")
    model_calls: int = Field(description="Number of model requests.")


class Amounts(Shape):
    """An amount per resource; null for no cap."""

    usd: str | None = Field(description="US dollars, with six decimal places.")
    tokens_in: int | None = Field(description="Input tokens of all model requests.")
    tokens_out: int | None = Field(description="Output tokens of all model requests.")
    model_calls: int | None = Field(description="Number of model requests.")
    tool_calls: int | None = Field(description="Number of tool calls.")
    steps: int | None = Field(description="Number of steps.")


class ExceededRow(Shape):
    """The cap that stopped the run. Amounts are of that resource; dollars are strings."""

    wait_id: UUID = Field(description="Id of the wait that asks for a higher cap.")
    resource: str = Field(description="Resource name as in a budget: usd, tokens_in, …, wall_seconds.")
    most: int | str | None = Field(description="The cap.")
    used: int | str | None = Field(description="Amount used so far.")
    reserved: int | str | None = Field(description="Amount reserved for calls without a recorded outcome.")
    wanted: int | str | None = Field(description="Amount that the next step needs.")
    enough: dict[str, int | str] = Field(
        description="The lowest value of each cap with which the run can continue, by resource."
    )
    since: datetime = Field(description="Time when the cap was reached.")
    until: datetime = Field(description="Time when the run is cancelled if nobody raises the cap.")
    queue: str = Field(description="Queue that is asked in addition to operators; empty if there is none.")


class Caps(Amounts):
    """A run's caps; null for no cap."""

    wall_seconds: int | None = Field(description="Time since the start of the run, including waits.")


class BudgetRow(Shape):
    """A run's caps, use and reservations."""

    caps: Caps = Field(description="Caps of the run.")
    used: Amounts = Field(description="Amounts used so far.")
    reserved: Amounts = Field(description="Amount reserved for calls without a recorded outcome.")
    left: Amounts = Field(description="Neither used nor reserved.")
    cost_usd: str | None = Field(description="Cost so far; null if a model it used has no price.")
    unpriced_calls: int = Field(description="Model requests whose cost is unknown.")
    time_up_at: datetime | None = Field(
        description="Time when the run reaches its time cap and people are asked whether it may continue; null "
        "once they are asked."
    )
    exceeded: ExceededRow | None = Field(description="Cap that stopped the run; null if none.")


class PriceRow(Shape):
    """The price of a model's tokens, in US dollars per million."""

    id: int = Field(description="Price version named in a run's journal.")
    model: str = Field(description="Name of the model.")
    usd_in: str = Field(description="Price of a million input tokens.")
    usd_out: str = Field(description="Price of a million output tokens.")
    valid_from: datetime = Field(description="Time from which the price applies.")
    set_by: ActorName
    set_at: datetime = Field(description="Time when the price was set.")


class PricePage(Page):
    results: Rows[PriceRow]


class ParentRow(Shape):
    """The run that started this one, and the step that did so."""

    id: UUID = Field(description="Id of the parent run.")
    slot: str = Field(description="Step of the parent that started the run.")
    attempt: Attempt


class ChildCounts(Shape):
    """Number of child runs, by state."""

    running: int = Field(description="Running child runs.")
    waiting: int = Field(description="Waiting child runs.")
    paused: int = Field(description="Paused child runs.")
    completed: int = Field(description="Completed child runs.")
    failed: int = Field(description="Failed child runs.")
    cancelled: int = Field(description="Cancelled child runs.")


class LogRow(Shape):
    """A log line of a run's node."""

    id: int = Field(description="Id of the line; larger ids are newer.")
    at: datetime = Field(description="Time of the line.")
    level: Literal["debug", "info", "warning", "error"] = Field(description="Severity.")
    text: str = Field(description="Text of the line.")


class LogPage(Page):
    results: Rows[LogRow]


class AssignedRow(Shape):
    """The ramp that chose the run's version, if it was started by the agent's name."""

    ramp: int = Field(description="Id of the ramp.")
    is_new: bool = Field(description="Whether the ramp chose the newer version.")
    why: Literal["share", "tag", "halted", "unserved", "unknown"] = Field(
        description="Reason for the choice: the share, a tag, or why the newer version was not chosen."
    )


class RunRow(Shape):
    """The current state of a run."""

    id: RunId
    agent: AgentName
    version: AgentVersion
    revision: str = Field(
        description="Changes with each change of state or node, and with each resolved wait. It is also the ETag."
    )
    state: State = Field(description="State of the run.")
    status: RunStatus = Field(description="What the run is doing, or why it does not continue.")
    waiting_for: list[WaitRow] = Field(description="Open waits of the run.")
    step_index: int = Field(description="Number of steps done.")
    epoch: int = Field(description="Increases each time a worker claims the run.")
    seq: int = Field(description="Number of the journal's last event.")
    journal: JournalRow = Field(description="Size of the run's journal.")
    renewed_as: UUID | None = Field(description="Run that continues this one, with an empty journal.")
    handed_off_to: UUID | None = Field(description="Run of another agent that continues this one.")
    came_from: UUID | None = Field(description="Run that this one continues.")
    turn: int = Field(description="Number of runs before this run in the chain of continuations.")
    forked_from: UUID | None = Field(description="Run that this one was forked or started again from.")
    fork_how: Literal["", "fork", "start_again"] = Field(description="Empty if the run is not a fork.")
    last_checkpoint_at: datetime | None = Field(description="Time of the last checkpoint; null if there is none yet.")
    created_at: datetime = Field(description="Time when the run was created.")
    updated_at: datetime = Field(description="Time of the run's last change.")
    started_at: datetime | None = Field(description="Time of the run's first claim; null before that.")
    ended_at: datetime | None = Field(description="Time when the run ended; null while it is active.")
    erased_at: datetime | None = Field(description="Time when the run's content was erased; null if it was not.")
    priority: int = Field(description="Runs with a higher priority are claimed first.")
    output: Any = Field(description="Output of the run; null if there is none yet, or if it is omitted or hidden.")
    output_omitted: bool = Field(
        description="The output is too large for this answer; get the single run, or above 16 MiB its event's content."
    )
    error: Trouble | None = Field(description="Why the run failed; null if it did not.")
    cancelled: Cancellation | None = Field(
        description="Also null for runs that were cancelled before this was recorded."
    )
    halted: Halted | None = Field(description="The halt that holds the run; nothing starts until the halt is lifted.")
    served: bool | None = Field(
        description="Whether a live worker can execute the run's version; null if the run has ended."
    )
    assigned: AssignedRow | None = Field(description="Null if no ramp chose the run's version.")
    business_key: str | None = Field(
        description="Your own key, such as an invoice number. At most one run per agent and key is active."
    )
    queued_behind: UUID | None = Field(description="Run with the same key that must end before this one starts.")
    start_at: datetime | None = Field(description="The run does not start before this time.")
    start_before: datetime | None = Field(description="If the run has not started by this time, it ends as cancelled.")
    tags: RunTags
    attributes: dict[str, Any] = Field(
        description="Attributes by which the run can be searched, as declared by its agent."
    )
    hidden: bool = Field(
        description="True if the caller may not read its contents: output, error messages and details of waits."
    )
    trace_id: str = Field(description="Trace id of the run, 32 hex digits.")
    created_by: ActorName
    node: str | None = Field(description="Current node; null: none.")
    visit: int = Field(description="Number of node visits so far.")
    resume_token: str | None = Field(
        description="Signed token of the run in this epoch, for a resume or retry; null if the run has ended."
    )
    pause_requested: bool = Field(description="Whether the run pauses at its next step.")
    cancel_requested: bool = Field(description="Whether the run ends as cancelled at its next step.")
    usage: Usage = Field(description="Model and tool usage so far.")
    budget: BudgetRow = Field(description="Caps, use and reservations.")
    parent: ParentRow | None = Field(description="Null if no other run started this run.")
    depth: int = Field(description="Number of ancestors.")
    children: ChildCounts = Field(description="Numbers of the run's children.")
    last_durable_at: datetime | None = Field(
        description="Time when the run last recorded something; null before its first claim."
    )
    progress: ProgressRow | None = Field(description="Null if the run reported none.")
    log: LogCounts = Field(description="Number of log lines.")


class RunPage(Page):
    results: Rows[RunRow]
    total: int | None = Field(default=None, description="Number of matching runs, if asked for with `total=true`.")
    total_is_more: bool | None = Field(
        default=None, description="Whether there are more than `total`, where counting ends."
    )


class AskedRow(Shape):
    """Models that receive an assistant's requests. The first available one is used."""

    assistant: str = Field(description="Empty for all assistants that the run has not used yet.")
    models: list[str] = Field(description="Models in order of preference.")
    by: str = Field(
        description="Actor who set them; `system:settings` means those in the settings at the run's first use."
    )


class AskedPage(Page):
    results: Rows[AskedRow]


class BulkItem(Shape):
    """Result of one start, as a single start would have returned it."""

    status: int = Field(description="HTTP status of this start.")
    run: RunRow | None = Field(description="The run; null if it was not started.")
    problem: Problem | None = Field(description="Why it was not started; null if it was started.")


class BulkAnswer(Shape):
    """One result for each start, in order."""

    results: Rows[BulkItem]


class SentRow(Shape):
    """A signal that was sent to a run."""

    name: str = Field(description="Name of the signal.")
    n: int = Field(description="Number among the run's signals of that name, from 1, in order of arrival.")
    run: UUID = Field(description="Run that received it: the newest continuation of the run in the URL.")


class RequestError(Shape):
    """The reason why a message was not accepted; if the agent refused it, in the agent's words."""

    code: str = Field(description="Stable code of the reason.")
    message: str = Field(description="Text of the reason.")


class RequestRow(Shape):
    """A message to a run and its result."""

    id: int = Field(description="Number of the message within the run, from 1.")
    run: RunId
    name: str = Field(description="Name of the message, as the agent declares it.")
    by: ActorName
    sender_id: str | None = Field(description="Id that the sender gave; null if there is none.")
    outcome: Literal["waiting", "answered", "refused", "failed", "ended"] = Field(
        description="`refused`: by the agent. `failed`: the agent's code failed. `ended`: the run ended "
        "before handling it."
    )
    body: Any = Field(description="Body of the message.")
    answer: Any = Field(description="Answer of the run; null if there is none yet, or if the caller may not read it.")
    hidden: bool = Field(description="True if body, answer and reason exist but the caller may not read them.")
    error: RequestError | None = Field(description="Why there is no answer; null if there is no error.")
    sent_at: datetime | None = Field(description="Time when it was sent; null if unknown.")
    answered_at: datetime | None = Field(description="Time of the result; null while it is pending.")


class RequestPage(Page):
    results: Rows[RequestRow]


class ViewRow(Shape):
    """Result of a view on a run's recorded state."""

    run: RunId
    name: str = Field(description="Name of the view.")
    value: Any = Field(description="Result of the view.")


class RequestKindRow(Shape):
    """A message that an agent accepts."""

    name: str = Field(description="Name of the message.")
    title: str = Field(description="Title for people.")
    doc: str = Field(description="Documentation by the agent's author; empty if there is none.")
    body_schema: dict[str, Any] = Field(description="JSON schema of the body.")
    answer_schema: dict[str, Any] | None = Field(description="JSON schema of the answer; null if not declared.")


class ViewKindRow(Shape):
    """A view that an agent offers."""

    name: str = Field(description="Name of the view.")
    title: str = Field(description="Title for people.")
    doc: str = Field(description="Documentation by the agent's author; empty if there is none.")
    answer_schema: dict[str, Any] = Field(description="JSON schema of the result.")


class MessageRow(Shape):
    """A message in the conversation between the run and its models."""

    conversation: str = Field(description="Name of the conversation.")
    idx: int = Field(description="Number of the message within the conversation.")
    role: Literal["system", "user", "agent", "tool", "engine"] = Field(description="Sender of the message.")
    content: Any = Field(description="Text or structured content.")
    about: str | None = Field(description="Title of the call or message; null if there is none.")
    tool: str | None = Field(description="Tool that was called; null if there is none.")
    node: str | None = Field(description="Node that the message belongs to; null if there is none.")
    model: str | None = Field(description="Model that answered; null if there is none.")
    tokens_in: int | None = Field(description="Input tokens of the request; null: unknown.")
    tokens_out: int | None = Field(description="Output tokens of the answer; null: unknown.")
    seq: Seq
    at: datetime = Field(description="Time of the message.")


class MessagePage(Page):
    results: Rows[MessageRow]


class SampleRow(Shape):
    label: str = Field(description="Name of the example.")
    input: dict[str, Any] = Field(description="Input to start a run with.")


class NodeRow(Shape):
    name: str = Field(description="Name of the node.")
    title: str = Field(description="Title for people.")
    edges: list[str] = Field(description="Nodes that may follow it.")
    doc: str = Field(description="Documentation by the agent's author; empty if there is none.")


class AttributeRow(Shape):
    """A typed attribute by which an agent's runs can be searched."""

    name: str = Field(description="Name of the attribute.")
    kind: Literal["keyword", "keywords", "number", "money", "date", "flag"] = Field(description="Type of its values.")
    title: str = Field(description="Title for people.")


class GateRow(Shape):
    queue: str = Field(description="Queue that must approve.")
    rule: str = Field(description="Explanation that approvers see.")


class CertificateRow(Shape):
    """Certification status of a keyed tool."""

    standing: Word = Field(description="Certification status.")
    until: datetime | None = Field(description="Time until which the finding is valid.")
    told: str = Field(description="Finding of the newest probe; empty if no probe was run.")
    by: str = Field(description="Actor who probed or confirmed it; empty if nobody did.")
    at: datetime | None = Field(description="Time of the finding; null if there is none.")


class ToolRow(Shape):
    name: ToolName
    title: str = Field(description="Title for people.")
    system: str = Field(description="Upstream system that the tool acts on.")
    effect: str = Field(description="Description of the tool's effect.")
    replay_class: ReplayClass
    gate: GateRow | None = Field(description="Approval that the tool requires; null if none.")
    certificate: CertificateRow | None = Field(
        description="Null if the tool is not keyed, or if no app certifies tools."
    )


class AgentRow(Shape):
    """One version of an agent, with everything needed to start it."""

    name: AgentName
    version: AgentVersion
    graph_id: str = Field(description="Name and version, as name@version.")
    title: str = Field(description="Title for people.")
    description: str = Field(description="Description by the agent's author.")
    input_schema: dict[str, Any] = Field(description="JSON schema of the input.")
    output_schema: dict[str, Any] | None = Field(description="JSON schema of the output; null if not declared.")
    samples: list[SampleRow] = Field(description="Example inputs.")
    start: str = Field(description="Node where runs start.")
    nodes: list[NodeRow] = Field(description="Nodes of the agent.")
    tools: list[ToolRow] = Field(description="Tools that it may call.")
    attributes: list[AttributeRow] = Field(description="Attributes by which its runs can be searched.")
    messages: list[RequestKindRow] = Field(description="Messages that its runs accept while they are active.")
    views: list[ViewKindRow] = Field(description="Views that the agent offers on its runs.")
    signals: list[str] | None = Field(description="Signals that its nodes wait for; null: signals of any name.")


class AgentPage(Page):
    results: Rows[AgentRow]


class BusyToolRow(Shape):
    """A blocking tool whose threads in one worker are all in use, so that further calls there wait."""

    tool: ToolName
    busy: int = Field(description="Number of its threads in use.")
    threads: int = Field(description="Number of threads that the tool has in a worker.")
    since: datetime = Field(description="Time when a thread was last free.")


class ProcessRow(Shape):
    """A live process."""

    id: UUID = Field(description="Id of the process.")
    kind: str = Field(description="Type of the process, such as worker or web.")
    host: str = Field(description="Name of its host.")
    pid: int = Field(description="Process id on that host.")
    started_at: datetime = Field(description="Time when it started.")
    last_heartbeat_at: datetime = Field(description="Time of its last heartbeat.")
    slots_used: int = Field(description="Number of runs that it is executing.")
    slots_total: int = Field(description="Number of runs that it can execute at the same time.")
    busy_tools: list[BusyToolRow] = Field(description="For a worker: tools with all their threads in use.")
    drain_asked_at: datetime | None = Field(description="For a worker: time when an operator asked it to drain.")

    @classmethod
    def of(cls, stored: Any, **more: Any) -> Self:
        """Return the row of a stored process."""
        return super().of(stored, busy_tools=[BusyToolRow.of(each) for each in stored.busy_tools], **more)


class ProcessPage(Page):
    results: Rows[ProcessRow]


class IncidentPage(Page):
    results: Rows[IncidentRow]
