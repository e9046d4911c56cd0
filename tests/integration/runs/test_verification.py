from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import Group
from django.core.management import call_command
from django.db import Error, transaction

from approvals.models import Approval, Decision
from durableagents import Context, End
from ledger.actors import Actor
from ledger.append import acted
from ledger.errors import NotFound
from ledger.models import Event, Head
from ledger.verification.registers import verify_registers
from ledger.verification.runs import SLACK, ReadJournal, known_runs, verify, verify_all
from ledger.verification.runs import tables as every_table
from runs.models import Run, Wait
from tests.apps import offered
from tests.cases import each_case
from tests.integration.runs.conftest import new_stage
from tests.integration.runs.stage import Stage, fresh, in_thread
from tests.integration.runs.stories import answered, cancelled, everything, failed, through
from tests.tampering import run_sql, tamper, without_triggers
from tests.tiers import many, sample
from tests.world import Item, Notes, Outside, Toolbox, agent_of, only_for_now

# Statements that drop a table's unique indexes, with the constraints that own them.
DROPS = """
    SELECT CASE WHEN c.oid IS NULL THEN format('DROP INDEX %%s', i.indexrelid::regclass)
           ELSE format('ALTER TABLE %%s DROP CONSTRAINT %%I CASCADE', i.indrelid::regclass, c.conname) END
    FROM pg_index i LEFT JOIN pg_constraint c ON c.conindid = i.indexrelid AND c.contype IN ('p', 'u')
    WHERE i.indrelid = %s::regclass AND i.indisunique"""
# A thousand under `pytest --long`, in parts that fit a busy machine.
SEEDS, MUTATIONS = range(many(20, 1)), 50
# No other row depends on these, so their changes can't be found: docs/explanation/record-and-verification.md names
# them.
UNTOLD = {
    "ledger_head": {"lease", "is_on_hold"},
    "ledger_ledgerentry": {"id"},
    "ledger_overriderecord": {"id"},
    "ledger_actrecord": {"id"},
    "runs_run": {
        "ready_at",
        "is_woken",
        "is_solo",
        "priority",
        "tags",
        "trace_id",
        "updated_at",
        "time_up_at",
        "is_told",
        "is_passed_on",
        "lane",
    },
    "runs_wait": {"detail", "is_overdue"},
    "runs_signal": {"id", "sender_id"},
    "runs_message": {"id", "sender_id"},
    "runs_incident": {"id", "in_doubt", "replayed", "is_stopped", "last_sign_at", "detected_at"},
    "approvals_approval": {"why"},
    "approvals_decision": {"id"},
    "approvals_escalation": {"id"},
    "approvals_inquiry": {"id"},
    "approvals_delegation": {"id"},
    "approvals_standinggrant": {"id"},
    "approvals_standinguse": {"id"},
    "approvals_assertion": {"id"},
}
OF_NO_RUN = ["ledger_accountrecord", "ledger_register"]
# Deleted at any time, and verified by tests/integration/runs/test_cached_reads.py.
PASSING = "runs_cachedread"
# Only for runs that a ramp assigned: tests/contrib/releases/test_ramps.py changes these rows.
OF_RAMPS = "runs_rampstart"
# Apps outside the core check theirs: tests/contrib.
OF_APPS = "encryption_erasure"
tables = {table: column for table, column in every_table.items() if table not in (PASSING, OF_RAMPS, OF_APPS)}
ALL_TABLES = [*tables, "approvals_decision", *OF_NO_RUN]


# --- the record of some runs -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stories(django_db_setup: None, django_db_blocker: Any, postgres: Mapping[str, str]) -> Iterator[list[Run]]:
    with new_stage(django_db_blocker, postgres) as stage, only_for_now(), pytest.MonkeyPatch.context() as patch:
        for prepare in offered("stories", "prepare"):
            prepare(patch)
        yield made(stage, Toolbox(Outside()))


class _Undo(Exception):
    pass


@contextmanager
def taken_back() -> Iterator[None]:
    with suppress(_Undo), transaction.atomic():
        yield
        raise _Undo


@pytest.fixture
def record(stories: list[Run]) -> Iterator[list[Run]]:
    with taken_back():
        yield stories


def made(stage: Stage, tools: Toolbox) -> list[Run]:
    agent = everything(tools)
    found = [
        through(stage, tools, agent),
        through(stage, tools, agent),
        failed(stage, tools),
        cancelled(stage, tools),
        answered(stage, tools),
        *(make_run(stage, tools) for make_run in offered("stories", "make_run")),
    ]
    for host in ("a.example", "b.example", "c.example"):
        acted(
            "declare_dead",
            by=Actor("os", "ops", role="operator", auth="shell"),
            subject=host,
            justification="its power supply burnt",
        )
    for name in ("ada", "bob"):
        Group.objects.create(name=name).delete()
    assert [problem for run in found for problem in verify(run.id).problems] == [] == problems_of_lists()
    return found


def problems_of_lists() -> list[str]:
    return [problem for each in verify_registers() for problem in each.problems]


# --- changes to a row -----------------------------------------------------------------------------


def columns_of(table: str) -> dict[str, str]:
    rows = run_sql(
        "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = %s ORDER BY 1", table
    )
    return {name: kind for name, kind in rows if name not in UNTOLD.get(table, ())}


OTHER = {
    "text": "coalesce({c}, '') || 'x'",
    "character varying": "coalesce({c}, '') || 'x'",
    "bigint": "coalesce({c}, 0) + 1",
    "integer": "coalesce({c}, 0) + 1",
    "smallint": "coalesce({c}, 0) + 1",
    "numeric": "coalesce({c}, 0) + 1",
    "boolean": "NOT {c}",
    "timestamp with time zone": "coalesce({c}, clock_timestamp()) + interval '1 day'",
    "uuid": "gen_random_uuid()",
    "ARRAY": "coalesce({c}, '{{}}') || 'x'::text",
    "bytea": "coalesce({c}, ''::bytea) || '\\x00'::bytea",
    "jsonb": "'{{\"forged\": 1}}'::jsonb",
}
Act = Callable[[random.Random, str, list[Any]], str]


def change(dice: random.Random, table: str, rows: list[Any]) -> str:
    column, kind = dice.choice(sorted(columns_of(table).items()))
    value = "NULL" if dice.random() < 0.15 else OTHER[kind].format(c=f'"{column}"')
    run_sql(f'UPDATE {table} SET "{column}" = {value} WHERE ctid = %s::tid', dice.choice(rows))
    return f"{column} := {value}"


def delete(dice: random.Random, table: str, rows: list[Any]) -> str:
    run_sql(f"DELETE FROM {table} WHERE ctid = %s::tid", dice.choice(rows))
    return "delete"


def double(dice: random.Random, table: str, rows: list[Any]) -> str:
    types = dict(run_sql("SELECT column_name, data_type FROM information_schema.columns WHERE table_name = %s", table))
    key = "id" if "id" in types else "seq"
    fresh_key = "gen_random_uuid()" if types.get(key) == "uuid" else f"(SELECT max({key}) + 1 FROM {table})"
    named = list(types)
    values = ", ".join(fresh_key if c == key else f'"{c}"' for c in named)
    listed = ", ".join(f'"{c}"' for c in named)
    run_sql(f"INSERT INTO {table} ({listed}) SELECT {values} FROM {table} WHERE ctid = %s::tid", dice.choice(rows))
    return "double"


def swap(dice: random.Random, table: str, rows: list[Any]) -> str:
    """Swap one column of two rows, except times, which are only checked to the minute."""
    one, other = dice.sample(rows, 2)
    column = dice.choice(sorted(name for name, kind in columns_of(table).items() if not kind.startswith("timestamp")))
    run_sql(
        f'UPDATE {table} t SET "{column}" = s."{column}" FROM {table} s WHERE (t.ctid, s.ctid) '
        f"IN ((%s::tid, %s::tid), (%s::tid, %s::tid))",
        one,
        other,
        other,
        one,
    )
    return f"swap {column}"


def move(dice: random.Random, table: str, rows: list[Any]) -> str:
    column = tables.get(table, {"ledger_accountrecord": "subject", "ledger_register": "name"}.get(table, "approval_id"))
    target = dice.choice(run_sql(f'SELECT DISTINCT "{column}"::text FROM {table}'))[0]
    run_sql(f'UPDATE {table} SET "{column}" = %s WHERE ctid = %s::tid', target, dice.choice(rows))
    return f"move to {target}"


def whole(table: str) -> list[str]:
    return sorted(
        row[0]
        for row in run_sql(f"SELECT (to_jsonb(t) - %s::text[])::text FROM {table} t", sorted(UNTOLD.get(table, ())))
    )


def is_found(before: list[str], after: list[str]) -> bool:
    """Return whether every run of the changed rows fails verification."""
    rows = [json.loads(row) for row in {*before} ^ {*after} or {*after}]
    gates = dict(Approval.objects.values_list("id", "run_id"))
    rows = [row for row in rows if row.get("run_id", row) is not None]  # acts without a run
    runs = {
        UUID(row["run_id"])
        if "run_id" in row
        else gates.get(UUID(row["approval_id"]))
        if "approval_id" in row
        else UUID(row["id"])
        for row in rows
    }
    return any(does_not_hold(run_id) for run_id in runs if run_id is not None)


def does_not_hold(run_id: UUID) -> bool:
    try:
        return bool(verify(run_id).problems)
    except NotFound:
        return False


def attempt(dice: random.Random, act: Act, table: str) -> tuple[str, bool] | None:
    """Make one change, verify, roll back. Return None if the database refused it or nothing changed."""
    items: tuple[str, bool] | None = None
    try:
        with without_triggers():
            before, rows = whole(table), [row[0] for row in run_sql(f"SELECT ctid::text FROM {table} ORDER BY 1")]
            if len(rows) > 1:
                what = act(dice, table, rows)
                after = whole(table)
                if after != before:
                    items = (
                        f"{table}: {what}",
                        bool(problems_of_lists()) or (table not in OF_NO_RUN and is_found(before, after)),
                    )
            raise _Undo
    except _Undo:
        return items
    except Error:
        return None


@each_case("back", [1, 3600])
def test_a_clock_that_is_set_back_between_two_steps_is_held_against_no_run(back: int) -> None:
    """Or a server that takes over and is behind."""
    first, moment, second = datetime(2026, 1, 1, 12, tzinfo=UTC), timedelta(milliseconds=1), timedelta(seconds=1)
    journal = ReadJournal(uuid4(), at=[first, first - timedelta(seconds=back)])
    assert journal.is_just_after(1, first + moment) and journal.is_just_after(2, journal.at[1] + moment)
    assert not journal.is_just_after(1, first - moment) and not journal.is_just_after(1, first + 2 * SLACK)
    sound = ReadJournal(uuid4(), at=[first, first + second])
    assert sound.is_just_after(1, first + moment) and sound.is_just_after(2, first + 2 * second)
    assert not any(sound.is_just_after(*row) for row in ((1, first + 2 * second), (2, first + moment), (3, first)))


def test_a_run_that_is_being_driven_can_be_verified_at_any_point(stage: Stage, tools: Toolbox) -> None:
    found: list[list[str]] = []

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.order, Item(name="desk"))
        await ctx.call(tools.pay, Item(name="po", amount=9000))
        return End("well")

    run = stage.start(agent_of(node, tools=tools.all()))
    stage.at = lambda point, tool: found.append(in_thread(lambda: verify(run.id).problems))
    assert stage.drive() == "parked"
    stage.decide(run)
    assert stage.drive() == "completed"
    assert len(found) > 5 and not any(found)


# --- deleted rows ---------------------------------------------------------------------------------


def of_table(record: list[Run], table: str) -> Run:
    """Return the first run with rows in this table."""
    statement = f"SELECT 1 FROM {table} WHERE {tables[table]} = %s"
    return next(run for run in record if run_sql(statement, run.id))


def test_a_table_emptied_of_a_run_is_an_alarm_and_not_an_unknown_run(record: list[Run]) -> None:
    for table, column in sample(tables.items(), 2):
        run = of_table(record, table)
        with taken_back():
            tamper(f"DELETE FROM {table} WHERE {column} = %s", run.id)
            assert verify(run.id).problems != [], table
            assert [each.run_id for each in verify_all() if each.problems] == [run.id], table


def test_each_break_of_the_journal_is_named(record: list[Run]) -> None:
    run = record[0].id
    last = (
        "DELETE FROM ledger_event e USING ledger_head h WHERE h.run_id = %s AND e.run_id = h.run_id AND e.seq = h.seq"
    )
    breaks = {
        "DELETE FROM ledger_event WHERE run_id = %s AND seq = 3": "event 3 is missing: the next one found is 4",
        "UPDATE ledger_event SET prev_hash = sha256('x') WHERE run_id = %s AND seq = 3": "event 3 does not link",
        last: "the journal ends at event",
        "UPDATE ledger_event SET clear = clear || ' '::bytea WHERE run_id = %s AND seq = 3": "event 3 was changed",
        "UPDATE ledger_event SET slot = 'x' WHERE run_id = %s AND seq = 3": "event 3: its columns say",
        "UPDATE ledger_event SET code = sha256('x') WHERE run_id = %s AND seq = 3": "not written with this",
        "UPDATE ledger_head SET chain = sha256('x') WHERE run_id = %s": "hash differs from the one in the head",
    }
    for statement, named in breaks.items():
        with taken_back():
            tamper(statement, run)
            assert any(named in problem for problem in verify(run).problems), (statement, verify(run).problems)


def test_doubled_row_is_named_where_no_index_keeps_it_out(record: list[Run]) -> None:
    """The superuser drops the unique indexes first."""
    doubled = {
        "ledger_overriderecord": "the override record on event",
        "ledger_actrecord": "the record of act",
        "runs_signal": "the row of signal",
        "runs_message": "the row of message",
        "runs_attribute": "the row of attribute",
        "runs_incident": "the incident at event",
        "approvals_decision": "the decision on approval",
        "approvals_escalation": "the escalation of approval",
        "approvals_inquiry": "the inquiry",
        "approvals_delegation": "the delegation",
    }
    for table, named in sample(doubled.items(), 3):
        with taken_back():
            for (statement,) in run_sql(DROPS, table):
                run_sql(statement)
            of = tables.get(table, "approval_id")
            tamper(f"INSERT INTO {table} SELECT * FROM {table} WHERE {of} IS NOT NULL LIMIT 1")
            found = [problem for each in verify_all() for problem in each.problems]
            assert any(problem.startswith(named) and "more than once" in problem for problem in found), (table, found)


def test_one_table_that_still_tells_of_a_run_is_enough(record: list[Run]) -> None:
    for kept in tables:
        run = of_table(record, kept)
        with taken_back():
            for table, column in tables.items():
                if table != kept:
                    tamper(f"DELETE FROM {table} WHERE {column} = %s", run.id)
            assert run.id in known_runs(None, 100) and verify(run.id).problems != [], kept
            tamper(f"DELETE FROM {kept} WHERE {tables[kept]} = %s", run.id)
            with pytest.raises(NotFound):
                verify(run.id)


def test_rewriting_an_approvers_name_with_chain_and_head_recomputed_is_found(record: list[Run]) -> None:
    """The superuser recomputes everything that needs no key."""
    from ledger.chain import body_hash, link_hash

    run, prev = record[0], None
    for row in Event.objects.filter(run_id=run.id).order_by("seq"):
        clear = bytes(row.clear).replace(b"user:fiona", b"user:frank")
        prev = bytes(row.prev_hash) if prev is None else prev
        link = link_hash(
            prev, row.seq, row.epoch, row.at, body_hash(clear, None if row.sealed is None else bytes(row.sealed))
        )
        tamper(
            "UPDATE ledger_event SET clear = %s, prev_hash = %s, hash = %s WHERE run_id = %s AND seq = %s",
            clear,
            prev,
            link,
            run.id,
            row.seq,
        )
        prev = link
    tamper("UPDATE ledger_head SET chain = %s WHERE run_id = %s", prev, run.id)
    tamper("UPDATE approvals_decision SET by = 'user:frank' WHERE by = 'user:fiona'")
    tamper("UPDATE runs_wait SET resolved_by = 'user:frank' WHERE resolved_by = 'user:fiona'")
    found = verify(run.id).problems
    assert any("ApprovalDecided, was not written with this installation's key" in problem for problem in found)
    assert any(problem.startswith("decision ") for problem in found)


def test_someone_who_withdrew_a_wait_took_part_in_the_run(record: list[Run]) -> None:
    withdrawn = Wait.objects.filter(run__in=record, resolution="withdrawn")
    runs = {wait.run_id for wait in withdrawn}
    assert runs, "some run ended while something was waited for"
    withdrawn.update(resolved_by="user:stranger")
    assert {run.id for run in record if verify(run.id).problems} == runs


def test_taking_an_event_away_and_closing_the_gap_with_everything_recomputed_is_found(record: list[Run]) -> None:
    from ledger.chain import body_hash, link_hash

    run = record[0]
    gone = Event.objects.get(run_id=run.id, kind="ValueRead").seq
    prev = bytes(Event.objects.get(run_id=run.id, seq=gone).prev_hash)
    tamper("DELETE FROM ledger_event WHERE run_id = %s AND seq = %s", run.id, gone)
    for row in Event.objects.filter(run_id=run.id, seq__gt=gone).order_by("seq"):
        body = body_hash(bytes(row.clear), None if row.sealed is None else bytes(row.sealed))
        link = link_hash(prev, row.seq - 1, row.epoch, row.at, body)
        tamper(
            "UPDATE ledger_event SET seq = seq - 1, prev_hash = %s, hash = %s WHERE run_id = %s AND seq = %s",
            prev,
            link,
            run.id,
            row.seq,
        )
        prev = link
    tamper("UPDATE ledger_head SET seq = seq - 1, chain = %s WHERE run_id = %s", prev, run.id)
    assert any("not for its place in this run" in problem for problem in verify(run.id, using=()).problems)


# --- from a shell ---------------------------------------------------------------------------------


def test_the_command_says_that_all_holds(record: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    call_command("ledger", "verify", "--all")
    out = capsys.readouterr().out
    assert "\n8 run(s), " in out and out.endswith(" 0 problem(s)\n")


def test_command_prints_each_problem_and_fails(record: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    Wait.objects.filter(run=record[0], kind="approval").update(resolved_by="user:\nnobody")
    with pytest.raises(SystemExit) as ended:
        call_command("ledger", "verify", str(record[0].id))
    lines = capsys.readouterr().out.splitlines()
    assert (
        ended.value.code == 1 and len(lines) == 3 and all(line.startswith(f"{record[0].id}: ") for line in lines[:-1])
    )


@pytest.mark.parametrize("run", ["nonsense", str(uuid4())])
def test_the_command_refuses_what_it_can_not_check(
    record: list[Run], run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        call_command("ledger", "verify", run)
    err = capsys.readouterr().err
    assert ended.value.code == 2 and err.count("\n") == 1 and run[:8] in err


def test_every_decision_and_head_of_the_stories_was_looked_at(record: list[Run]) -> None:
    """Otherwise nothing is proven about tables without rows."""
    assert [table for table in ALL_TABLES if not run_sql(f"SELECT 1 FROM {table} LIMIT 1")] == []
    assert Decision.objects.count() == 10 and Head.objects.count() == 8 and fresh(record[0]).state == "waiting_event"


# --- anything at all ---


@pytest.mark.parametrize("seed", SEEDS)
def test_random_changes_are_all_found(record: list[Run], seed: int) -> None:
    dice, found, missed = random.Random(seed), 0, []
    acts: list[Act] = [change, change, change, change, delete, double, swap, move]
    while found + len(missed) < MUTATIONS:
        result = attempt(dice, dice.choice(acts), dice.choice(ALL_TABLES))
        if result is not None:
            found += result[1]
            missed += [] if result[1] else [result[0]]
    assert missed == []
    assert [problem for each in verify_all() for problem in each.problems] == [] == problems_of_lists(), (
        "and all were taken back"
    )
