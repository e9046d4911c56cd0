"""A ramp halts itself beyond its bounds, once, on record, and assigns nothing until a person resumes it."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from durableagents import Context, End, Rejected, Renew
from durableagents.contrib.releases import migrating, services
from durableagents.contrib.releases.migration_requests import MigrateBody
from durableagents.contrib.releases.models import Ramp
from durableagents.contrib.releases.queries import figures_of
from durableagents.contrib.releases.services import NotInThisState, halt_ramps
from ledger.models import ActRecord
from ledger.verification.registers import verify_registers
from runs.models import Run
from runs.services import lifecycle
from runs.workers.housekeeping import Housekeeping
from tests.contrib.releases.releasing import WHY, ramp, seen, told
from tests.integration.runs.stage import Stage, at_once, fresh, problems
from tests.integration.runs.two_versions import served, start, versions
from tests.waiting import eventually
from tests.world import OLGA, SHOP, Asked, Item, Notes, Toolbox


def figures(ramp: Ramp) -> tuple[int, int, int, int]:
    row = figures_of([ramp])[ramp.pk]
    return row.begun, row.failed, row.rejected, row.stopped


async def node(state: Notes, ctx: Context) -> Any:
    if state.asked.text == "bad":
        raise ValueError("it can't")
    if state.asked.text == "again":
        return Renew(Notes(asked=state.asked.model_copy(update={"text": "bad"})))
    return End(state.asked.text)


def begun(stage: Stage, *texts: str) -> list[Run]:
    runs = []
    for text in texts:
        runs.append(lifecycle.start("releasing", {"text": text}, by=SHOP))
        assert stage.settle(runs[-1]) in ("completed", "failed", "parked")
    return runs


def test_above_a_bound_it_halts_once_with_its_figures_and_starts_go_to_the_older_one(stage: Stage) -> None:
    served(stage, *versions(node))
    one = ramp(100, failed=20, at_least=5)
    begun(stage, "bad", "bad", "x", "x")
    assert halt_ramps() == 0, "too few to judge"
    begun(stage, "x", "x", "x", "x", "x", "x")
    assert figures(one) == (10, 2, 0, 0) and halt_ramps() == 0, "as many as are allowed"
    on_new = begun(stage, "bad")
    assert [answer for answer in at_once(*[halt_ramps] * 4) if answer] == [1]
    one.refresh_from_db()
    assert one.state == "halted" and one.halted_at is not None
    assert one.halted_by == {"begun": 11, "failed": 3, "rejected": 0, "stopped": 0, "above": ["failed"]}
    (act,) = ActRecord.objects.filter(action="ramp_halt")
    assert (act.by, act.person, act.subject) == ("system:releases", None, f"ramp {one.pk}")
    assert act.after["figures"] == one.halted_by and "3 failed" in act.justification and "11" in act.justification
    assert all(not listed.problems for listed in verify_registers())
    assert start().version == "1.0.0" and fresh(on_new[0]).version == "2.0.0" and halt_ramps() == 0
    assert problems(on_new[0]) == []


def test_let_go_on_it_judges_what_comes_after_and_halts_again(stage: Stage) -> None:
    served(stage, *versions(node))
    one = ramp(100, failed=20, at_least=2)
    begun(stage, "bad", "bad")
    assert halt_ramps() == 1
    with pytest.raises(NotInThisState):
        services.finish_ramp(one.pk, services.RampActBody(justification=WHY), by=OLGA)
    one.refresh_from_db()
    services.resume_ramp(one.pk, seen(one), by=OLGA)
    one.refresh_from_db()
    assert (one.state, one.halted_by, one.halted_at) == ("on", None, None)
    assert halt_ramps() == 0 and start().version == "2.0.0"
    with pytest.raises(NotInThisState):
        services.resume_ramp(one.pk, seen(one), by=OLGA)
    begun(stage, "bad", "bad")
    assert halt_ramps() == 1 and Ramp.objects.get().halted_by["failed"] == 2
    services.roll_back_ramp(one.pk, services.RampActBody(justification=WHY), by=OLGA)
    assert start().version == "1.0.0"


def test_a_run_that_goes_on_as_others_is_judged_by_all_of_them_and_counts_once(stage: Stage) -> None:
    served(stage, *versions(node))
    one = ramp(100, failed=10, at_least=1)
    first = lifecycle.start("releasing", {"text": "again"}, by=SHOP)
    assert stage.drive() == "completed" and figures(one) == (1, 0, 0, 0)
    successor = Run.objects.get(came_from=first.pk)
    assert successor.version == "2.0.0" and stage.drive() == "failed"
    assert figures(one) == (1, 1, 0, 0) and halt_ramps() == 1


def test_rejections_by_people_count(stage: Stage, tools: Toolbox) -> None:
    async def gated(state: Notes, ctx: Context) -> End:
        if state.asked.text == "dear":
            try:
                await ctx.call(tools.pay, Item(name="n", amount=1000))
            except Rejected:
                return End("without")
        return End("done")

    served(stage, *versions(gated, tools=[tools.pay]))
    one = ramp(100, rejected=40, at_least=2)
    first, second = begun(stage, "dear", "dear")

    stage.decide(first)
    assert stage.settle(first) == "completed" and figures(one) == (2, 0, 0, 0)
    stage.decide(second, "reject")
    assert stage.settle(second) == "completed" and figures(one) == (2, 0, 1, 0)
    assert halt_ramps() == 1 and Ramp.objects.get().halted_by["above"] == ["rejected"]


def test_a_bound_that_is_not_set_halts_nothing(stage: Stage) -> None:
    served(stage, *versions(node))
    ramp(100, failed=None, rejected=None, stopped=None, at_least=1)
    begun(stage, "bad", "bad")
    assert halt_ramps() == 0 and start().version == "2.0.0"


def test_while_starts_don_t_end_it_is_tried_again_in_a_moment(stage: Stage) -> None:
    served(stage, *versions(node))
    ramp(100, failed=10, at_least=1)
    begun(stage, "bad")
    with transaction.atomic():
        start()
        assert at_once(halt_ramps) == [0]
    assert Ramp.objects.get().state == "on" and halt_ramps() == 1


def test_housekeeping_does_it(stage: Stage) -> None:
    served(stage, *versions(node))
    ramp(100, failed=10, at_least=1)
    begun(stage, "bad")
    house = Housekeeping(stage.worker.id)
    house.keep()
    house.close()
    eventually(lambda: Ramp.objects.get().state == "halted", what="the halt")
    assert told(start()).why == "halted"


# --- runs migrated off the newer version ------------------------------------------------------------------------------


async def waits(state: Notes, ctx: Context) -> End:
    if state.asked.text == "bad":
        raise ValueError("it can't")
    await ctx.signal("go")
    if state.asked.text == "bad later":
        raise ValueError("it can't any more")
    return End("done")


def off(*runs: Run, of: str = "2.0.0", to: str = "1.0.0", retry: bool = False) -> None:
    ids = [run.pk for run in runs]
    body = {"from_version": of, "to_version": to, "nodes": {"waits": "waits"}, "runs": ids, "retry": retry}
    found = migrating.migrate("releasing", MigrateBody.model_validate(body | {"justification": WHY}), by=OLGA)
    assert [one.is_moved for one in found] == [True] * len(runs), found


def test_a_run_that_is_moved_off_the_newer_version_counts_where_it_began(stage: Stage) -> None:
    served(stage, *versions(waits))
    one = ramp(100, failed=50, stopped=20, at_least=4)
    runs = begun(stage, "x", "x", "x", "x")
    assert figures(one) == (4, 0, 0, 0)
    off(runs[0])
    assert figures(one) == (4, 0, 0, 1) and halt_ramps() == 1, "somebody had to take it from there"
    halted = Ramp.objects.get()
    assert halted.halted_by == {"begun": 4, "failed": 0, "rejected": 0, "stopped": 1, "above": ["stopped"]}


def test_what_failed_before_its_first_node_and_is_rescued_still_counts(stage: Stage) -> None:
    is_bad = False

    def initial(asked: Asked) -> Notes:
        if is_bad:
            raise ValueError("no first state")
        return Notes(asked=asked)

    served(stage, *versions(waits, initial=initial))
    one = ramp(100, failed=20, stopped=10, at_least=3)
    runs = [lifecycle.start("releasing", {"text": "x"}, by=SHOP) for _ in range(3)]
    is_bad = True
    assert [stage.settle(run) for run in runs] == ["failed"] * 3
    assert [(fresh(run).node, fresh(run).error_code) for run in runs] == [("", "bad_input")] * 3
    assert figures(one) == (3, 3, 0, 0)
    is_bad = False
    off(*runs[:2], retry=True)
    assert figures(one) == (3, 1, 0, 2), "they had begun there"
    assert [stage.settle(run) for run in runs[:2]] == ["parked", "parked"]
    assert figures(one) == (3, 1, 0, 2) and halt_ramps() == 1
