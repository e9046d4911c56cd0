"""Whoever changes one thing anywhere in the record, as the database's superuser but without the installation's key, is found out."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.db import Error, connection, transaction

from approvals.models import Approval
from durableagents import Context, End, TransportError
from ledger.verification import known_runs, tables, verify, verify_all
from runs import recovery, services
from runs.engine.agents import Agent
from runs.models import Run
from tests.runs.stage import Stage
from tests.world import OLGA, Item, Notes, Toolbox, agent_of

pytestmark = pytest.mark.django_db
SEED, MUTATIONS = 2026, 1000
# What no other row tells of, so that nothing says whether it was changed: docs/operations.md, *Verifying the record*, names them.
UNTOLD = {
    "ledger_head": {"lease", "is_on_hold", "usd_micro"},
    "ledger_ledgerentry": {"id"},
    "ledger_overriderecord": {"id"},
    "runs_run": {"ready_at", "is_woken", "is_solo", "priority", "tags", "trace_id", "updated_at"},
    "runs_wait": {"detail", "is_overdue"},
    "runs_signal": {"id", "sender_id"},
    "runs_incident": {"id", "in_doubt", "replayed", "is_stopped", "last_sign_at", "detected_at"},
    "approvals_approval": {"why"},
    "approvals_decision": {"id"},
}
ALL_TABLES = [*tables, "approvals_decision"]


# --- stories that leave every kind of row -----------------------------------------------------------------------------------


def everything(tools: Toolbox) -> Agent:
    """Reads, keyed and unsafe calls, gates, callbacks, signals, a value, two visits."""

    async def first(state: Notes, ctx: Context) -> str:
        await ctx.uuid()
        await ctx.call(tools.look, Item(name="catalogue"))
        await ctx.call(tools.order, Item(name="desk"))
        state.seen.append((await ctx.call(tools.pay, Item(name="po", amount=5000))).ref)
        return "second"

    async def second(state: Notes, ctx: Context) -> End:
        grant = await ctx.approve("legal", title="letter", body=Item(name="letter"), tool=tools.mail)
        await ctx.call(tools.mail, Item(name="letter"), grant=grant)
        await ctx.call(tools.ask, Item(name="form"))
        await ctx.signal("go")
        await ctx.sleep(3600)
        return End("well")

    return agent_of(first, second, tools=tools.all())


def through(stage: Stage, tools: Toolbox, agent: Agent) -> Run:
    """One run that is decided, paused, reconciled, answered, signalled, taken from a dead worker, and asleep in the end."""
    tools.outside.trouble("mail", TransportError("cut"), when="after")
    run = stage.start(agent)
    services.signal(run.id, "go", {"n": 1}, by=OLGA)
    dead = stage.hire(is_dead=True)
    assert len(stage.claim(dead)) == 1 and recovery.worker_died(dead.id, "gone") == 1
    assert stage.drive() == "parked"
    services.pause(run.id, by=OLGA, justification="hold on")
    services.resume(run.id, by=OLGA, justification="go on")
    stage.decide(run, why="as quoted")
    assert stage.drive() == "parked"
    stage.decide(run, why="reads well")
    assert stage.drive() == "parked"
    stage.reconcile(run, "happened", {"ref": "mail:letter", "amount": 1})
    assert stage.drive() == "parked"
    (url,) = tools.outside.urls.values()
    tools.outside.urls.clear()
    services.receive_callback(url.rpartition("/")[2], {"ref": "ask:form", "amount": 1})
    assert stage.drive() == "parked"
    return run


def failed(stage: Stage, tools: Toolbox) -> Run:
    async def fail(state: Notes, ctx: Context) -> End:
        grant = await ctx.approve("finance_po", title="x")
        return End(grant.by)

    run = stage.start(agent_of(fail))
    stage.drive()
    stage.decide(run, "reject", why="too dear")
    assert stage.drive() == "failed"
    return run


def cancelled(stage: Stage, tools: Toolbox) -> Run:
    async def wait(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(tools.pay, Item(name="po", amount=9000))).ref)

    run = stage.start(agent_of(wait, tools=tools.all()))
    stage.drive()
    return services.cancel(run.id, by=OLGA, justification="not needed")


@pytest.fixture
def record(stage: Stage, tools: Toolbox) -> list[Run]:
    agent = everything(tools)
    found = [through(stage, tools, agent), through(stage, tools, agent), failed(stage, tools), cancelled(stage, tools)]
    assert [problem for run in found for problem in verify(run.id).problems] == []
    return found


# --- what somebody may do to a row ---------------------------------------------------------------------------------------


def sql(statement: str, *parameters: Any) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []


def columns_of(table: str) -> dict[str, str]:
    rows = sql("SELECT column_name, data_type FROM information_schema.columns WHERE table_name = %s ORDER BY 1", table)
    return {name: kind for name, kind in rows if name not in UNTOLD.get(table, ())}


OTHER = {
    "text": "coalesce({c}, '') || 'x'", "bigint": "coalesce({c}, 0) + 1", "integer": "coalesce({c}, 0) + 1", "smallint": "coalesce({c}, 0) + 1",
    "boolean": "NOT {c}", "timestamp with time zone": "coalesce({c}, clock_timestamp()) + interval '1 day'", "uuid": "gen_random_uuid()",
    "bytea": "coalesce({c}, ''::bytea) || '\\x00'::bytea", "jsonb": "'{{\"forged\": 1}}'::jsonb",
}  # fmt: skip
Act = Callable[[random.Random, str, list[Any]], str]


def change(dice: random.Random, table: str, rows: list[Any]) -> str:
    column, kind = dice.choice(sorted(columns_of(table).items()))
    value = "NULL" if dice.random() < 0.15 else OTHER[kind].format(c=f'"{column}"')
    sql(f'UPDATE {table} SET "{column}" = {value} WHERE ctid = %s::tid', dice.choice(rows))
    return f"{column} := {value}"


def delete(dice: random.Random, table: str, rows: list[Any]) -> str:
    sql(f"DELETE FROM {table} WHERE ctid = %s::tid", dice.choice(rows))
    return "delete"


def double(dice: random.Random, table: str, rows: list[Any]) -> str:
    key = next((c for c in ("id",) if c in {r[0] for r in sql("SELECT column_name FROM information_schema.columns WHERE table_name = %s", table)}), "seq")
    kind = sql("SELECT data_type FROM information_schema.columns WHERE table_name = %s AND column_name = %s", table, key)
    fresh_key = "gen_random_uuid()" if kind and kind[0][0] == "uuid" else f"(SELECT max({key}) + 1 FROM {table})"
    named = [r[0] for r in sql("SELECT column_name FROM information_schema.columns WHERE table_name = %s", table)]
    values = ", ".join(fresh_key if c == key else f'"{c}"' for c in named)
    listed = ", ".join(f'"{c}"' for c in named)
    sql(f"INSERT INTO {table} ({listed}) SELECT {values} FROM {table} WHERE ctid = %s::tid", dice.choice(rows))
    return "double"


def swap(dice: random.Random, table: str, rows: list[Any]) -> str:
    """Two rows, of one run or of two, exchange what they say in one column."""
    one, other = dice.sample(rows, 2)
    column = dice.choice(sorted(columns_of(table)))
    sql(
        f'UPDATE {table} t SET "{column}" = s."{column}" FROM {table} s WHERE (t.ctid, s.ctid) IN ((%s::tid, %s::tid), (%s::tid, %s::tid))',
        one, other, other, one,
    )  # fmt: skip
    return f"swap {column}"


def move(dice: random.Random, table: str, rows: list[Any]) -> str:
    """A row goes to another run."""
    column = tables.get(table, "approval_id")
    target = dice.choice(sql(f'SELECT DISTINCT "{column}"::text FROM {table}'))[0]
    sql(f'UPDATE {table} SET "{column}" = %s WHERE ctid = %s::tid', target, dice.choice(rows))
    return f"move to {target}"


def whole(table: str) -> list[str]:
    return sorted(row[0] for row in sql(f"SELECT (to_jsonb(t) - %s::text[])::text FROM {table} t", sorted(UNTOLD.get(table, ()))))


def is_found(before: list[str], after: list[str]) -> bool:
    """Whether the runs that the changed rows belong to, or belonged to, do not hold any more."""
    rows = [json.loads(row) for row in {*before} ^ {*after} or {*after}]
    gates = dict(Approval.objects.values_list("id", "run_id"))
    runs = {UUID(row["run_id"]) if "run_id" in row else gates.get(UUID(row["approval_id"])) if "approval_id" in row else UUID(row["id"]) for row in rows}
    return any(verify(run_id).problems for run_id in runs if run_id is not None and run_id in set(known_runs(None, 1000)))


class _Undo(Exception):
    """Ends an attempt."""


def attempt(dice: random.Random, act: Act, table: str) -> tuple[str, bool] | None:
    """One change, looked for and taken back. None: the database refused it, or nothing was changed."""
    told: tuple[str, bool] | None = None
    try:
        with transaction.atomic():
            sql("SET LOCAL session_replication_role = replica")
            before, rows = whole(table), [row[0] for row in sql(f"SELECT ctid::text FROM {table} ORDER BY 1")]
            if len(rows) > 1:
                what = act(dice, table, rows)
                after = whole(table)
                if after != before:
                    told = (f"{table}: {what}", is_found(before, after))
            raise _Undo
    except _Undo:
        return told
    except Error:
        return None


def test_a_thousand_random_changes_are_all_found(record: list[Run]) -> None:
    dice, found, missed = random.Random(SEED), 0, []
    acts: list[Act] = [change, change, change, change, delete, double, swap, move]
    while found + len(missed) < MUTATIONS:
        told = attempt(dice, dice.choice(acts), dice.choice(ALL_TABLES))
        if told is not None:
            found += told[1]
            missed += [] if told[1] else [told[0]]
    assert missed == []
    assert [problem for each in verify_all() for problem in each.problems] == [], "and all were taken back"
