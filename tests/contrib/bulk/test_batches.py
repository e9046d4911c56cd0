from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client

from durableagents import Context, End
from durableagents.contrib.bulk import services as acts
from durableagents.contrib.bulk import working
from durableagents.contrib.bulk.models import Batch
from durableagents.contrib.bulk.queries import choose, progress_of
from durableagents.contrib.bulk.services import BatchBody
from ledger.actors import Actor
from ledger.errors import Forbidden, InvalidInput, NotFound
from ledger.models import ActRecord, OverrideRecord
from runs.background import duties
from runs.models import Run
from runs.services import lifecycle
from tests.integration.api.conftest import person
from tests.integration.runs.stage import Stage, at_once, calling, dump, fresh, overrides, problems
from tests.tampering import tamper
from tests.world import SHOP, Killed, Notes, Toolbox, agent_of

pytestmark = pytest.mark.usefixtures("stage")
WHY = "the supplier is down"


def operator(name: str = "olga", *roles: str) -> tuple[Actor, frozenset[str]]:
    held = roles or ("operator",)
    user = person(name, *held)
    return Actor("user", name, role=held[0], auth="session", address="192.0.2.2", person=user.pk), frozenset(held)


def sleeper(tools: Toolbox) -> Any:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.sleep(3600)
        return End("well")

    return agent_of(node, tools=tools.all())


def buyer(tools: Toolbox) -> Any:
    return calling(tools, "pay", "po", 5000)


def many(agent: Any, number: int, by: Actor = SHOP) -> list[UUID]:
    return [lifecycle.start(agent.graph_id, {}, by=by).pk for _ in range(number)]


def ask(who: tuple[Actor, frozenset[str]], action: str = "pause", **more: Any) -> Batch:
    body = BatchBody.model_validate({"action": action, "justification": WHY} | more)
    ids, how = choose(body)
    return acts.create(body, ids, how, by=who[0], held=who[1])


def outcomes(batch: Batch) -> dict[str, int]:
    return dict(Counter(batch.items.values_list("outcome", flat=True)))


def finish(batch: Batch) -> Batch:
    while working.work(60):
        pass
    return Batch.objects.get(pk=batch.pk)


# --- the main case ----------------------------------------------------------------------------------------------------


def test_128_runs_are_paused_by_one_act_with_a_record_each_of_the_same_batch(tools: Toolbox) -> None:
    agent, olga = sleeper(tools), operator()
    ids = many(agent, 128)
    batch = ask(olga, filter={"agent": agent.name})
    late = many(agent, 2)  # they match, but came after the selection was frozen
    assert batch.total == 128 and batch.state == "running" and batch.forecast["may"] == 128
    done = finish(batch)
    assert done.state == "done" and outcomes(done) == {"done": 128}
    assert set(Run.objects.filter(state="paused").values_list("id", flat=True)) == set(ids)
    assert {str(fresh(Run(pk=one)).state) for one in late} == {"pending"}
    records = OverrideRecord.objects.all()
    assert Counter(record.run_id for record in records) == Counter(ids), "one each"
    assert {record.after["batch"] for record in records} == {str(batch.pk)}
    assert {(r.by, r.role, r.person, r.justification) for r in records} == {
        ("user:olga", "operator", olga[0].person, WHY)
    }
    (act,) = ActRecord.objects.filter(action="bulk")
    assert act.after["batch"] == str(batch.pk) and act.after["runs"] == 128 and act.justification == WHY
    assert problems(Run(pk=ids[0])) == [] and not working.work(1)


def test_what_may_not_be_done_is_named_and_the_rest_is_done(stage: Stage, tools: Toolbox) -> None:
    agent, olga = sleeper(tools), operator()
    first, second, third, paused = many(agent, 4)
    lifecycle.cancel(second, by=olga[0], justification=WHY)
    lifecycle.pause(paused, by=olga[0], justification=WHY)
    nowhere = uuid4()
    batch = ask(olga, runs=[str(one) for one in (first, second, nowhere, third, paused)])
    assert batch.forecast["may"] == 2
    assert batch.forecast["states"] == {"pending": 2, "cancelled": 1, "paused": 1, "unknown": 1}
    fields = {one["why"]: one["some"] for one in batch.forecast["refused"]}
    finish(batch)
    rows = {row.run_id: row for row in batch.items.all()}
    assert [rows[one].outcome for one in (first, third)] == ["done", "done"]
    assert [rows[one].outcome for one in (second, nowhere, paused)] == ["refused", "refused", "refused"]
    for one in (second, paused):  # refused for their states
        assert rows[one].code == "illegal-state" and fields[rows[one].why] == [str(one)], "in the words foretold"
    assert "The run is already paused." in rows[paused].why
    assert rows[nowhere].code == "not-found"


def test_an_approvers_and_an_integrators_act_is_limited_to_what_they_may(stage: Stage, tools: Toolbox) -> None:
    shop = operator("shop", "integrator")
    mine, others = many(sleeper(tools), 2, by=replace(SHOP, person=shop[0].person)), many(sleeper(tools), 2)
    waiting = many(buyer(tools), 2)
    while stage.drive() != "idle":
        pass
    assert {str(fresh(Run(pk=one)).state) for one in waiting} == {"waiting_human"}
    everything = [str(one) for one in (*mine, *others, *waiting)]
    fiona = operator("fiona", "approver_finance")
    batch = ask(fiona, runs=everything)
    assert batch.forecast["may"] == 2
    finish(batch)
    assert {row.run_id for row in batch.items.filter(outcome="done")} == set(waiting)
    assert {row.code for row in batch.items.exclude(outcome="done")} == {"forbidden"}
    batch = ask(shop, runs=everything)
    finish(batch)
    assert {row.run_id for row in batch.items.filter(outcome="done")} == set(mine)
    for who in (fiona, shop):
        for action in ("retry", "priority"):
            with pytest.raises(Forbidden):
                ask(who, action, runs=everything, **({"priority": 3} if action == "priority" else {}))


def test_what_each_act_says_reaches_each_run(stage: Stage, tools: Toolbox) -> None:
    olga, ids = operator(), many(sleeper(tools), 3)
    finish(ask(olga, "priority", runs=[str(one) for one in ids], priority=7))
    assert set(Run.objects.values_list("priority", flat=True)) == {7}
    assert ActRecord.objects.filter(action="priority", after__has_key="batch").count() == 3
    finish(ask(olga, runs=[str(one) for one in ids]))
    finish(ask(olga, "resume", runs=[str(one) for one in ids]))
    assert set(Run.objects.values_list("state", flat=True)) == {"pending"}
    finish(ask(olga, "cancel", runs=[str(one) for one in ids], effects="leave"))
    assert set(Run.objects.values_list("state", flat=True)) == {"cancelled"}
    assert [record.action for record in overrides(Run(pk=ids[0]))] == ["pause", "resume", "cancel"]


def test_failed_runs_are_retried_together(stage: Stage, tools: Toolbox) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        raise RuntimeError("no luck")

    agent, olga = agent_of(node, tools=tools.all()), operator()
    ids = many(agent, 3)
    while stage.drive() != "idle":
        pass
    batch = finish(ask(olga, "retry", filter={"state": "failed", "agent": agent.name}))
    assert outcomes(batch) == {"done": 3} and set(Run.objects.values_list("state", flat=True)) == {"running"}
    assert len(ids) == batch.total


# --- preview, stopping ------------------------------------------------------------------------------------------------


def test_a_draft_does_nothing_until_it_is_started_and_is_started_once(tools: Toolbox) -> None:
    olga, ids = operator(), many(sleeper(tools), 2)
    batch = ask(olga, runs=[str(one) for one in ids], start=False)
    assert batch.state == "draft" and not working.work(1) and outcomes(batch) == {"": 2}
    found = at_once(*[partial(acts.start, batch.pk, by=olga[0], held=olga[1], justification=WHY) for _ in range(8)])
    assert sum(isinstance(one, Batch) for one in found) == 1
    assert sum(isinstance(one, acts.IllegalBatchState) for one in found) == 7
    assert outcomes(finish(batch)) == {"done": 2}
    assert ActRecord.objects.filter(action="bulk_start").count() == 1


def test_page_starts_and_stops_a_batch_and_keeps_a_refused_form(tools: Toolbox) -> None:
    olga, ids = operator(), many(sleeper(tools), 2)
    batch, client = ask(olga, runs=[str(one) for one in ids], start=False), Client()
    client.force_login(User.objects.get(username="olga"))
    page = f"/bulk/{batch.pk}"
    refused = client.post(f"{page}/starts", {"justification": "x" * 5000})
    assert refused.status_code == 422 and "x" * 5000 in refused.content.decode()
    for act in ("starts", "stops"):
        answer = client.post(f"{page}/{act}", {"justification": WHY})
        assert (answer.status_code, answer.headers["Location"]) == (302, page)
    assert Batch.objects.get(pk=batch.pk).state == "stopped"
    assert client.get(f"{page}/starts").status_code == 302  # led to the page
    assert client.post(f"/bulk/{uuid4()}/stops", {"justification": WHY}).status_code == 404


def test_when_a_stop_returns_nothing_more_is_done(tools: Toolbox) -> None:
    olga, ids = operator(), many(sleeper(tools), 5)
    batch = ask(olga, runs=[str(one) for one in ids])
    assert working._do_next(batch, []) and working._do_next(batch, [])
    stopped = acts.stop(batch.pk, by=olga[0], held=olga[1], justification="enough")
    assert stopped.state == "stopped" and not working._do_next(batch, []) and not working.work(1)
    assert outcomes(batch) == {"done": 2, "": 3} and progress_of([stopped])[0].left == 3
    assert Run.objects.filter(state="paused").count() == 2
    for act in (acts.stop, acts.start):
        with pytest.raises(acts.IllegalBatchState):
            act(batch.pk, by=olga[0], held=olga[1], justification=WHY)
    (record,) = ActRecord.objects.filter(action="bulk_stop")
    assert record.after["left"] == 3


def test_others_neither_see_nor_steer_it(tools: Toolbox) -> None:
    fiona, ina, olga = operator("fiona", "approver_finance"), operator("ina", "integrator"), operator()
    batch = ask(fiona, runs=[str(one) for one in many(sleeper(tools), 1)], start=False)
    for act in (acts.start, acts.stop):
        with pytest.raises(NotFound):
            act(batch.pk, by=ina[0], held=ina[1], justification=WHY)
    assert acts.find(batch.pk, person=olga[0].person, held=olga[1]) == batch
    assert acts.find(batch.pk, person=fiona[0].person, held=fiona[1]) == batch


def test_workers_find_batches_by_their_periodic_job(stage: Stage, tools: Toolbox) -> None:
    olga, ids = operator(), many(sleeper(tools), 3)
    batch, duty = ask(olga, runs=[str(one) for one in ids]), duties.known["bulk"]
    for is_due in (True, False):
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {duty.is_due}")
            assert cursor.fetchone() == (is_due,)
        if is_due:
            duty.act()
    assert outcomes(batch) == {"done": 3} and Batch.objects.get(pk=batch.pk).state == "done"


def test_verification_holds_records_and_batches_against_each_other(tools: Toolbox) -> None:
    olga, (first, second) = operator(), many(sleeper(tools), 2)
    batch = finish(ask(olga, runs=[str(first), str(second)]))
    assert problems(Run(pk=first)) == []
    tamper("UPDATE runs_batchitem SET outcome = 'refused' WHERE run_id = %s", first)
    assert any("differ on whether it acted on this run" in problem for problem in problems(Run(pk=first)))
    tamper("DELETE FROM ledger_overriderecord WHERE run_id = %s", second)
    assert any("no override record shows it" in problem for problem in problems(Run(pk=second)))
    tamper("UPDATE runs_batch SET justification = 'another' WHERE id = %s", batch.pk)
    assert any("was written or changed outside the application" in problem for problem in problems(Run(pk=first)))


# --- attacked ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nth", [1, 2, 5])
def test_next_worker_completes_a_batch_cut_short(tools: Toolbox, monkeypatch: pytest.MonkeyPatch, nth: int) -> None:
    olga, ids = operator(), many(sleeper(tools), 5)
    batch, calls = ask(olga, runs=[str(one) for one in ids]), [0]

    def dying(*args: Any, **more: Any) -> Run:
        done = lifecycle.pause(*args, **more)
        calls[0] += 1
        if calls[0] == nth:
            raise Killed("after the act, before its outcome")
        return done

    with monkeypatch.context() as patched:
        patched.setattr(working, "OPERATIONS", {"pause": dying})
        with pytest.raises(Killed):
            working.work(60)
    assert outcomes(batch).get("done", 0) == nth - 1 == OverrideRecord.objects.count()
    assert outcomes(finish(batch)) == {"done": 5}
    assert Counter(OverrideRecord.objects.values_list("run_id", flat=True)) == Counter(ids)


def test_eight_workers_at_once_do_it_once_to_each(tools: Toolbox) -> None:
    olga, ids = operator(), many(sleeper(tools), 40)
    batch = ask(olga, runs=[str(one) for one in ids])
    found = at_once(*[lambda: finish(batch) for _ in range(8)])
    assert [one for one in found if isinstance(one, Exception)] == []
    assert outcomes(batch) == {"done": 40} and Batch.objects.get().state == "done"
    assert Counter(OverrideRecord.objects.values_list("run_id", flat=True)) == Counter(ids)


def test_a_run_that_somebody_is_at_is_passed_over(tools: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    olga, ids = operator(), many(sleeper(tools), 3)
    batch, calls = ask(olga, runs=[str(one) for one in ids]), list[UUID]()
    is_begun, may_end = threading.Event(), threading.Event()

    def slow(run_id: UUID, **more: Any) -> Run:
        calls.append(run_id)
        if len(calls) == 1:
            is_begun.set()
            assert may_end.wait(60)
        elif run_id == ids[0]:
            raise RuntimeError("somebody is at it")
        return lifecycle.pause(run_id, **more)

    def another() -> Any:
        try:
            assert is_begun.wait(60)
            return [working._do_next(batch, []) for _ in range(3)], list(calls)
        finally:
            may_end.set()

    monkeypatch.setattr(working, "OPERATIONS", {"pause": slow})
    found = at_once(lambda: working._do_next(batch, []), another)
    assert found == [True, ([True, True, False], ids)], "each is done by one, and nobody waits for the other"
    assert outcomes(batch) == {"done": 3}


def test_a_role_that_is_lost_on_the_way_ends_it_there(tools: Toolbox) -> None:
    olga, ids = operator(), many(sleeper(tools), 4)
    batch = ask(olga, runs=[str(one) for one in ids])
    assert working._do_next(batch, [])
    Group.objects.get(name="operator").user_set.clear()
    assert outcomes(finish(batch)) == {"done": 1, "refused": 3}
    assert {row.code for row in batch.items.filter(outcome="refused")} == {"not-found"}, (
        "who sees nothing is told nothing"
    )


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"runs": [], "filter": None}, "runs"),
        ({}, "filter"),
        ({"filter": {}, "runs": [str(uuid4())]}, "filter"),
        ({"filter": {"state": "asleep"}}, "filter.state"),
        ({"filter": {"parent": "nobody"}}, "filter.parent"),
        ({"filter": {"agent": "there-is-none"}}, "filter"),
        ({"runs": [str(uuid4())], "effects": "undo"}, "effects"),
        ({"runs": [str(uuid4())], "priority": 3}, "priority"),
        ({"runs": [str(uuid4())], "action": "priority"}, "priority"),
    ],
)
def test_what_can_not_be_meant_is_refused_by_name_and_nothing_is_kept(given: dict[str, Any], field: str) -> None:
    olga, before = operator(), None
    before = dump()
    with pytest.raises((InvalidInput, ValueError)) as refused:
        ask(olga, **given)
    if isinstance(refused.value, InvalidInput):
        assert refused.value.extra["errors"][0]["field"] == field
    assert dump() == before and not Batch.objects.exists()
