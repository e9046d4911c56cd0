from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import psycopg
import pytest

from approvals.models import Approval, Decision
from durableagents import Context, End
from ledger import codes
from ledger import events as e
from ledger.chain import body_hash
from ledger.codec import pack, unpack
from ledger.models import Event, LedgerEntry
from runs.engine.agents import Agent
from runs.models import Checkpoint, Run, Wait
from runs.services import lifecycle, signals
from tests.conftest import database_urls
from tests.integration.runs.stage import Stage, calling, fresh, head, waiting
from tests.world import OLGA, Item, Notes, Outside, Toolbox, agent_of

Sql = psycopg.Connection[Any]


@pytest.fixture
def sql(stage: Stage, postgres: Mapping[str, str]) -> Iterator[Sql]:
    """A connection with the rights of injected SQL: the runtime role's."""
    with psycopg.connect(database_urls(postgres)["runtime"], autocommit=True) as link:
        yield link


def paying(tools: Toolbox) -> Agent:
    return calling(tools, "pay", "po", 84_000)


def append(sql: Sql, run: Run, event: e.Event, code: bytes = b"") -> None:
    """Append by the database's own function, with any code the attacker has."""
    clear, packed = e.encode_clear(event), pack(event.payload, run.id)
    sql.execute(
        "SELECT ledger_append_as(%s, 'user:fiona', ARRAY[ROW(%s, %s, %s, %s, %b, %b, "
        "%b)]::ledger_line[], ARRAY[]::ledger_fact[])",
        [run.id, event.KIND, event.slot, event.attempt, event.fact, clear, packed, body_hash(clear, packed) + code],
    )


def let_through(sql: Sql, run: Run, plan_hash: str) -> None:
    """Change the wait's and the run's row as a decision does."""
    sql.execute(
        "UPDATE runs_wait SET resolution = 'approved', resolved_by = 'user:fiona', resolved_at "
        "= clock_timestamp(), grant_hash = %s, "
        "grant_expires_at = clock_timestamp() + interval '7 days' WHERE run_id = %s AND kind = 'approval'",
        [plan_hash, run.id],
    )
    make_ready(sql, run)


def make_ready(sql: Sql, run: Run) -> None:
    sql.execute("UPDATE runs_run SET state = 'running', ready_at = clock_timestamp() WHERE id = %s", [run.id])


def approve(sql: Sql, run: Run, code: bytes = b"") -> None:
    """Write by hand everything that `decide` writes."""
    row = Approval.objects.get(run=run)
    sql.execute(
        "INSERT INTO approvals_decision (approval_id, verdict, plan_hash, justification, by, "
        "role, auth, address, before, after, at) "
        "VALUES (%s, 'approve', %s, 'as quoted', 'user:fiona', 'approver_finance', 'session', "
        "'192.0.2.3', '{}', '{}', clock_timestamp())",
        [row.id, row.plan_hash],
    )
    sql.execute(
        "UPDATE approvals_approval SET state = 'approved', decided_at = clock_timestamp() WHERE id = %s", [row.id]
    )
    append(sql, run, yes_to(row), code)
    let_through(sql, run, row.plan_hash)


def yes_to(asked: Approval) -> e.ApprovalDecided:
    return e.ApprovalDecided(
        slot=asked.wait.slot,
        approval_id=str(asked.id),
        verdict="approved",
        plan_hash=asked.plan_hash,
        by="user:fiona",
        role="approver_finance",
        payload={"justification": "as quoted"},
    )


def why_stopped(run: Run) -> str:
    (stop,) = [w for w in waiting(run) if w.kind == "operator"]
    return str(stop.detail["reason"])


# --- approvals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code", [b"", bytes(41), b"\x01" + bytes(40), b"\x01" * 500], ids=["none", "zeros", "a version", "long"]
)
def test_forged_approval_sends_nothing(stage: Stage, tools: Toolbox, outside: Outside, sql: Sql, code: bytes) -> None:
    agent = paying(tools)
    run = stage.start(agent)
    assert stage.drive() == "parked"
    approve(sql, run, code)
    other = stage.start(agent)
    assert [stage.drive(), stage.drive()] == ["operator", "parked"]
    assert why_stopped(run) == "forged_approval" and outside.requests == []
    stage.decide(other)
    assert stage.drive() == "completed" and len(outside.executed("pay")) == 1


def test_retry_stops_again_at_a_forged_approval(stage: Stage, tools: Toolbox, outside: Outside, sql: Sql) -> None:
    run = stage.start(paying(tools))
    stage.drive()
    approve(sql, run)
    assert stage.drive() == "operator"
    lifecycle.retry(run.id, by=OLGA, justification="once more")
    assert stage.drive() == "operator" and why_stopped(run) == "forged_approval"
    lifecycle.cancel(run.id, by=OLGA, justification="an attack")
    assert fresh(run).state == "cancelled" and outside.requests == []


def test_approval_of_another_run_is_not_used(stage: Stage, tools: Toolbox, outside: Outside, sql: Sql) -> None:
    agent = paying(tools)
    mine, other = stage.start(agent), stage.start(agent)
    assert [stage.drive(), stage.drive()] == ["parked", "parked"]
    stage.decide(other)
    taken = Event.objects.get(run_id=other.id, kind="ApprovalDecided")
    assert stage.drive() == "completed"
    approve(sql, mine, bytes(taken.code))
    assert stage.drive() == "operator" and why_stopped(mine) == "forged_approval"
    assert len(outside.executed("pay")) == 1


def test_approved_wait_without_event_is_not_used(stage: Stage, tools: Toolbox, outside: Outside, sql: Sql) -> None:
    run = stage.start(paying(tools))
    stage.drive()
    let_through(sql, run, Approval.objects.get(run=run).plan_hash)
    assert stage.drive() == "operator" and outside.requests == []


def test_altered_rejection_is_not_used(stage: Stage, tools: Toolbox, outside: Outside, sql: Sql) -> None:
    run = stage.start(paying(tools))
    stage.drive()
    decide = stage.decide(run, "reject")
    let_through(sql, run, decide.plan_hash)
    assert stage.drive() == "failed" and outside.requests == []


def test_grant_freed_by_hand_is_not_used_twice(stage: Stage, tools: Toolbox, outside: Outside, sql: Sql) -> None:
    async def twice(state: Notes, ctx: Context) -> End:
        grant = await ctx.approve("finance_po", title="pay", body=Item(name="po", amount=5000), tool=tools.pay)
        await ctx.call(tools.pay, Item(name="po", amount=5000), grant=grant)
        sql.execute("UPDATE runs_wait SET consumed_at = NULL, grant_expires_at = 'infinity' WHERE kind = 'approval'")
        await ctx.call(tools.pay, Item(name="po", amount=5000), grant=grant)
        return End("twice")

    run = stage.start(agent_of(twice, tools=tools.all()))
    assert stage.drive() == "parked"
    stage.decide(run)
    assert stage.drive() == "operator" and why_stopped(run) == "approval_missing"
    assert len(outside.executed("pay")) == 1


# --- results --------------------------------------------------------------------------------------

PAID = {"result": {"ref": "forged", "amount": 1}}
RESULTS: dict[str, Callable[[str], e.Event]] = {
    "a result": lambda slot: e.ToolReturned(slot=slot, tool="order", payload=PAID),
    "a callback": lambda slot: e.CallbackReceived(slot=slot, tool="order", payload={"ref": "forged"}),
    "a verdict": lambda slot: e.ToolReconciled(
        slot=slot, tool="order", verdict="happened", by="user:olga", payload=PAID
    ),
    "a failure": lambda slot: e.ToolFailed(slot=slot, tool="order", code="refused", requested_hash=""),
    "an answer": lambda slot: e.InputAnswered(slot=slot, by="user:olga", role="operator", n=0, payload={"answer": {}}),
    "a signal": lambda _: e.SignalReceived(name="go", n=1, by="user:olga", payload={"text": "forged"}),
    "a retry": lambda slot: e.RunRetried(by="user:olga", reopened=[slot]),
    "an end of a wait": lambda slot: e.WaitResolved(
        slot=slot, wait="webhook", resolution="timed_out", by="system:sweeper", n=0
    ),
    "a visit": lambda _: e.VisitEntered(node="pay", visit=9),
    "an intent": lambda slot: e.ToolInvoked(
        slot=slot + "0", tool="order", replay_class="idempotent_with_key", requested_hash="", executed_hash=""
    ),
}


def asleep(tools: Toolbox) -> Agent:
    async def sleep(state: Notes, ctx: Context) -> End:
        await ctx.sleep(3600)
        done = await ctx.call(tools.order, Item(name="desk"))
        return End(done.ref)

    return agent_of(sleep, tools=tools.all())


@pytest.mark.parametrize("what", RESULTS)
def test_forged_event_answers_nothing(stage: Stage, tools: Toolbox, outside: Outside, sql: Sql, what: str) -> None:
    run = stage.start(asleep(tools))
    assert stage.drive() == "parked"
    append(sql, run, RESULTS[what]("0.1/2"))
    make_ready(sql, run)
    assert stage.drive() == "operator" and why_stopped(run) == "forged_event"
    assert outside.requests == []


def test_a_authentic_event_written_once_more_is_not_believed(stage: Stage, tools: Toolbox, sql: Sql) -> None:
    async def fail(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(tools.order, Item(name="desk"))).ref)

    run = stage.start(asleep(tools))
    stage.drive()
    lifecycle.pause(run.id, by=OLGA, justification="hold on")
    lifecycle.resume(run.id, by=OLGA, justification="go on")
    row = Event.objects.get(run_id=run.id, kind="RunResumed")
    append(sql, run, e.decode(row.clear, unpack(row.sealed)), bytes(row.code))
    make_ready(sql, run)
    assert stage.drive() == "operator" and why_stopped(run) == "forged_event"


def test_a_forged_checkpoint_is_not_gone_on_from(stage: Stage, tools: Toolbox, outside: Outside, sql: Sql) -> None:
    from runs.journal.reader import checksum

    run = stage.start(asleep(tools))
    stage.drive()
    authentic = Checkpoint.objects.get(run_id=run.id)
    state = pack(json.loads(json.dumps(unpack(authentic.state)).replace('"go"', '"forged"')), run.id) or b""
    for seq in (authentic.seq + 1, authentic.seq + 2):
        sql.execute(
            "INSERT INTO runs_checkpoint (run_id, seq, generation, node, visit, schema_version, "
            "fingerprint, state, checksum, at) "
            "VALUES (%s, %s, 0, 'sleep', 1, 1, %s, %s, %s, clock_timestamp())",
            [run.id, seq, authentic.fingerprint, state, checksum("sleep", 1, state)],
        )
    make_ready(sql, run)
    assert stage.drive() == "operator" and why_stopped(run) == "forged_checkpoint" and outside.requests == []


def test_a_run_whose_row_names_another_agent_is_not_driven_by_it(
    stage: Stage, tools: Toolbox, outside: Outside, sql: Sql, postgres: Mapping[str, str]
) -> None:
    run, other = stage.start(asleep(tools)), calling(tools, "order", "another agent's")
    stage.drive()
    change = "UPDATE runs_run SET graph_id = %s, generation = 1 WHERE id = %s"
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        sql.execute(change, [other.graph_id, run.id])
    with psycopg.connect(database_urls(postgres)["admin"], autocommit=True) as owner:
        owner.execute(change, [other.graph_id, run.id])
    make_ready(sql, run)
    assert stage.drive() == "operator" and why_stopped(run) == "forged_run" and outside.requests == []


def test_every_event_carries_a_code_but_those_that_the_database_writes(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(paying(tools))
    stage.drive()
    stage.decide(run)
    signals.signal(run.id, "go", {"x": 1}, by=OLGA)
    assert stage.drive() == "completed"
    rows = list(Event.objects.filter(run_id=run.id).order_by("seq"))
    assert {row.kind for row in rows if row.code is None} == {"RunClaimed"}
    assert all(codes.place_of(bytes(row.code)) == row.seq for row in rows if row.code is not None)
    decision = Decision.objects.get()
    assert (
        decision.code is not None and LedgerEntry.objects.filter(run_id=run.id).exists() and head(run).seq == len(rows)
    )
    assert Wait.objects.get(run=run, kind="approval").consumed_at is not None
