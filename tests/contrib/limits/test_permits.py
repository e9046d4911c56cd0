from __future__ import annotations

import asyncio
import itertools
import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection

from durableagents.contrib.limits import services as acts
from durableagents.contrib.limits.models import Limit, LimitLine
from durableagents.contrib.limits.models import Permit as PermitRow
from durableagents.contrib.limits.permits import WorkerLimits
from ledger.errors import InvalidInput, JustificationRequired, NotFound
from ledger.models import ActRecord
from runs.engine.limits import InvalidRule, Permit, Refused, Rule, TryResult, check, read
from tests.cases import each_case
from tests.contrib.limits.team import FAILED, KEY, RUN, WHY, Team, asked, die, granted, in_thread, row_once, said
from tests.integration.runs.stage import Stage, now
from tests.world import OLGA

pytestmark = pytest.mark.django_db
MS = timedelta(milliseconds=1)


def clock() -> datetime:
    """Return the time as the database, which is on this machine, has it."""
    return datetime.now(UTC)


# --- settings ---------------------------------------------------------------------------------------------------------


def test_an_installation_says_in_one_line_what_is_limited() -> None:
    text = (
        "tool:charge per_minute=60 at_once=4; provider:openai breaker=50% rest=30\n"
        "tag:tenant:* weight=1; agent:a at_once=5"
    )
    assert read(text) == {
        "tool:charge": Rule(per_minute=60, at_once=4),
        "provider:openai": Rule(breaker=50, rest=30),
        "tag:tenant:*": Rule(weight=1),
        "agent:a": Rule(at_once=5),
    }


@each_case(
    ("text", "why"),
    [
        ("charge per_minute=60", "is not a valid key"),
        ("tool: at_once=1", "is not a valid key"),
        ("tool:a", "has no limit"),
        ("tool:a weight=3", "a limit of a tool can't have weight"),
        ("tag:a per_minute=3", "a limit of a tag can't have per_minute"),
        ("tool:a at_once=0", "whole number from 1"),
        ("tool:a at_once=x", "is not one of"),
        ("tool:a at_once=1 at_once=2", "each once"),
        ("tool:a at_once=1; tool:a at_once=2", "named twice"),
        ("tool:a* at_once=1", "use a star only as the whole name"),
        ("tool:a burst=3", "set per_minute too"),
        ("tool:a breaker=101", "whole number from 1 to 100"),
        ("tool:a rest=5", "set breaker too"),
    ],
)
def test_what_can_not_be_is_refused_with_what_would_be_right(text: str, why: str) -> None:
    with pytest.raises(InvalidRule, match=why.replace("*", r"\*")):
        read(text)


def test_a_person_stands_above_the_installation_and_both_above_the_tool(stage: Stage) -> None:
    def rule(key: str = KEY) -> Any:
        with connection.cursor() as cursor:
            cursor.execute("SELECT runs_limit_rule(%s)", [key])
            return json.loads(cursor.fetchone()[0])

    with connection.cursor() as cursor:
        declared = '{"tool:*": {"breaker": 50, "at_once": 9}, "tool:charge": {"at_once": 4}}'
        cursor.execute(
            "SELECT runs_declare_limits(%s, %s)", [declared, '{"tool:charge": {"per_minute": 60, "at_once": 7}}']
        )
        assert rule() == {"per_minute": 60, "at_once": 4, "breaker": 50} and rule("tool:other") == {
            "breaker": 50,
            "at_once": 9,
        }
        said(at_once=1)
        assert {name: value for name, value in rule().items() if value is not None} == {"at_once": 1}
        cursor.execute("SELECT runs_declare_limits('{}', '{\"tool:charge\": null}')")
        assert rule("tool:other") == {} and rule()["at_once"] == 1
        acts.reset_limit(KEY, by=OLGA, justification=WHY)
        assert rule() == {}, "neither installation nor tool say anything any more"


def test_what_operators_say_is_on_the_record_and_says_why(stage: Stage) -> None:
    said(per_minute=60)
    acts.open_breaker(KEY, by=OLGA, justification=WHY)
    acts.close_breaker(KEY, by=OLGA, justification=WHY)
    acts.reset_limit(KEY, by=OLGA, justification=WHY)
    rows = ActRecord.objects.filter(subject=f"limit {KEY}").order_by("id")
    assert [(row.action, row.by, row.justification) for row in rows] == [
        (action, OLGA.ref, WHY) for action in ("limit", "breaker_open", "breaker_close", "limit_reset")
    ]
    assert rows[0].after["given"]["per_minute"] == 60 and rows[1].after["breaker"] == "open"
    before = list(Limit.objects.values())
    for wrong, error in [
        (lambda: said("charge", at_once=1), InvalidInput),
        (lambda: said("tag:a", per_minute=1), InvalidInput),
        (lambda: acts.set_limit(KEY, Rule(at_once=1), by=OLGA, justification=" "), JustificationRequired),
        (lambda: acts.open_breaker("tag:a", by=OLGA, justification=WHY), InvalidInput),
        (lambda: acts.open_breaker("tool:*", by=OLGA, justification=WHY), InvalidInput),
        (lambda: acts.close_breaker(KEY, by=OLGA, justification=WHY), acts.LimitUnchanged),
        (lambda: acts.reset_limit(KEY, by=OLGA, justification=WHY), acts.LimitUnchanged),
        (lambda: acts.close_breaker("tool:unheard", by=OLGA, justification=WHY), NotFound),
    ]:
        with pytest.raises(error):
            wrong()
    assert list(Limit.objects.values()) == before and ActRecord.objects.count() == 4


# --- how many at once -------------------------------------------------------------------------------------------------


def test_never_more_are_under_way_than_may_be_no_matter_who_asks(stage: Stage) -> None:
    said(at_once=3)
    running = most = served = 0

    async def story(*all_: WorkerLimits) -> None:
        async def work(one: WorkerLimits) -> None:
            nonlocal running, most, served
            permit = granted(await one.take((KEY,), asked(patience=30)))
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.01)
            running -= 1
            served += 1
            one.give_back(permit)

        await asyncio.gather(*(work(one) for one in all_ for _ in range(20)))

    began = time.monotonic()
    Team(stage, 3).play(story)
    assert (most, served) == (3, 60) and time.monotonic() - began < 20
    assert not PermitRow.objects.exists() and not LimitLine.objects.exists()


def test_the_permit_of_a_worker_that_died_is_free_again_and_one_of_the_living_is_not(stage: Stage) -> None:
    said(at_once=1)

    async def story(dying: WorkerLimits, other: WorkerLimits) -> None:
        granted(await dying.take((KEY,), asked()))
        assert isinstance(await other.take((KEY,), asked(patience=0.1)), Refused)
        await asyncio.to_thread(die, dying.worker)
        granted(await other.take((KEY,), asked(patience=5)))

    Team(stage, 2).play(story)


def test_a_permit_that_nobody_gives_back_is_free_when_its_time_is_over(stage: Stage) -> None:
    said(at_once=1)

    async def story(one: WorkerLimits, other: WorkerLimits) -> None:
        granted(await one.take((KEY,), asked(lasts=60)))
        assert isinstance(await other.take((KEY,), asked(patience=0.1)), Refused)
        await in_thread(lambda: PermitRow.objects.update(expires_at=now()))
        granted(await other.take((KEY,), asked(patience=20)))

    Team(stage, 2).play(story)


def test_someone_who_is_cut_off_while_waiting_or_just_let_in_leaves_nothing_behind(stage: Stage) -> None:
    said(at_once=1)

    async def story(one: WorkerLimits) -> None:
        for delay in (0.0, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1):
            tasks = [asyncio.create_task(one.take((KEY,), asked(patience=10))) for _ in range(5)]
            await asyncio.sleep(delay)
            for task in tasks:
                task.cancel()
            for answer in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(answer, Permit):
                    one.give_back(answer)
        permit = granted(await one.take((KEY,), asked(patience=10)))
        one.give_back(permit)

    Team(stage).play(story)
    assert not PermitRow.objects.exists()


def test_an_answer_that_was_lost_is_asked_for_again_and_costs_one_permit(stage: Stage) -> None:
    said(at_once=2)
    values = [
        "SELECT is_granted FROM runs_take_permit(%s, %s, %s, %s, '0.1/1', 60, 0, 0, 1, %s)",
        [str(uuid4()), [KEY], str(stage.worker.id), RUN, json.dumps({KEY: {"at_once": 2}})],
    ]
    with connection.cursor() as cursor:
        for _ in range(3):
            cursor.execute(*values)
            assert cursor.fetchone() == (True,)
    assert PermitRow.objects.count() == 1


# --- how often --------------------------------------------------------------------------------------------------------


def test_never_more_go_out_than_the_rate_and_the_burst_over_any_window(stage: Stage) -> None:
    said(per_minute=1200, burst=5, at_once=100)  # 20 a second; calls under way show when they were admitted

    async def story(*all_: WorkerLimits) -> None:
        async def work(one: WorkerLimits) -> None:
            granted(await one.take((KEY,), asked(patience=30)))

        await asyncio.gather(*(work(one) for one in all_ for _ in range(20)))

    Team(stage, 2).play(story)
    times = sorted(at.timestamp() for at in PermitRow.objects.values_list("taken_at", flat=True))
    assert len(times) == 40
    for i, began in enumerate(times):
        for n, ended in enumerate(times[i:], 1):
            assert n <= 5 + 20 * (ended - began) + 0.1, f"{n} in {ended - began:.3f} s"
    assert times[-1] - times[0] < 30, "and it is made use of"


def test_lowered_limit_counts_for_calls_that_follow_and_so_does_a_lifted_one(stage: Stage) -> None:
    said(at_once=4)
    team = Team(stage, 2)

    async def story(one: WorkerLimits, other: WorkerLimits) -> None:
        held = [granted(await one.take((KEY,), asked())) for _ in range(4)]
        await asyncio.to_thread(say, at_once=1)
        await team.look()
        for permit in held[:3]:
            one.give_back(permit)
        await asyncio.sleep(0.2)
        assert isinstance(await other.take((KEY,), asked(patience=0.2)), Refused), "one is under way still"
        one.give_back(held[3])
        granted(await other.take((KEY,), asked(patience=5)))
        await asyncio.to_thread(say)
        await team.look()
        assert not other.needs_permit((KEY,)) and granted(await other.take((KEY,), asked())).is_held is False

    def say(**rule: int) -> None:
        said(**rule)
        connection.close()

    team.play(story)


def test_who_waits_too_long_is_sent_away_one_after_the_other_at_the_rate(stage: Stage) -> None:
    said(per_minute=6, burst=1)  # one in ten seconds

    async def story(one: WorkerLimits) -> list[datetime]:
        granted(await one.take((KEY,), asked()))
        back = []
        for _ in range(20):
            before, answer = clock(), await one.take((KEY,), asked(patience=0.1))
            assert isinstance(answer, Refused) and (answer.key, answer.why) == (KEY, "rate")
            back.append((await row_once(lambda row: row.parked_until)).parked_until)
            assert before - MS < back[-1] - timedelta(seconds=answer.seconds) < clock() + MS
        return back

    began = clock()
    back = Team(stage).play(story)
    assert all(later - earlier >= timedelta(seconds=10) for earlier, later in itertools.pairwise(back)), back
    assert back[-1] - back[0] <= timedelta(seconds=190) + (clock() - began)


def test_a_thousand_who_wait_ask_little_and_come_away_soon(stage: Stage) -> None:
    said(per_minute=60, burst=1)
    calls = 0

    async def story(one: WorkerLimits) -> list[Permit | Refused]:
        nonlocal calls
        ask = one._ask

        async def counted(*args: Any, **more: Any) -> Permit | Refused:
            nonlocal calls
            calls += 1
            return await ask(*args, **more)

        one._ask = counted  # type: ignore[method-assign]
        return list(await asyncio.gather(*(one.take((KEY,), asked(str(n))) for n in range(1000))))

    began = time.monotonic()
    answers = Team(stage).play(story)
    took = time.monotonic() - began
    away = [answer.seconds for answer in answers if isinstance(answer, Refused)]
    assert len(away) >= 990 and calls <= 1100 and took < 30, (calls, took)
    assert max(away) <= 300 and len({round(each) for each in away}) > 200, "not all at the same moment"


def test_the_longest_wait_goes_first_also_in_another_worker(stage: Stage) -> None:
    said(at_once=1)
    order: list[str] = []

    async def story(one: WorkerLimits, other: WorkerLimits) -> None:
        first = granted(await one.take((KEY,), asked()))

        async def wait(who: WorkerLimits, name: str, earlier: int = 0) -> None:
            permit = granted(await who.take((KEY,), asked(name, patience=20, earlier=earlier)))
            order.append(name)
            await asyncio.sleep(0.02)
            who.give_back(permit)

        async def stand_in_line(workers: int) -> None:
            while await in_thread(LimitLine.objects.count) < workers:  # noqa: ASYNC110  what is waited for is a row
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.3)  # a later arrival at a worker changes its row

        waiting = []
        for who, name, workers in ((other, "a", 1), (one, "b", 2), (other, "c", 2)):
            waiting.append(asyncio.create_task(wait(who, name)))
            await stand_in_line(workers)
        waiting.append(asyncio.create_task(wait(other, "sent away before", earlier=3)))
        await stand_in_line(2)
        await in_thread(lambda: LimitLine.objects.update(seen_until=now() + timedelta(hours=1)))
        one.give_back(first)
        await asyncio.gather(*waiting)

    Team(stage, 2).play(story)
    assert order[0] == "a" and set(order[1:3]) == {"b", "sent away before"}, order


def test_a_worker_that_is_asked_to_leave_the_other_side_alone_says_so_to_all(stage: Stage) -> None:
    model = ("model:openai:gpt-5", "provider:openai")
    team = Team(stage, 2)

    async def story(one: WorkerLimits, other: WorkerLimits) -> None:
        assert not other.needs_permit(model)
        one.report(model, None, TryResult(served=False, error="429", retry_after=30))
        await row_once(lambda row: row.held_until, model[0])
        await team.look()
        assert other.needs_permit(model) and one.needs_permit(model)
        refused = await other.take(model, asked(patience=0.1))
        assert isinstance(refused, Refused) and (refused.key, refused.why) == (model[0], "asked")
        soon = clock() + timedelta(seconds=0.3)
        await in_thread(lambda: Limit.objects.update(held_until=soon))
        granted(await other.take(model, asked(patience=20)))
        assert clock() >= soon

    team.play(story)
    keys = Limit.objects.filter(key__contains="openai").values_list("key", flat=True)
    assert list(keys) == [model[0]], "nobody says anything of the provider"


def test_a_database_that_is_away_while_somebody_waits_costs_patience_and_nothing_else(stage: Stage) -> None:
    said(at_once=1)

    async def story(one: WorkerLimits) -> None:
        pool = await stage.connected()
        held = granted(await one.take((KEY,), asked()))
        waiting = asyncio.create_task(one.take((KEY,), asked(patience=30)))
        await asyncio.sleep(0.2)
        for _ in range(3):
            await asyncio.to_thread(cut_off)
            await asyncio.sleep(0.1)
        one.give_back(held)
        granted(await asyncio.wait_for(waiting, 20))
        assert pool is not None

    def cut_off() -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND application_name = 'durableagents stage'"
            )
        connection.close()

    Team(stage).play(story)


def test_nothing_said_costs_no_statement(stage: Stage) -> None:
    async def story(one: WorkerLimits) -> None:
        one._pool = None  # any query would fail
        assert not one.needs_permit((KEY,))
        one.report((KEY,), None, FAILED)
        one.report((KEY,), None, TryResult(served=False, error="429", retry_after=9.0))
        assert not one._counts and not one._back

    Team(stage).play(story)
    check(KEY, Rule(at_once=1))
