"""A breaker opens on failures, for all workers, and closes after one successful probe."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from durableagents.contrib.limits import services as acts
from durableagents.contrib.limits.models import Limit
from durableagents.contrib.limits.permits import WorkerLimits
from runs.engine.limits import Permit, Refused, TryResult
from tests.contrib.limits.team import FAILED, KEY, SERVED, WHY, Team, asked, die, granted, row_once, said
from tests.integration.runs.stage import Stage, now
from tests.world import OLGA

pytestmark = pytest.mark.django_db

# --- the breaker ------------------------------------------------------------------------------------------------------


def state() -> tuple[str, bool]:
    limit = Limit.objects.get(pk=KEY)
    return limit.breaker, limit.is_by_hand


def tell(team: Team, *told: TryResult) -> None:
    async def story(one: WorkerLimits, *others: WorkerLimits) -> None:
        for each in told:
            one.report((KEY,), None, each)

    team.play(story)
    team.all[0]._told_at = 0.0
    stage = team.stage

    async def send() -> None:
        await team.all[0].send(await stage.connected())

    stage.wait(send())


@pytest.mark.parametrize(
    ("told", "opens"),
    [
        ([FAILED] * 4, False),
        ([FAILED] * 5, True),
        ([SERVED] * 6 + [FAILED] * 5, False),
        ([SERVED] * 5 + [FAILED] * 5, True),
        ([TryResult()] * 50 + [SERVED] * 50, False),
    ],
    ids=["four of four", "five of five", "five of eleven", "half", "nothing said"],
)
def test_a_breaker_opens_on_the_share_that_fails_and_not_on_few(
    stage: Stage, told: list[TryResult], opens: bool
) -> None:
    said(breaker=50)
    tell(Team(stage), *told)
    assert state() == ("open" if opens else "closed", False)


def test_what_was_long_ago_counts_no_more(stage: Stage) -> None:
    said(breaker=50)
    team = Team(stage)
    tell(team, *[FAILED] * 4)
    Limit.objects.update(window_at=now() - timedelta(seconds=61))
    tell(team, *[FAILED] * 4)
    assert state() == ("closed", False)
    Limit.objects.update(window_at=now() - timedelta(seconds=31))
    tell(team, FAILED)
    assert state() == ("open", False), "the half minute before does"


def test_an_open_breaker_lets_nothing_out_and_then_one_at_a_time(stage: Stage) -> None:
    said(breaker=50, rest=30)
    team = Team(stage, 3)
    tell(team, *[FAILED] * 5)

    async def shut(*all_: WorkerLimits) -> None:
        for one in all_:
            refused = await one.take((KEY,), asked())
            assert isinstance(refused, Refused) and refused.why == "breaker" and refused.seconds > 20

    team.play(shut)
    Limit.objects.update(rest_until=now())

    async def probe(*all_: WorkerLimits) -> None:
        answers = await asyncio.gather(*(one.take((KEY,), asked(patience=0.1)) for one in all_))
        (out,) = (i for i, answer in enumerate(answers) if isinstance(answer, Permit))
        permit = granted(answers[out])
        assert permit.probed == (KEY,)
        all_[out].report(permit.keys, permit, FAILED)
        all_[out].give_back(permit)

    team.play(probe)
    limit = Limit.objects.get(pk=KEY)
    assert (limit.breaker, limit.openings) == ("open", 2) and limit.rest_until is not None
    assert timedelta(seconds=50) < limit.rest_until - now() <= timedelta(seconds=60), "twice as long"
    Limit.objects.update(rest_until=now())

    async def well(one: WorkerLimits, *others: WorkerLimits) -> None:
        permit = granted(await one.take((KEY,), asked(patience=0.1)))
        one.report(permit.keys, permit, SERVED)
        one.give_back(permit)
        await row_once(lambda row: row.breaker == "closed")
        granted(await others[0].take((KEY,), asked()))
        granted(await others[1].take((KEY,), asked()))

    team.play(well)
    assert state() == ("closed", False)


def test_a_probe_that_dies_with_its_worker_is_made_by_another(stage: Stage) -> None:
    said(breaker=50)
    team = Team(stage, 2)
    tell(team, *[FAILED] * 5)
    Limit.objects.update(rest_until=now())

    async def story(dying: WorkerLimits, other: WorkerLimits) -> None:
        granted(await dying.take((KEY,), asked()))
        assert isinstance(await other.take((KEY,), asked(patience=0.1)), Refused)
        await asyncio.to_thread(die, dying.worker)
        assert granted(await other.take((KEY,), asked(patience=0.1))).probed == (KEY,)

    team.play(story)


def test_what_a_person_opened_stays_open_until_a_person_closes_it(stage: Stage) -> None:
    acts.open_breaker(KEY, by=OLGA, justification=WHY)
    team = Team(stage, 2)
    tell(team, *[SERVED] * 50)

    async def shut(one: WorkerLimits, other: WorkerLimits) -> None:
        await team.look()
        assert one.needs_permit((KEY,))
        assert isinstance(await one.take((KEY,), asked()), Refused)

    team.play(shut)
    assert state() == ("open", True)
    acts.close_breaker(KEY, by=OLGA, justification=WHY)

    async def free(one: WorkerLimits, other: WorkerLimits) -> None:
        await team.look()
        assert not other.needs_permit((KEY,))

    team.play(free)
