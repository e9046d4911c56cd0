from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction

from durableagents import Migration
from durableagents.contrib.releases import migrating
from durableagents.contrib.releases.migrating import MovedRow
from durableagents.contrib.releases.migration_requests import MigrateBody, MigrationPreviewBody
from runs.connections import dsn
from runs.models import Run
from tests.contrib.releases.moving import NAME, NODES, asked, old, renamed
from tests.contrib.releases.test_migrating import parked, sound
from tests.integration.runs.stage import Stage, at_once, dump, follow_actions, fresh, kinds
from tests.world import OLGA, Toolbox

WHY = {"justification": "the old one is wrong"}


@pytest.fixture
def three(stage: Stage, tools: Toolbox) -> list[Run]:
    agent = old(tools)
    return [parked(stage, agent) for _ in range(3)]


def move(runs: list[Run]) -> list[MovedRow]:
    return migrating.migrate(NAME, MigrateBody.model_validate(asked(*runs) | WHY), by=OLGA)


def told(found: list[MovedRow]) -> list[tuple[bool, str]]:
    return [(one.is_moved, one.code) for one in found]


def own_backend() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def end(backend: int) -> None:
    with psycopg.connect(dsn(name="an administrator"), autocommit=True) as link:
        link.execute("SELECT pg_terminate_backend(%s, 5000)", [backend])


def lost_on_commit(action: str, run: Run) -> None:
    """Hook of actions: the migration commits, and its answer is lost."""

    def lost() -> None:
        end(own_backend())
        own_backend()

    if action == "migrate":
        transaction.on_commit(lost)


def test_a_run_that_somebody_holds_is_busy_and_the_others_are_moved(three: list[Run], tools: Toolbox) -> None:
    renamed(tools)
    with psycopg.connect(dsn(name="somebody else")) as holder:
        holder.execute("SELECT 1 FROM ledger_head WHERE run_id = %s FOR UPDATE", [three[1].id])
        found = move(three)
    assert told(found) == [(True, ""), (False, "busy"), (True, "")]
    assert found[1].how == "refused" and "lock timeout" in found[1].why and "nothing was done" in found[1].why
    assert [fresh(run).generation for run in three] == [1, 0, 1]
    assert told(move(three)) == [(False, "already"), (True, ""), (False, "already")]
    for run in three:
        assert kinds(run).count("RunMigrated") == 1
        sound(run)


# Runs as soon as another session waits for this one's locks. In the server, because a waiter checks for deadlocks only
# once.
_THEN_HEAD = """
    DO $$ BEGIN
        WHILE NOT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid)))
        LOOP PERFORM pg_sleep(0.01); END LOOP;
        PERFORM 1 FROM ledger_head WHERE run_id = '{}' FOR UPDATE;
    END $$"""


def test_a_deadlock_ends_one_run_s_move_alone(three: list[Run], tools: Toolbox) -> None:
    renamed(tools)
    answers: list[Any] = []
    moving = threading.Thread(target=lambda: answers.extend(at_once(lambda: move(three))))
    with psycopg.connect(dsn(name="somebody else")) as holder:
        holder.execute(
            "SET deadlock_timeout = '60s'"
        )  # so that the migration detects the deadlock; otherwise either session could
        holder.execute("SELECT 1 FROM runs_run WHERE id = %s FOR UPDATE", [three[1].id])
        moving.start()
        holder.execute(_THEN_HEAD.format(three[1].id))
    moving.join(60)
    (found,) = answers
    assert told(found) == [(True, ""), (False, "busy"), (True, "")] and "deadlock" in found[1].why
    for run in three:
        sound(run)


@pytest.fixture
def lost_in_the_look(three: list[Run], tools: Toolbox) -> None:
    """End the session of the migrating person while the second run is previewed."""
    backend, tries = own_backend(), [0]

    def state(old_state: dict[str, Any]) -> dict[str, Any]:
        tries[0] += 1
        if tries[0] == 2:
            end(backend)
        return old_state

    renamed(tools, migrations=[Migration("1.0.0", NODES, state)])


@pytest.mark.usefixtures("lost_in_the_look")
def test_a_connection_that_is_lost_says_what_was_done_and_what_was_not_tried(three: list[Run]) -> None:
    found = move(three)
    assert told(found) == [(True, ""), (False, "lost"), (False, "not_tried")]
    assert all("try again" in one.why for one in found[1:])
    assert [fresh(run).generation for run in three] == [1, 0, 0]
    assert told(move(three)) == [(False, "already"), (True, ""), (True, "")]
    for run in three:
        sound(run)


@pytest.mark.usefixtures("lost_in_the_look")
def test_a_look_whose_connection_is_lost_goes_on_with_nothing(three: list[Run]) -> None:
    before = dump()
    found = migrating.preview(NAME, MigrationPreviewBody.model_validate(asked(*three)))
    # The second preview reads nothing more after its try; the third finds the connection gone.
    assert told(found) == [(False, ""), (False, ""), (False, "lost")]
    assert dump() == before and [one.how for one in found] == ["replayed", "replayed", "refused"]


def test_lost_commit_is_reported_as_done(three: list[Run], tools: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    renamed(tools)

    def lose(action: str, run: Run) -> None:
        if run.pk == three[1].pk:
            lost_on_commit(action, run)

    follow_actions(monkeypatch, lose)
    found = move(three)
    assert told(found) == [(True, ""), (True, ""), (False, "not_tried")]
    assert (found[1].node, found[1].to_node, found[1].answered) == ("hold", "wait_here", ["0.2/1"])
    assert [fresh(run).generation for run in three] == [1, 1, 0]
    for run in three:
        sound(run)


def test_real_refusal_is_not_hidden(three: list[Run], tools: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug in the second migration is no reason to repeat it."""
    renamed(tools)

    def wrong(action: str, run: Run) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 / (%s::int)", [0 if run.pk == three[1].pk else 1])

    follow_actions(monkeypatch, wrong)
    with pytest.raises(Exception, match="division by zero"):
        move(three)
    assert [fresh(run).generation for run in three] == [1, 0, 0]
    sound(three[1])
