"""Rows of runs and agents for the API. A list takes a fixed number of queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from uuid import UUID

from django.db.models import Q

from ledger import events as e
from ledger.api.present import MAX_INLINE, larger_than, masked, payload_at, payload_shown
from ledger.models import Event, Head
from runs import seen
from runs.api.revisions import resume_token, revision_of
from runs.api.schemas import (
    AgentRow,
    Amounts,
    AssignedRow,
    AttributeRow,
    BudgetRow,
    Cancellation,
    Caps,
    CertificateRow,
    ChildCounts,
    ExceededRow,
    GateRow,
    LogRow,
    NodeRow,
    ParentRow,
    PriceRow,
    ProposedRow,
    RequestKindRow,
    RunRow,
    SampleRow,
    ToolRow,
    UpstreamRow,
    Usage,
    ViewKindRow,
    WaitRow,
)
from runs.engine import budget
from runs.engine.agents import Agent
from runs.engine.budget import usd_of
from runs.engine.certification import Certificate, CertificateReader
from runs.engine.tools import Tool
from runs.models import ENDED, LogLine, Price, Run, State, Wait
from runs.queries import families, progress, spending
from runs.queries.display import stood_at
from runs.queries.halts import halt_of
from runs.queries.progress import size_of
from runs.queries.run_facts import RunFacts, facts_of
from runs.queries.shown_attributes import of_head, set_by
from runs.queries.spending import reserved
from runs.queries.status import group_of, status_of
from runs.services.budgets.asked import budget_of, budget_wait_text
from runs.services.lifecycle import Accepted, find
from runs.services.settling.agreeing import Heard

# Separates the position, which identifies an operator's wait, from the finding there, such as content that came from
# outside.
_NEAR = 16


def wait_row(wait: Wait, evidence: Any = None, unknown: Heard | None = None, *, is_read: bool = True) -> WaitRow:
    """Return the row of a wait.
    `evidence` is the reason why it stopped for an operator (both calls, if two differ), `unknown` is the state of an
    unknown outcome, and `is_read` tells whether payloads may be shown."""
    # The row may contain anything, but a damaged row must not hide the whole list.
    row = budget_wait_text(wait)
    detail = masked(row) | ({"found": masked(evidence)} if isinstance(evidence, dict) else {})
    if wait.kind == Wait.Kind.INPUT:
        detail["schema"] = row.get("schema")  # the agent's own code; people who answer need all its names
    proposal = None if unknown is None else unknown.said
    proposed = (
        None if proposal is None else ProposedRow.of(proposal, receipt=masked(proposal.receipt) if is_read else None)
    )
    upstream = (
        None
        if unknown is None or not unknown.asked_seq
        else UpstreamRow.of(unknown, answer=unknown.answer or None, result=masked(unknown.result) if is_read else None)
    )
    return WaitRow.of(
        wait, since=wait.opened_at, detail=detail, child=families.child_of(wait), proposed=proposed, upstream=upstream
    )


# Fields that require reading the event that ended the run.
_OF_ENDING = frozenset({"output", "output_omitted", "error", "cancelled"})


def run_rows(
    runs: Sequence[Run], *, most_output: float = MAX_INLINE, wanted: frozenset[str] | None = None
) -> list[RunRow]:
    """Return runs with their heads, open waits, endings and the runs ahead of them in the queue, using a few further
    queries, however many runs there are. Output of more than `most_output` bytes is left out. Payloads that no `wanted`
    field shows are not read, because they may be stored elsewhere."""
    ids = [run.id for run in runs]
    heads, readable = families.heads(ids), seen.readable({run.id: run.creator for run in runs if run.erased_at is None})
    waits = families.open_waits(ids)
    visible_ids = readable | {
        run.id for run in runs if run.state == State.CANCELLED and run.erased_at is None
    }  # the person and the reason aren't payload
    places = [(r.id, r.end_seq) for r in runs if r.state in ENDED and r.end_seq and r.id in visible_ids]
    if wanted is not None and not wanted & _OF_ENDING:
        places = []
    large = larger_than(most_output, places)
    endings = payload_at([place for place in places if place[0] not in large])
    facts = facts_of(runs, heads, waits)
    stops = [wait for some in waits.values() for wait in some if wait.kind == Wait.Kind.OPERATOR]
    is_shown = wanted is None or "waiting_for" in wanted
    evidence = _evidence_of([wait for wait in stops if is_shown and wait.run_id in readable])
    aside = reserved(runs, heads)
    related = seen.among(one for run in runs for one in [run.parent, run.came_from, run.goes_on_as, run.forked_from])
    return [
        run_row(
            facts[run.id],
            endings.get(run.id),
            evidence,
            aside.get(run.id, budget.NOTHING_USED),
            related=related,
            is_read=run.id in readable,
            is_large=run.id in large,
        )
        for run in runs
    ]


def accepted_row(accepted: Accepted) -> RunRow:
    """Return the row of a run that was started in this transaction, without further queries."""
    head, assigned, halt = accepted.head, accepted.assigned, accepted.halted
    head.halted = halt  # type: ignore[attr-defined]
    if assigned is not None:
        head.assigned = {"ramp": assigned.ramp, "is_new": assigned.is_new, "why": assigned.why}  # type: ignore[attr-defined]
    facts = RunFacts(accepted.run, head, (), accepted.drivable)
    return run_row(facts, None, attributes=set_by(accepted.found_by))


def _evidence_of(stops: Sequence[Wait]) -> dict[UUID, Any]:
    """Return the reason for each wait for an operator, by the wait's id, in at most one query."""
    near = Q()
    for wait in stops:
        position = wait.slot.rpartition("/")[2]
        if position.isdecimal():
            near |= Q(run_id=wait.run_id, seq__gt=int(position), seq__lte=int(position) + _NEAR)
    if not near:
        return {}
    events = list(
        Event.objects.filter(near, kind=e.OperatorNeeded.KIND).only("run_id", "seq", "kind", "sealed").order_by("seq")
    )
    payloads = {event.run_id: payload_shown(event) for event in reversed(events)}
    return {wait.id: payloads.get(wait.run_id) for wait in stops}


def run_row(
    facts: RunFacts,
    ending: Any,
    evidence: Mapping[UUID, Any] = MappingProxyType({}),
    aside: budget.Usage = budget.NOTHING_USED,
    *,
    related: Collection[UUID] = (),
    is_read: bool = True,
    is_large: bool = False,
    attributes: Mapping[str, Any] | None = None,
) -> RunRow:
    """Return the API's row of a run.
    `ending` is the payload of the event that ended it; `evidence` contains the reasons for its waits for an
    operator, by the wait's id; `aside` is the amount reserved for calls in progress; `related` contains the other runs
    that may be named; `is_read`: its payloads may be shown; `is_large`: a list leaves out its output because of the
    size; `attributes` replace those of the head.
    """
    run, head, halt = facts.run, facts.head or Head.standing_in(facts.run.id), halt_of(facts.head)
    is_over, assigned, heard = run.state in ENDED, getattr(head, "assigned", None), facts.related.heard
    return RunRow.of(
        run,
        revision=revision_of(run.updated_at),
        state=str(run.state),
        status=status_of(facts),
        waiting_for=[
            wait_row(wait, evidence.get(wait.id), heard.get(wait.id), is_read=is_read) for wait in facts.waits
        ],
        step_index=head.steps,
        epoch=head.epoch,
        seq=head.seq,
        journal=size_of(run, head),
        **_related(run, related),
        **_outcome(run, ending),
        output_omitted=is_large,
        hidden=not is_read,
        served=None if is_over else run.graph_id in (facts.served or ()),
        halted=halt,
        assigned=assigned and AssignedRow.of(None, **{name: assigned[name] for name in AssignedRow.model_fields}),
        business_key=run.business_key or None,
        queued_behind=facts.ahead,
        node=stood_at(run) or None,
        resume_token=None if is_over else resume_token(run.id, head.epoch),
        pause_requested=head.is_pause_requested,
        cancel_requested=head.is_cancel_requested,
        usage=Usage.of(head),
        budget=budget_row(run, head, facts.waits, aside),
        children=_counts(families.states(head)),
        attributes={one.name: one.value for one in of_head(head)} if attributes is None else attributes,
        last_durable_at=getattr(head, "last_at", None) if head.epoch else None,
        progress=progress.progress_of(head),
        log=progress.log_counts(head),
    )


def _outcome(run: Run, ending: Any) -> dict[str, Any]:
    return {
        "ended_at": run.ended_at if run.state in ENDED else None,
        "output": ending if run.state == State.COMPLETED else None,
        "error": _trouble_of(run, ending),
        "cancelled": _cancellation_of(run, ending),
    }


def _trouble_of(run: Run, ending: Any) -> dict[str, Any] | None:
    """Return a run's failure from `ending`, the payload of its last event; None if it didn't fail."""
    if run.state != State.FAILED:
        return None
    failure = ending if isinstance(ending, dict) else {"message": "" if ending is None else str(ending)}
    return {"code": run.error_code or "failed", "message": "", **failure}


def _cancellation_of(run: Run, ending: Any) -> Cancellation | None:
    """Return a run's cancellation from `ending`; None if it wasn't cancelled or no reason is recorded."""
    fields = ending if run.state == State.CANCELLED and isinstance(ending, dict) else {}
    by, why = fields.get("asked_by"), fields.get("justification")
    return Cancellation(by=by, why=why) if isinstance(by, str) and isinstance(why, str) else None


def _related(run: Run, related: Collection[UUID]) -> dict[str, Any]:
    """Return the fields that name other runs, if the viewer may see those."""
    goes_on_as, parent = seen.id_if_visible(run.goes_on_as, related), None
    if run.parent is not None and run.parent in related:
        parent = ParentRow.of(run, id=run.parent, slot=run.parent_slot, attempt=run.parent_attempt)
    return {
        "renewed_as": goes_on_as if run.goes_on_by == "renewal" else None,
        "handed_off_to": goes_on_as if run.goes_on_by == "handoff" else None,
        "came_from": seen.id_if_visible(run.came_from, related),
        "forked_from": seen.id_if_visible(run.forked_from, related),
        "parent": parent,
    }


def _counts(states: Mapping[str, int]) -> ChildCounts:
    """Return the number of a run's children by state group."""
    counted: Counter[str] = Counter()
    for state, number in states.items():
        counted[group_of(state)] += number
    return ChildCounts.of(counted, **{name: counted[name] for name in ChildCounts.model_fields})


def budget_row(run: Run, head: Head, waits: Sequence[Wait], aside: budget.Usage = budget.NOTHING_USED) -> BudgetRow:
    """Return the row of a run's caps, use and reservations (`aside`)."""
    all_ = spending.shares(head, aside)
    exceeded = spending.exceeded(waits)
    time = budget_of(run, head, waits).wall_seconds
    return BudgetRow.of(
        run,
        caps=Caps.of(run, wall_seconds=time, **{one.name: one.shown(one.cap) for one in all_}),
        reserved=Amounts.of(run, **{one.name: one.shown(one.reserved) for one in all_}),
        used=Amounts.of(run, **{one.name: one.shown(one.used) for one in all_}),
        left=Amounts.of(run, **{one.name: one.shown(one.left) for one in all_}),
        cost_usd=spending.cost_usd(head),
        unpriced_calls=head.unpriced_calls,
        exceeded=None
        if exceeded is None
        else ExceededRow.of(
            exceeded,
            wait_id=exceeded.wait.id,
            most=exceeded.shown(exceeded.at_most),
            used=exceeded.shown(exceeded.used),
            wanted=exceeded.shown(exceeded.wanted),
            reserved=exceeded.shown(exceeded.reserved),
            enough={name: spending.Share(name, 0, None).shown(least) for name, least in exceeded.enough.items()},
        ),
    )


def price_row(price: Price) -> PriceRow:
    return PriceRow.of(price, usd_in=usd_of(price.usd_micro_in), usd_out=usd_of(price.usd_micro_out))


def load_run_row(run_id: UUID, wanted: frozenset[str] | None = None) -> RunRow:
    """Return the current row of a run with these fields. Raises NotFound."""
    return run_rows([find(run_id)], wanted=wanted)[0]


def log_row(line: LogLine) -> LogRow:
    return LogRow.of(line, text=progress.masked_text(line))


def agent_row(agent: Agent, certificate_of: CertificateReader) -> AgentRow:
    """Return the row of an agent version, with the certificates of its tools."""
    return AgentRow.of(
        agent,
        input_schema=agent.input.model_json_schema(),
        output_schema=agent.output.model_json_schema() if agent.output else None,
        samples=[SampleRow.of(sample) for sample in agent.samples],
        nodes=[NodeRow.of(node) for node in agent.nodes.values()],
        tools=[tool_row(agent, tool, certificate_of) for tool in agent.all_tools()],
        attributes=[
            AttributeRow.of(attribute, name=name, title=attribute.title or name)
            for name, attribute in agent.attributes.items()
        ],
        messages=[
            RequestKindRow.of(
                m,
                body_schema=m.takes.model_json_schema(),
                answer_schema=m.answers.model_json_schema() if m.answers else None,
            )
            for m in agent.messages.values()
        ],
        views=[ViewKindRow.of(v, answer_schema=v.answers.model_json_schema()) for v in agent.views.values()],
    )


def tool_row(agent: Agent, tool: Tool, certificate_of: CertificateReader) -> ToolRow:
    """Return the row of an agent's tool."""
    certificate = certificate_of(agent.name, tool)
    return ToolRow.of(
        tool,
        replay_class=str(tool.replay_class),
        gate=GateRow.of(tool.gate) if tool.gate else None,
        certificate=_certificate_row(certificate) if certificate else None,
    )


def _certificate_row(certificate: Certificate) -> CertificateRow:
    verdict = certificate.standing
    return CertificateRow.of(certificate, standing=verdict.word, until=verdict.until)
