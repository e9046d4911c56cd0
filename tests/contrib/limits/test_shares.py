from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection

from durableagents import Agent
from durableagents.contrib.limits import services as acts
from runs.connections import dsn
from runs.engine.limits import Rule
from runs.journal.claims import Claim, claim
from runs.models import Run
from runs.services import lifecycle
from runs.services.priorities import set_priority
from tests.integration.runs.stage import Stage, fresh, now
from tests.waiting import eventually
from tests.world import OLGA, SHOP, agent_of, ends_with

pytestmark = pytest.mark.django_db
WHY = "the test says so"


def said(key: str, **rule: int) -> None:
    acts.set_limit(key, Rule(**rule), by=OLGA, justification=WHY)


def start(agent: Agent, count: int = 1, *, tags: Any = ()) -> list[Run]:
    return [lifecycle.start(agent.graph_id, {}, by=SHOP, tags=tags) for _ in range(count)]


def claimed(stage: Stage, limit: int, *agents: Agent) -> list[Claim]:
    async def take() -> list[Claim]:
        return await claim(await stage.connected(), stage.worker, [a.graph_id for a in agents], limit)

    return stage.wait(take())


def lanes(found: list[Claim]) -> Counter[str]:
    rows = dict(Run.objects.filter(pk__in=[one.run_id for one in found]).values_list("pk", "lane"))
    return Counter(rows[one.run_id] for one in found)


def let_go(*found: Claim) -> None:
    Run.objects.filter(pk__in=[one.run_id for one in found]).update(owner=None)


def test_no_more_runs_of_an_agent_are_driven_than_may_be_over_all_workers(stage: Stage) -> None:
    agent = agent_of(ends_with(1))
    said(f"agent:{agent.name}", at_once=3)
    start(agent, 20)
    workers = [stage.hire() for _ in range(6)]

    async def all_at_once() -> list[Claim]:
        pool = await stage.connected()
        taken = await asyncio.gather(*(claim(pool, each, [agent.graph_id], 5) for each in workers for _ in range(3)))
        return list(itertools.chain(*taken))

    taken = stage.wait(all_at_once())
    assert len(taken) == 3 == Run.objects.filter(owner__isnull=False).count()
    let_go(taken[0])
    assert len(claimed(stage, 5, agent)) == 1, "what is free again is taken"


def test_a_cap_of_a_tag_holds_over_its_agents_and_keeps_nobody_else_waiting(stage: Stage) -> None:
    first, second = agent_of(ends_with(1), name="first"), agent_of(ends_with(2), name="second")
    said("tag:tenant:acme", at_once=2)
    said("agent:first", at_once=3)
    start(first, 30, tags=["tenant:acme"]), start(second, 30, tags={"tenant": "acme"})
    start(first, 2, tags=["tenant:other"]), start(second, 1)
    found = claimed(stage, 10, first, second)
    assert lanes(found) == {"tenant:acme": 2, "": 3}
    assert claimed(stage, 10, first, second) == []


def test_one_that_stands_before_others_and_may_not_go_keeps_none_of_them(stage: Stage) -> None:
    """Thousands of a capped tag are first in the version's queue; the ones behind are still found."""
    agent = agent_of(ends_with(1))
    said("tag:tenant:acme", at_once=1)
    start(agent, 300, tags=["tenant:acme"])
    (late,) = start(agent)
    found = claimed(stage, 2, agent)
    assert late.id in {one.run_id for one in found} and lanes(found) == {"tenant:acme": 1, "": 1}


def test_many_lines_that_are_full_keep_nobody_else_waiting(stage: Stage) -> None:
    agent = agent_of(ends_with(1))
    said("tag:tenant:*", at_once=1)
    for n in range(20):
        start(agent, 2, tags=[f"tenant:{n}"])
    start(agent, 6)
    assert len(claimed(stage, 40, agent)) == 26, "one of each tenant, and all that have none"
    (late,) = start(agent)
    assert [one.run_id for one in claimed(stage, 1, agent)] == [late.id]


def test_tags_share_by_weight_no_matter_who_has_the_longer_queue(stage: Stage) -> None:
    agent = agent_of(ends_with(1))
    said("tag:tenant:*", weight=1)
    said("tag:tenant:big", weight=3)
    start(agent, 100, tags=["tenant:small"]), start(agent, 100, tags=["urgent", "tenant:big"])
    assert lanes(claimed(stage, 24, agent)) == {"tenant:big": 18, "tenant:small": 6}
    assert lanes(claimed(stage, 8, agent)) == {"tenant:big": 6, "tenant:small": 2}, "also slot by slot"


def test_agents_share_by_weight(stage: Stage) -> None:
    one, two = agent_of(ends_with(1), name="one"), agent_of(ends_with(2), name="two")
    said("agent:one", weight=4)
    start(one, 50), start(two, 50)
    taken = Counter(each.graph_id for each in claimed(stage, 20, one, two))
    assert taken == {one.graph_id: 16, two.graph_id: 4}


def test_runs_stand_in_line_again_when_something_else_is_said_of_tags(stage: Stage) -> None:
    agent = agent_of(ends_with(1))
    runs = start(agent, 3, tags=["tenant:acme"])
    assert {fresh(run).lane for run in runs} == {""}
    said("tag:tenant:*", weight=2)
    assert {fresh(run).lane for run in runs} == {"tenant:acme"}
    acts.reset_limit("tag:tenant:*", by=OLGA, justification=WHY)
    assert {fresh(run).lane for run in runs} == {""} and len(claimed(stage, 5, agent)) == 3


def test_what_is_urgent_comes_first_and_nothing_waits_forever(stage: Stage) -> None:
    """One claim in eight goes by age, among those that waited for a minute."""
    agent = agent_of(ends_with(1))
    (old,) = start(agent)
    Run.objects.filter(pk=old.pk).update(ready_at=now() - timedelta(minutes=2))
    tries = 0
    while fresh(old).owner is None:
        (urgent,) = start(agent)
        set_priority(urgent.pk, 7, by=OLGA, justification=WHY)
        tries += 1
        assert tries < 200 and len(claimed(stage, 1, agent)) == 1
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM runs_run WHERE owner IS NOT NULL AND priority = 7")
        assert cursor.fetchone()[0] == tries - 1


def test_within_a_tenant_its_agents_take_turns(stage: Stage) -> None:
    one, two = agent_of(ends_with(1), name="one"), agent_of(ends_with(2), name="two")
    said("tag:tenant:*", weight=1)
    start(one, 100, tags=["tenant:acme"]), start(two, 5, tags=["tenant:acme"]), start(one, 5, tags=["tenant:b"])
    found = claimed(stage, 8, one, two)
    assert lanes(found) == {"tenant:acme": 4, "tenant:b": 4}
    acme = [each for each in found if fresh(Run(pk=each.run_id)).lane == "tenant:acme"]
    assert Counter(each.graph_id for each in acme) == {one.graph_id: 2, two.graph_id: 2}


def _asked(statement: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return int(cursor.fetchone()[0])


def test_one_that_is_taken_while_its_row_is_looked_at_is_not_taken_again(stage: Stage) -> None:
    agent = agent_of(ends_with(1))
    (run,) = start(agent)
    waits = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%runs_claim%' "
        "AND pid <> pg_backend_pid()"
    )
    with psycopg.connect(dsn(name="somebody else")) as other:
        other.execute("SELECT 1 FROM runs_run WHERE id = %s FOR UPDATE", [run.pk])
        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(claimed, stage, 1, agent)
            eventually(lambda: _asked(waits) > 0)
            other.execute("UPDATE runs_run SET ready_at = NULL, state = 'running' WHERE id = %s", [run.pk])
            other.commit()
            assert found.result(20) == []
