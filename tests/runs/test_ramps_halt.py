"""A ramp halts itself above its bounds, once, on record, and assigns nothing more until somebody lets it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from durableagents import Context, End, Rejected, Renew
from ledger.models import ActRecord
from ledger.verification.registers import verify_registers
from runs.models import Ramp, Run
from runs.services import lifecycle, signals
from runs.services.migrating import acts as migrating
from runs.services.migrating.bodies import MigrateBody
from runs.services.releases import acts, watching
from runs.services.releases.acts import NotInThisState
from runs.services.releases.watching import figures, sweep
from runs.workers.housekeeping import House
from tests.runs.releasing import WHY, ramp, seen, served, start, told, versions
from tests.runs.stage import Stage, at_once, fresh, problems
from tests.runs.stories import as_superuser
from tests.world import OLGA, SHOP, Asked, Item, Notes, Toolbox

pytestmark = pytest.mark.django_db


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
    assert sweep() == 0, "too few to judge"
    begun(stage, "x", "x", "x", "x", "x", "x")
    assert figures(one) == watching.Figures(10, 2, 0, 0) and sweep() == 0, "as many as are allowed"
    on_new = begun(stage, "bad")
    assert [answer for answer in at_once(*[sweep] * 4) if answer] == [1]
    one.refresh_from_db()
    assert one.state == "halted" and one.halted_at is not None
    assert one.halted_by == {"begun": 11, "failed": 3, "rejected": 0, "stopped": 0, "above": ["failed"]}
    (act,) = ActRecord.objects.filter(action="ramp_halt")
    assert (act.by, act.person, act.subject) == ("system:releases", None, f"ramp {one.pk}")
    assert act.after["figures"] == one.halted_by and "3 failed" in act.justification and "11" in act.justification
    assert all(not listed.problems for listed in verify_registers())
    assert start().version == "1.0.0" and fresh(on_new[0]).version == "2.0.0" and sweep() == 0
    assert problems(on_new[0]) == []


def test_let_go_on_it_judges_what_comes_after_and_halts_again(stage: Stage) -> None:
    served(stage, *versions(node))
    one = ramp(100, failed=20, at_least=2)
    begun(stage, "bad", "bad")
    assert sweep() == 1
    with pytest.raises(NotInThisState):
        acts.finish(one.pk, acts.RampActBody(justification=WHY), by=OLGA)
    one.refresh_from_db()
    acts.go_on(one.pk, seen(one), by=OLGA)
    one.refresh_from_db()
    assert (one.state, one.halted_by, one.halted_at) == ("on", None, None)
    assert sweep() == 0 and start().version == "2.0.0"
    with pytest.raises(NotInThisState):
        acts.go_on(one.pk, seen(one), by=OLGA)
    begun(stage, "bad", "bad")
    assert sweep() == 1 and Ramp.objects.get().halted_by["failed"] == 2
    acts.roll_back(one.pk, acts.RampActBody(justification=WHY), by=OLGA)
    assert start().version == "1.0.0"


def test_what_waits_to_be_begun_makes_no_rate_smaller(stage: Stage) -> None:
    served(stage, *versions(node))
    one = ramp(100, failed=10, at_least=3)
    begun(stage, "bad", "x", "x")
    waiting = [start() for _ in range(20)]
    for run in waiting[:5]:
        lifecycle.cancel(run.id, by=OLGA, justification=WHY)
    assert [fresh(run).state for run in waiting[4:6]] == ["cancelled", "pending"], "it has ended, and never begun"
    assert figures(one) == watching.Figures(3, 1, 0, 0) and sweep() == 1


def test_a_run_that_goes_on_as_others_is_judged_by_all_of_them_and_counts_once(stage: Stage) -> None:
    served(stage, *versions(node))
    one = ramp(100, failed=10, at_least=1)
    first = lifecycle.start("releasing", {"text": "again"}, by=SHOP)
    assert stage.drive() == "completed" and figures(one) == watching.Figures(1, 0, 0, 0)
    heir = Run.objects.get(came_from=first.pk)
    assert heir.version == "2.0.0" and stage.drive() == "failed"
    assert figures(one) == watching.Figures(1, 1, 0, 0) and sweep() == 1


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
    assert stage.settle(first) == "completed" and figures(one) == watching.Figures(2, 0, 0, 0)
    stage.decide(second, "reject")
    assert stage.settle(second) == "completed" and figures(one) == watching.Figures(2, 0, 1, 0)
    assert sweep() == 1 and Ramp.objects.get().halted_by["above"] == ["rejected"]


def test_a_stop_for_an_operator_counts(stage: Stage) -> None:
    served(stage, *versions(node))
    one = ramp(100, stopped=10, failed=None, rejected=None, at_least=1)
    (run,) = begun(stage, "x")
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO runs_wait (id, run_id, slot, attempt, kind, n, opened_at, deadline, detail, is_overdue)"
            " VALUES (gen_random_uuid(), %s, '0.1/operator', 0, 'operator', 0, now(), now(), '{}', false)",
            [run.pk],
        )
    assert figures(one).stopped == 1 and sweep() == 1


def test_a_bound_that_is_not_set_halts_nothing(stage: Stage) -> None:
    served(stage, *versions(node))
    ramp(100, failed=None, rejected=None, stopped=None, at_least=1)
    begun(stage, "bad", "bad")
    assert sweep() == 0 and start().version == "2.0.0"


def test_no_clock_decides(stage: Stage) -> None:
    served(stage, *versions(node))
    one = ramp(100, failed=10, at_least=1)
    begun(stage, "bad")
    Ramp.objects.filter(pk=one.pk).update(made_at=timezone.now() + timedelta(days=9))
    assert sweep() == 1


def also_assigned(one: Ramp, count: int, *, begun_ago: str | None = None) -> None:
    """Further starts that the ramp gave the newer version; with `begun_ago` (an interval) they were begun then."""
    with connection.cursor() as cursor:
        cursor.execute(
            "WITH made AS ("
            "INSERT INTO runs_run (id, agent, version, graph_id, generation, node, visit, is_woken, is_solo,"
            " priority, tags, trace_id, created_by, created_at, updated_at, error_code, state, started_at)"
            " SELECT gen_random_uuid(), 'releasing', '2.0.0', 'releasing@2.0.0', 0, '', 0, false, false, 0, '[]', 't',"
            " 'key:shop', now(), now(), '', 'pending', now() - %(ago)s::interval"
            " FROM generate_series(1, %(count)s) RETURNING id)"
            " INSERT INTO runs_rampstart (run_id, ramp_id, is_new, why, place, at)"
            " SELECT id, %(ramp)s, true, 'share', 1, now() FROM made",
            {"ago": begun_ago, "count": count, "ramp": one.pk},
        )


def test_a_backlog_hides_nothing_from_it(stage: Stage) -> None:
    """More was assigned since than it looks at, and none of that has begun."""
    served(stage, *versions(node))
    one = ramp(100, failed=50, at_least=1)
    begun(stage, "bad")
    also_assigned(one, watching.COUNTED + 200)
    assert figures(one) == watching.Figures(1, 1, 0, 0) and sweep() == 1


def test_what_was_assigned_long_ago_and_fails_now_counts(stage: Stage) -> None:
    served(stage, *versions(node))
    one = ramp(100, failed=50, at_least=1)
    slow = lifecycle.start("releasing", {"text": "bad"}, by=SHOP)
    also_assigned(one, watching.COUNTED + 200, begun_ago="1 hour")
    assert figures(one) == watching.Figures(watching.COUNTED, 0, 0, 0)
    assert stage.settle(slow) == "failed"
    assert figures(one) == watching.Figures(watching.COUNTED, 1, 0, 0)


def test_what_it_looks_at_is_bounded_however_much_was_begun(stage: Stage) -> None:
    served(stage, *versions(node))
    one = ramp(100, failed=50, at_least=1)
    begun(stage, "bad")
    also_assigned(one, watching.COUNTED, begun_ago="-1 hour")
    assert figures(one) == watching.Figures(watching.COUNTED, 0, 0, 0), "the newest thousand, which it isn't in"


def test_after_it_is_let_go_on_what_was_assigned_and_not_begun_counts(stage: Stage) -> None:
    served(stage, *versions(node))
    one = ramp(100, failed=20, at_least=2)
    begun(stage, "bad", "bad")
    waiting = [lifecycle.start("releasing", {"text": "bad"}, by=SHOP) for _ in range(2)]
    assert sweep() == 1
    one.refresh_from_db()
    acts.go_on(one.pk, seen(one), by=OLGA)
    one.refresh_from_db()
    assert figures(one).begun == 0 and sweep() == 0
    assert [stage.settle(run) for run in waiting] == ["failed", "failed"]
    assert figures(one) == watching.Figures(2, 2, 0, 0) and sweep() == 1


def test_a_ramp_that_leads_back_is_finished_by_closing_what_it_leads_from(stage: Stage) -> None:
    served(stage, *versions(node))
    one = ramp(100, from_version="2.0.0", to_version="1.0.0")
    acts.finish(one.pk, acts.RampActBody(justification=WHY), by=OLGA)
    assert Ramp.objects.get().state == "done" and start().version == "1.0.0"
    (act,) = ActRecord.objects.filter(action="version_close")
    assert act.subject == "version releasing@2.0.0" and all(not listed.problems for listed in verify_registers())
    acts.reopen("releasing", "2.0.0", by=OLGA, justification=WHY)
    assert start().version == "2.0.0"


def test_while_starts_don_t_end_it_is_tried_again_in_a_moment(stage: Stage) -> None:
    served(stage, *versions(node))
    ramp(100, failed=10, at_least=1)
    begun(stage, "bad")
    with transaction.atomic():
        start()
        assert at_once(sweep) == [0]
    assert Ramp.objects.get().state == "on" and sweep() == 1


def test_housekeeping_does_it(stage: Stage) -> None:
    served(stage, *versions(node))
    ramp(100, failed=10, at_least=1)
    begun(stage, "bad")
    house = House(stage.worker.id)
    house.keep()
    house.close()
    assert Ramp.objects.get().state == "halted"
    assert told(start()).why == "halted"


# --- runs that are moved off the newer version ------------------------------------------------------------------------


async def waits(state: Notes, ctx: Context) -> End:
    if state.asked.text == "bad":
        raise ValueError("it can't")
    await ctx.signal("go")
    if state.asked.text == "bad later":
        raise ValueError("it can't any more")
    return End("done")


def off(*runs: Run, of: str = "2.0.0", to: str = "1.0.0", retry: bool = False) -> None:
    """Somebody moves runs to the other version by hand."""
    ids = [run.pk for run in runs]
    body = {"from_version": of, "to_version": to, "nodes": {"waits": "waits"}, "runs": ids, "retry": retry}
    found = migrating.migrate("releasing", MigrateBody.model_validate(body | {"justification": WHY}), by=OLGA)
    assert [one.is_moved for one in found] == [True] * len(runs), found


def test_a_run_that_is_moved_off_the_newer_version_counts_where_it_began(stage: Stage) -> None:
    served(stage, *versions(waits))
    one = ramp(100, failed=50, stopped=20, at_least=4)
    runs = begun(stage, "x", "x", "x", "x")
    assert figures(one) == watching.Figures(4, 0, 0, 0)
    off(runs[0])
    assert figures(one) == watching.Figures(4, 0, 0, 1) and sweep() == 1, "somebody had to take it from there"
    halted = Ramp.objects.get()
    assert halted.halted_by == {"begun": 4, "failed": 0, "rejected": 0, "stopped": 1, "above": ["stopped"]}


def test_all_that_were_begun_are_moved_off_and_the_ramp_still_knows_them(stage: Stage) -> None:
    served(stage, *versions(waits))
    one = ramp(100, failed=50, stopped=None, at_least=2)
    runs = begun(stage, "bad later", "bad later", "x")
    off(*runs)
    assert figures(one) == watching.Figures(3, 0, 0, 3) and sweep() == 0
    for run in runs:
        signals.signal(run.id, "go", {}, by=SHOP)
    assert [stage.settle(run) for run in runs] == ["failed", "failed", "completed"]
    assert figures(one) == watching.Figures(3, 2, 0, 3) and sweep() == 1


def test_there_and_back_counts_once_and_no_more_than_once(stage: Stage) -> None:
    served(stage, *versions(waits))
    one = ramp(100, stopped=None, failed=None, at_least=1)
    (run,) = begun(stage, "x")
    off(run)
    off(run, of="1.0.0", to="2.0.0")
    assert figures(one) == watching.Figures(1, 0, 0, 1)
    off(run)
    assert figures(one) == watching.Figures(1, 0, 0, 1)
    assert problems(run) == []


def test_a_row_that_nobody_can_read_keeps_no_ramp_from_being_judged(stage: Stage) -> None:
    served(stage, *versions(waits))
    one = ramp(100, stopped=20, at_least=2)
    runs = begun(stage, "x", "x", "x")
    off(*runs)
    as_superuser(
        """UPDATE ledger_overriderecord SET before = jsonb_set(before::jsonb, '{epoch}', '"many"'),
           after = jsonb_set(after::jsonb, '{how}', '"unbegun"') WHERE action = 'migrate' AND run_id = %s""",
        runs[0].pk,
    )
    as_superuser(
        "UPDATE ledger_event SET kind = 'UndoBegun', clear = '\\xff' WHERE run_id = %s AND seq = 2", runs[1].pk
    )
    as_superuser("UPDATE runs_run SET node = '_undo' WHERE id = %s", runs[1].pk)
    assert figures(one) == watching.Figures(3, 0, 0, 3) and sweep() == 1


def test_a_run_that_had_not_begun_there_was_never_the_newer_version_s(stage: Stage) -> None:
    served(stage, *versions(waits))
    one = ramp(100, stopped=10, at_least=1)
    run = lifecycle.start("releasing", {"text": "x"}, by=SHOP)
    off(run)
    assert stage.settle(run) == "parked"
    assert figures(one) == watching.Figures() and sweep() == 0


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
    assert figures(one) == watching.Figures(3, 3, 0, 0)
    is_bad = False
    off(*runs[:2], retry=True)
    assert figures(one) == watching.Figures(3, 1, 0, 2), "they had begun there"
    assert [stage.settle(run) for run in runs[:2]] == ["parked", "parked"]
    assert figures(one) == watching.Figures(3, 1, 0, 2) and sweep() == 1


def test_a_run_that_began_on_the_older_version_and_is_moved_there_is_not_judged(stage: Stage) -> None:
    served(stage, *versions(waits))
    run = lifecycle.start("releasing@1.0.0", {"text": "x"}, by=SHOP)
    assert stage.settle(run) == "parked"
    one = ramp(100, stopped=10, at_least=1)
    off(run, of="1.0.0", to="2.0.0")
    off(run)
    assert figures(one) == watching.Figures() and sweep() == 0


def test_what_was_moved_off_before_it_was_let_go_on_is_behind_it(stage: Stage) -> None:
    served(stage, *versions(waits))
    one = ramp(100, stopped=10, at_least=1)
    (run,) = begun(stage, "x")
    off(run)
    assert sweep() == 1
    one.refresh_from_db()
    acts.go_on(one.pk, seen(one), by=OLGA)
    one.refresh_from_db()
    assert figures(one) == watching.Figures() and sweep() == 0


def test_an_older_ramp_s_runs_are_not_counted_to_the_next_one(stage: Stage) -> None:
    served(stage, *versions(waits))
    first = ramp(100, stopped=None, at_least=1)
    (run,) = begun(stage, "x")
    off(run)
    acts.roll_back(first.pk, acts.RampActBody(justification=WHY), by=OLGA)
    second = ramp(100, stopped=10, at_least=1)
    assert figures(second) == watching.Figures() and figures(first) == watching.Figures(1, 0, 0, 1)


def test_runs_that_were_moved_before_it_are_not_read(stage: Stage) -> None:
    served(stage, *versions(waits))
    one = ramp(100, failed=None, stopped=20, at_least=1)
    (run,) = begun(stage, "x")
    off(run)
    moved_before("30 days", 20_000)
    asked = {"ramps": [one.pk], "graphs": [one.to_graph], "after": [0], "since": [None], "most": watching.COUNTED}
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE runs_run, runs_rampstart, ledger_overriderecord")
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {watching._FIGURES}", asked)
        steps = list(steps_of(cursor.fetchone()[0][0]["Plan"]))
    (read,) = [step for step in steps if step.get("Index Name") == "runs_run_moved"]
    assert read["Actual Rows"] * read["Actual Loops"] == 1
    assert any(step.get("Index Name") == "runs_run_judged" for step in steps)
    assert [s for s in steps if s["Node Type"] == "Seq Scan" and s["Relation Name"] == "runs_run"] == []
    assert figures(one) == watching.Figures(1, 0, 0, 1)


def moved_before(ago: str, count: int) -> None:
    """Runs of many versions of the agent, which were moved as the one on record was, and were last begun then."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(
            "WITH made AS ("
            "INSERT INTO runs_run (id, agent, version, graph_id, generation, node, visit, is_woken, is_solo,"
            " priority, tags, trace_id, created_by, created_at, updated_at, error_code, state, started_at)"
            " SELECT gen_random_uuid(), 'releasing', '0.' || n %% 50, 'releasing@0.' || n %% 50, 1, '', 0, false,"
            " false, 0, '[]', 't', 'key:shop', now(), now(), '', 'pending', now() - %(ago)s::interval"
            " FROM generate_series(1, %(count)s) n RETURNING id)"
            " INSERT INTO ledger_overriderecord (run_id, action, by, role, auth, address, justification, seq, chain,"
            " before, after, at)"
            " SELECT made.id, o.action, o.by, o.role, o.auth, o.address, o.justification, o.seq, o.chain, o.before,"
            " o.after, o.at - %(ago)s::interval FROM made, ledger_overriderecord o WHERE o.action = 'migrate'",
            {"ago": ago, "count": count},
        )


def steps_of(plan: Any) -> Iterator[Any]:
    """A plan's steps."""
    yield plan
    for below in plan.get("Plans", []):
        yield from steps_of(below)
