from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar
from uuid import uuid4

import pytest
from pydantic import BaseModel

from durableagents import Context, End, TransportError
from ledger.errors import DurableAgentsError, IllegalTransition, InvalidInput, JustificationRequired, NotFound
from ledger.models import Event, Head
from runs.api import present
from runs.engine.tools import Tool
from runs.models import Run
from runs.services import lifecycle, reconciling
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.situations import ALL, Situations, act
from tests.integration.runs.stage import (
    Stage,
    dump,
    events,
    facts,
    fresh,
    head,
    kinds,
    output,
    overrides,
    problems,
    waiting,
)
from tests.tampering import tamper
from tests.world import OLGA, Item, Notes, Outside, Toolbox, agent_of

pytestmark = pytest.mark.every(3)

Refused = TypeVar("Refused", bound=DurableAgentsError)
SERVICES = ["pause", "resume", "cancel", "retry", "happened", "did_not", "fail"]

# service, situation → state afterwards, and the events written
LEGAL: dict[tuple[str, str], tuple[str, list[str]]] = {
    ("pause", "pending"): ("paused", ["RunPaused"]),
    ("pause", "queued"): ("paused", ["RunPaused"]),
    ("pause", "at_gate"): ("paused", ["RunPaused"]),
    ("pause", "unknown"): ("paused", ["RunPaused"]),
    ("pause", "stopped"): ("paused", ["RunPaused"]),
    ("pause", "at_callback"): ("paused", ["RunPaused"]),
    ("pause", "asleep"): ("paused", ["RunPaused"]),
    ("pause", "in_outage"): ("paused", ["RunPaused"]),
    ("pause", "owned"): ("running", ["PauseRequested"]),
    ("resume", "asked_to_pause"): ("running", ["RunResumed"]),
    ("resume", "paused_pending"): ("pending", ["RunResumed"]),
    ("resume", "paused_queued"): ("running", ["RunResumed"]),
    ("resume", "paused_at_gate"): ("waiting_human", ["RunResumed"]),
    ("resume", "paused_unknown"): ("waiting_human", ["RunResumed"]),
    ("resume", "paused_stopped"): ("waiting_human", ["RunResumed"]),
    ("resume", "paused_at_callback"): ("waiting_tool", ["RunResumed"]),
    ("resume", "paused_asleep"): ("waiting_event", ["RunResumed"]),
    ("resume", "paused_woken"): ("running", ["RunResumed"]),
    ("cancel", "pending"): ("cancelled", ["RunCancelled"]),
    ("cancel", "queued"): ("cancelled", ["RunCancelled"]),
    ("cancel", "at_gate"): ("cancelled", ["RunCancelled"]),
    ("cancel", "stopped"): ("cancelled", ["RunCancelled"]),
    ("cancel", "at_callback"): ("cancelled", ["RunCancelled"]),
    ("cancel", "asleep"): ("cancelled", ["RunCancelled"]),
    ("cancel", "unknown"): ("waiting_human", ["CancelRequested"]),
    ("cancel", "in_outage"): ("running", ["CancelRequested"]),
    ("cancel", "owned"): ("running", ["CancelRequested"]),
    ("cancel", "asked_to_pause"): ("running", ["CancelRequested"]),
    ("cancel", "paused_pending"): ("cancelled", ["RunCancelled"]),
    ("cancel", "paused_queued"): ("cancelled", ["RunCancelled"]),
    ("cancel", "paused_at_gate"): ("cancelled", ["RunCancelled"]),
    ("cancel", "paused_stopped"): ("cancelled", ["RunCancelled"]),
    ("cancel", "paused_at_callback"): ("cancelled", ["RunCancelled"]),
    ("cancel", "paused_asleep"): ("cancelled", ["RunCancelled"]),
    ("cancel", "paused_woken"): ("cancelled", ["RunCancelled"]),
    ("cancel", "paused_unknown"): ("waiting_human", ["CancelRequested"]),
    ("retry", "failed"): ("running", ["RunRetried"]),
    ("retry", "stopped"): ("running", ["WaitResolved"]),
    ("retry", "paused_stopped"): ("paused", ["WaitResolved"]),
    ("happened", "unknown"): ("running", ["ToolReconciled"]),
    ("happened", "paused_unknown"): ("paused", ["ToolReconciled"]),
    ("happened", "doomed_unknown"): ("running", ["ToolReconciled"]),
    ("did_not", "unknown"): ("running", ["ToolReconciled"]),
    ("did_not", "paused_unknown"): ("paused", ["ToolReconciled"]),
    ("did_not", "doomed_unknown"): ("running", ["ToolReconciled"]),
    ("fail", "unknown"): ("failed", ["ToolReconciled", "RunFailed"]),
    ("fail", "paused_unknown"): ("failed", ["ToolReconciled", "RunFailed"]),
    ("fail", "doomed_unknown"): ("running", ["ToolReconciled"]),
}
# What the next drive comes to, where it is not the same as the state above.
ENDINGS: dict[tuple[str, str], str] = {
    ("resume", "paused_pending"): "completed",
    ("resume", "paused_queued"): "completed",
    ("resume", "paused_woken"): "completed",
    ("resume", "asked_to_pause"): "idle",
    ("cancel", "in_outage"): "parked",
    ("retry", "failed"): "failed",
    ("retry", "stopped"): "operator",
    ("happened", "unknown"): "completed",
    ("did_not", "unknown"): "completed",
    ("happened", "doomed_unknown"): "cancelled",
    ("did_not", "doomed_unknown"): "cancelled",
    ("fail", "doomed_unknown"): "cancelled",
}
NO_REASONS: list[Any] = ["", "   ", "\n\t", None, 7, ["because"], "x" * 4001, "nul \x00"]


@pytest.mark.parametrize(("service", "situation"), LEGAL)
def test_legal_act_leaves_one_record_and_the_run_goes_on(
    situations: Situations, stage: Stage, outside: Outside, service: str, situation: str
) -> None:
    run = situations.make(situation)
    state, written = LEGAL[service, situation]
    before, count = head(run), len(overrides(run))
    old_state, old_owner, old_kinds = str(run.state), run.owner, kinds(run)

    returned = act(service, run, "  because I say so  ")

    now = fresh(run)
    assert (returned.id, str(returned.state), str(now.state)) == (run.id, state, state)
    assert kinds(run)[len(old_kinds) :] == written
    assert now.owner == old_owner, "nobody takes a run out of its worker's hands"
    record = overrides(run)[count:][0]
    assert len(overrides(run)) == count + 1
    verb = "reconcile" if service in ("happened", "did_not", "fail") else service
    assert (record.action, record.by, record.role, record.auth, record.address) == (
        verb,
        "user:olga",
        "operator",
        "session",
        "192.0.2.2",
    )
    assert record.justification == "because I say so"
    assert (record.seq, bytes(record.chain)) == (before.seq, bytes(before.chain)), "on exactly the state they saw"
    assert (record.before["state"], record.after["state"]) == (old_state, state)
    items = [x for x in events(run)[len(old_kinds) :] if x.KIND != "RunFailed"]
    assert all((x.payload or {}).get("justification") == "because I say so" for x in items)
    assert problems(run) == []
    is_sound(run)
    sent, how = len(outside.requests), stage.drive()
    assert how == ENDINGS.get((service, situation), how)
    assert len(outside.requests) - sent == (
        (service, situation) in [("did_not", "unknown"), ("resume", "paused_woken")]
    )
    is_sound(run)
    if str(fresh(run).state) == "cancelled":
        why = present.load_run_row(run.id).cancelled
        assert why is not None and why.by == "user:olga", "the person who ended it"
        assert why.why == ("stop" if situation == "doomed_unknown" else "because I say so")


def check_form(run: Run) -> None:
    row, open_ = fresh(run), waiting(run)
    if row.state in ("completed", "failed", "cancelled"):
        assert open_ == [] and row.ready_at is None and row.owner is None and row.ended_at is not None
        last = Event.objects.get(run_id=run.id, seq=row.end_seq)
        assert (
            last.kind
            == {"completed": "RunCompleted", "failed": "RunFailed", "cancelled": "RunCancelled"}[str(row.state)]
        )
        assert not head(run).is_cancel_requested
    elif str(row.state).startswith("waiting"):
        assert open_ and row.ready_at is None and row.owner is None
    elif row.state == "paused":
        assert row.ready_at is None and row.owner is None
    elif row.state == "pending":
        assert row.ready_at is not None and row.owner is None
    else:
        assert (row.owner is None) != (row.ready_at is None), "running means driven or ready"
    assert row.state in ("completed", "failed", "cancelled") or row.ended_at is None


def is_sound(run: Run) -> None:
    check_form(run)
    check_against_journal(run)


@pytest.mark.parametrize("situation", ALL)
def test_every_situation_has_its_form_and_no_other_act_changes_it(situations: Situations, situation: str) -> None:
    run = situations.make(situation)
    is_sound(run)
    before = dump()
    for service in [service for service in SERVICES if (service, situation) not in LEGAL]:
        refused = refusal(IllegalTransition, service, lambda service=service: act(service, run))
        assert refused.status == 409 and str(run.state) in refused.detail, service
        assert dump() == before, service


@pytest.mark.parametrize("service", SERVICES)
def test_nobody_acts_without_saying_why(situations: Situations, service: str) -> None:
    legal = next(situation for s, situation in LEGAL if s == service)
    run = situations.make(legal)
    before = dump()
    for why in NO_REASONS:
        refused = refusal(JustificationRequired, repr(why), lambda why=why: act(service, run, why))
        assert refused.status == 422 and refused.extra["errors"][0]["field"] == "justification", repr(why)
        assert dump() == before, repr(why)


def refusal(kind: type[Refused], what: str, attempt: Callable[[], Any]) -> Refused:
    try:
        attempt()
    except kind as refused:
        return refused
    pytest.fail(f"{what} was let through")


def test_what_is_not_there_is_not_found(stage: Stage) -> None:
    before = dump()
    for service in SERVICES:
        refusal(NotFound, service, lambda service=service: act(service, lifecycle.Run(id=uuid4())))
        assert dump() == before, service


def test_a_verdict_is_one_of_three(situations: Situations) -> None:
    run = situations.make("unknown")
    before = dump()
    for verdict in ("", "maybe", "HAPPENED", None, 1):
        said: dict[str, Any] = {"verdict": verdict, "justification": "as seen", "by": OLGA}
        refusal(InvalidInput, repr(verdict), lambda said=said: reconciling.reconcile(run.id, **said))
        assert dump() == before, repr(verdict)


def test_it_happened_needs_a_receipt_that_gives_the_result(situations: Situations) -> None:
    run = situations.make("unknown")
    before = dump()
    receipts: list[Any] = [None, {}, {"wrong": 1}, "text", [], {"ref": None}, 7]
    for receipt in receipts:
        said: dict[str, Any] = {"verdict": "happened", "receipt": receipt, "justification": "as seen", "by": OLGA}
        refused = refusal(InvalidInput, repr(receipt), lambda said=said: reconciling.reconcile(run.id, **said))
        error = refused.extra["errors"][0]
        assert error["field"] == "receipt" and "ref" in error["fix"], repr(receipt)
        assert dump() == before, repr(receipt)


class Loose(BaseModel):
    ref: str | None = None


def test_a_receipt_needs_a_field_of_the_result_unless_the_tool_reads_receipts_itself(
    stage: Stage, tools: Toolbox, outside: Outside
) -> None:
    def settle(given: Tool, receipt: Any) -> str:
        async def node(state: Notes, ctx: Context) -> End:
            return End((await ctx.call(given, Item(name="letter"))).ref)

        outside.trouble("mail", TransportError("cut"), when="after")
        run = stage.start(agent_of(node, tools=[given]))
        assert stage.drive() == "parked"
        fields: dict[str, Any] = {"verdict": "happened", "justification": "as seen", "by": OLGA}
        with pytest.raises(InvalidInput) as refused:
            reconciling.reconcile(run.id, receipt={"foo": 1}, **fields)
        assert refused.value.extra["errors"][0]["fix"] == "give Loose as an object: ref"
        reconciling.reconcile(run.id, receipt=receipt, **fields)
        assert stage.drive() == "completed"
        return str(output(run))

    def read(args: BaseModel, receipt: Any) -> Loose:
        if "post" not in receipt:
            raise ValueError("has no number of the post")
        return Loose(ref=receipt["post"])

    plain = replace(tools.mail, output=Loose)
    assert settle(plain, {"ref": "seen", "more": 1}) == "seen"
    assert settle(plain, {"ref": None}) == settle(plain, None) == "None"
    assert settle(replace(plain, on_receipt=read), {"post": "7"}) == "7"


# --- and it continues ---


def test_a_verdict_under_a_pause_is_kept_for_the_resume(situations: Situations, stage: Stage) -> None:
    run = situations.make("paused_unknown")
    act("happened", run)
    assert stage.drive() == "idle"
    act("resume", run)
    assert stage.drive() == "completed" and output(run) == "seen"
    assert facts(run) == ["pending", "unknown", "reconciled"]


def test_cancelling_withdraws_what_people_were_asked(situations: Situations) -> None:
    run = situations.make("at_gate")
    act("cancel", run)
    approval = run.approvals.get()
    assert approval.state == "withdrawn" and approval.wait.resolution == "withdrawn" and approval.decided_at


@pytest.mark.parametrize("owned", [False, True])
def test_unreadable_run_can_be_ended(situations: Situations, stage: Stage, owned: bool) -> None:
    run = situations.make("asleep")
    if owned:
        act("pause", run)
        lifecycle.Run.objects.filter(pk=run.pk).update(is_woken=True)
        act("resume", run)
        stage.claim()
    tamper("UPDATE ledger_event SET clear = 'nonsense' WHERE run_id = %s AND kind = 'WaitOpened'", run.id)
    act("cancel", run)
    check_form(run)
    assert Head.objects.get(pk=run.id).lease is None, "and no worker writes to it any more"
