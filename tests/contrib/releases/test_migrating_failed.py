from __future__ import annotations

from typing import Any

import pytest

from durableagents import Agent, BusinessFailure, Context, End
from durableagents.contrib.releases import migrating, previewing
from durableagents.contrib.releases.migrating import MovedRow
from durableagents.contrib.releases.migration_requests import MigrateBody, MigrationPreviewBody
from ledger import events as e
from ledger.errors import Forbidden
from runs.engine.agents import registry
from runs.models import Run
from runs.services import lifecycle
from tests.contrib.releases.moving import NAME
from tests.contrib.releases.test_migrating import names, sound
from tests.contrib.releases.test_migrating_batches import lost_on_commit
from tests.integration.runs.stage import (
    Stage,
    announce,
    at_once,
    dump,
    events,
    follow_actions,
    fresh,
    kinds,
    output,
    overrides,
)
from tests.world import FIONA, OLGA, SHOP, Notes, Outside, Toolbox, agent_of

NODES = {"pays": "pays"}
WHY = "the old one is wrong"


def version(tools: Toolbox, number: str, *, is_broken: bool, first: str = "first", **more: Any) -> Agent:
    async def pays(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.order, {"name": first})
        if is_broken:
            raise ZeroDivisionError("the fee")
        await ctx.call(tools.order, {"name": "second"})
        return End(number)

    return agent_of(pays, tools=tools.all(), name=NAME, version=number, on_failure="leave", **more)


@pytest.fixture
def failed(stage: Stage, tools: Toolbox) -> Run:
    run = stage.start(version(tools, "1.0.0", is_broken=True))
    assert stage.settle(run) == "failed"
    return run


def asked(*runs: Run, retry: bool = True, **more: Any) -> dict[str, Any]:
    ids = [run.pk for run in runs] or None
    return {"from_version": "1.0.0", "to_version": "2.0.0", "nodes": NODES, "runs": ids, "retry": retry} | more


def seen(*runs: Run, **more: Any) -> MovedRow:
    (found,) = migrating.preview(NAME, MigrationPreviewBody.model_validate(asked(*runs, **more)))
    return found


def moved(*runs: Run, by: Any = OLGA, **more: Any) -> MovedRow:
    body = MigrateBody.model_validate(asked(*runs, **more) | {"justification": WHY})
    (found,) = migrating.migrate(NAME, body, by=by)
    return found


def test_moved_failed_run_repeats_nothing(stage: Stage, tools: Toolbox, outside: Outside, failed: Run) -> None:
    version(tools, "2.0.0", is_broken=False)
    before = dump()
    found = seen(failed)
    assert (found.how, found.is_moved, found.is_retried) == ("replayed", False, True)
    assert found.answered == ["0.1/1"] and "order" in found.repeated[0] and dump() == before, "a look changes nothing"
    done = moved(failed)
    assert (done.how, done.is_moved, done.is_retried) == ("replayed", True, True)
    row = fresh(failed)
    assert (row.state, row.graph_id, row.generation, row.ended_at) == ("running", "mover@2.0.0", 1, None)
    assert kinds(failed)[-2:] == ["RunRetried", "RunMigrated"]
    assert [(x.action, x.justification) for x in overrides(failed)] == [("retry", WHY), ("migrate", WHY)]
    sound(failed)
    assert stage.settle(failed) == "completed" and output(failed) == "2.0.0" and names(outside) == ["first", "second"]
    sound(failed)


def test_without_the_word_it_stays_where_it_is(tools: Toolbox, failed: Run) -> None:
    version(tools, "2.0.0", is_broken=False)
    before = dump()
    for found in (seen(failed, retry=False), moved(failed, retry=False)):
        assert (found.code, found.is_retried) == ("ended", False) and "`retry`" in found.why
    assert dump() == before


def test_what_would_be_done_twice_keeps_it_failed(tools: Toolbox, outside: Outside, failed: Run) -> None:
    version(tools, "2.0.0", is_broken=False, first="another")
    before = dump()
    for found in (seen(failed), moved(failed)):
        assert (found.how, found.code) == ("refused", "would_repeat") and "order at 0.1/1, which was sent" in found.why
    assert dump() == before and fresh(failed).state == "failed" and names(outside) == ["first"]


def test_a_call_of_unknown_outcome_is_refused_by_name(stage: Stage, tools: Toolbox) -> None:
    async def pays(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.mail, {"name": "a"})
        return End()

    run = stage.start(agent_of(pays, tools=tools.all(), name=NAME, version="1.0.0", on_failure="leave"))
    agent_of(pays, tools=tools.all(), name=NAME, version="2.0.0", on_failure="leave")
    stage.kill_at = [("CP4", "mail")]
    stage.settle(run)
    stage.reconcile(run, "fail", sender_is_gone=True)
    assert fresh(run).state == "failed"
    before = dump()
    for found in (seen(run), moved(run)):
        assert (found.how, found.code) == ("refused", "in_doubt") and "mail at 0.1/1" in found.why
    assert dump() == before and fresh(run).state == "failed"
    sound(run)


def test_a_definite_failure_is_tried_again_by_the_new_version(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    async def pays(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.order, {"name": "first"})
        await ctx.call(tools.order, {"name": "late"})
        return End("done")

    for number in ("1.0.0", "2.0.0"):
        agent_of(pays, tools=tools.all(), name=NAME, version=number, on_failure="leave")
    outside.trouble("order", lambda call: None, BusinessFailure("no credit", code="no_credit"))
    run = lifecycle.start(f"{NAME}@1.0.0", {"text": "x"}, by=SHOP)
    assert stage.settle(run) == "failed" and isinstance(events(run)[-1], e.RunFailed)
    assert moved(run).how == "replayed" and events(run, e.RunRetried)[0].reopened == ["0.1/2"]
    assert stage.settle(run) == "completed" and names(outside).count("first") == 1 and "late" in names(outside)
    sound(run)


def test_the_old_version_s_code_may_be_gone_or_be_another(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    version(tools, "1.0.0", is_broken=True)
    announce(stage)
    one, two = (lifecycle.start(f"{NAME}@1.0.0", {"text": "x"}, by=SHOP) for _ in range(2))
    assert [stage.settle(run) for run in (one, two)] == ["failed", "failed"]
    version(tools, "2.0.0", is_broken=False)
    registry.remove(f"{NAME}@1.0.0")
    assert (seen(one).how, moved(one).is_moved) == ("replayed", True)
    version(tools, "1.0.0", is_broken=True, first="another")
    assert (seen(two).how, moved(two).is_moved) == ("replayed", True)
    assert [stage.settle(run) for run in (one, two)] == ["completed", "completed"]
    assert names(outside) == ["first", "first", "second", "second"]


def test_lost_commit_is_reported_as_done(tools: Toolbox, failed: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    version(tools, "2.0.0", is_broken=False)
    found = seen(failed)
    follow_actions(monkeypatch, lost_on_commit)
    assert moved(failed) == found.model_copy(update={"is_moved": True}) and found.is_retried and found.answered
    assert kinds(failed)[-2:] == ["RunRetried", "RunMigrated"]
    sound(failed)


def test_only_an_operator_may(tools: Toolbox, failed: Run) -> None:
    version(tools, "2.0.0", is_broken=False)
    for by in (FIONA, SHOP):
        with pytest.raises(Forbidden):
            moved(failed, by=by)
    assert fresh(failed).state == "failed"


def test_a_retry_and_a_move_at_once_leave_one_of_both(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = stage.start(version(tools, "1.0.0", is_broken=True))
    assert stage.settle(run) == "failed"
    version(tools, "2.0.0", is_broken=False)
    at_once(*(lambda: moved(run) for _ in range(3)), lambda: lifecycle.retry(run.pk, by=OLGA, justification=WHY))
    assert kinds(run).count("RunRetried") == 1 and kinds(run).count("RunMigrated") <= 1
    sound(run)
    stage.settle(run)
    assert names(outside).count("first") == 1


def test_changes_before_the_lock_are_seen(tools: Toolbox, failed: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    version(tools, "2.0.0", is_broken=False)
    plain, count = previewing.preview_run, [0]

    def late(run_id: Any, moving: Any) -> Any:
        found = plain(run_id, moving)
        count[0] += 1
        if count[0] == 1:
            lifecycle.retry(run_id, by=OLGA, justification="somebody was faster")
        return found

    monkeypatch.setattr(migrating, "preview_run", late)
    found = moved(failed)
    assert count[0] == 2 and found.is_moved and not found.is_retried
    assert kinds(failed).count("RunRetried") == 1
    sound(failed)
