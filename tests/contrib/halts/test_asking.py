from __future__ import annotations

import pytest

from durableagents import DidNotHappen, Happened, ToolCall, TransportError
from durableagents.contrib.halts.worker import KnownHalts
from ledger import events as e
from runs.models import Run, Wait
from runs.services import lifecycle
from runs.services.settling import senders
from runs.workers import failover
from tests.contrib.halts.halting import (
    WHY,
    Asking,
    calls,
    halt,
    held,
    lift,
    lift_for_all,
    now_halted,
)
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.stage import Stage, events, facts, fresh, in_thread, kinds, output, problems, waiting
from tests.integration.runs.test_asking_upstream import answers
from tests.integration.runs.test_late import comes_back, tells
from tests.world import OLGA, Done, Outside, Toolbox

pytestmark = pytest.mark.django_db
FOUND = Happened(Done(ref="as the other side has it"))
HOOKED = ("hooked", "hooked_mail")


def in_doubt(stage: Stage, tools: Toolbox, name: str) -> Run:
    stage.halts = Asking(stage)
    run = stage.start(calls(tools, name))
    stage.kill_at.append(("CP4", name))
    assert stage.drive() == "killed"
    failover.worker_died(stage.worker.id, "the test says so")
    stage.worker = stage.hire()
    stage.halts = Asking(stage)
    halt("tool", name)
    return run


def cut_off(stage: Stage, outside: Outside, name: str, how: BaseException) -> None:
    stage.halts = Asking(stage)

    def after(call: ToolCall) -> None:
        in_thread(lambda: halt("tool", name))
        raise how

    outside.trouble(name, after, when="after")


def lifted(stage: Stage, run: Run) -> str:
    lift_for_all(now_halted())
    return stage.settle(run)


@pytest.mark.parametrize("name", HOOKED)
def test_an_unknown_outcome_is_asked_after_the_lift_and_once(
    stage: Stage, tools: Toolbox, outside: Outside, name: str
) -> None:
    run, question = in_doubt(stage, tools, name), answers(outside, FOUND)
    assert stage.drive() == "halted" and held() == {run.id} and question == []
    assert facts(run) == ["pending"] and str(fresh(run).state) == "running" and waiting(run) == []
    assert stage.drive() == "idle"
    assert lifted(stage, run) == "completed" and len(question) == 1 and len(outside.requests) == 1
    assert output(run) == "as the other side has it" and facts(run) == ["pending", "reconciled"]
    assert problems(run) == []


@pytest.mark.parametrize("name", HOOKED)
def test_it_is_sent_again_only_where_it_is_told_so_after_the_lift(
    stage: Stage, tools: Toolbox, outside: Outside, name: str
) -> None:
    run, question = in_doubt(stage, tools, name), answers(outside, DidNotHappen())
    outside.requests.clear()
    assert stage.drive() == "halted" and question == []
    assert lifted(stage, run) == "completed" and len(question) == len(outside.requests) == 1 and problems(run) == []


def test_what_has_no_hook_asks_a_person_under_the_halt_too(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = in_doubt(stage, tools, "mail")
    assert stage.drive() == "parked" and [w.kind for w in waiting(run)] == ["reconcile"]
    stage.reconcile(run, "happened", {"ref": "seen"})
    assert stage.drive() == "completed" and len(outside.requests) == 1 and problems(run) == []


@pytest.mark.parametrize("verdict", ["happened", "did_not"])
def test_of_a_lost_answer_a_person_is_asked_who_may_have_the_other_side_asked_after_the_lift(
    stage: Stage, tools: Toolbox, outside: Outside, verdict: str
) -> None:
    question = answers(outside, FOUND if verdict == "happened" else DidNotHappen())
    run = stage.start(calls(tools, "hooked_mail"))
    cut_off(stage, outside, "hooked_mail", TransportError("cut off in the middle"))
    assert stage.drive() == "parked" and question == [] and stage.drive() == "idle"
    (unknown,) = events(run, e.ToolOutcomeUnknown)
    assert unknown.is_sender_done and "cut off in the middle" in unknown.payload["reason"]
    assert unknown.payload["reason"].endswith("the other side was not asked: its tool was halted")
    assert facts(run) == ["pending", "unknown"]
    check_against_journal(run)
    (wait,) = waiting(run)
    lift_for_all(now_halted())
    senders.ask(run.id, wait.pk, justification=WHY, by=OLGA)
    assert stage.drive() == "parked" and len(question) == 1
    assert [x.answer for x in events(run, e.UpstreamTold)] == [verdict]
    stage.reconcile(run, verdict, {"ref": "seen"} if verdict == "happened" else None)
    assert stage.settle(run) == "completed"
    assert len(outside.requests) == (1 if verdict == "happened" else 2) and problems(run) == []


def test_an_answer_that_comes_by_itself_is_put_on_record_under_the_halt(
    stage: Stage, tools: Toolbox, outside: Outside
) -> None:
    """The worker, taken for dead, returns: its call was in flight when the tool was halted."""
    run = stage.start(calls(tools, "hooked_mail"))
    worker = comes_back(stage, run, "hooked_mail")
    stage.halts, question = Asking(stage), answers(outside, FOUND)
    halt("tool", "hooked_mail")
    assert stage.drive() == "halted" and question == []
    assert tells(stage, worker) is True and stage.drive() == "idle"
    assert lifted(stage, run) == "completed" and output(run) == "hooked_mail:go-0" and question == []
    assert facts(run) == ["pending", "reconciled"] and problems(run) == []


def test_what_a_person_wants_asked_is_asked_after_the_lift_and_they_may_settle_it_before(
    stage: Stage, tools: Toolbox, outside: Outside
) -> None:
    answers(outside, None)
    outside.trouble("hooked_mail", TransportError("cut"), TransportError("cut"), when="after")
    runs = [stage.start(calls(tools, "hooked_mail")) for _ in range(2)]
    assert stage.drive() == "parked" == stage.drive()
    stage.halts = Asking(stage)
    halt("tool", "hooked_mail")
    question = answers(outside, FOUND)
    for run in runs:
        senders.ask(run.id, Wait.objects.get(run=run, kind="reconcile").pk, justification=WHY, by=OLGA)
        assert stage.drive() == "halted" and question == []
    settled, other = runs
    stage.reconcile(settled, "happened", {"ref": "seen"})
    lift_for_all(now_halted())
    stage.settle(settled)
    stage.settle(other)
    assert str(fresh(settled).state) == "completed" and output(settled) == "seen"
    assert str(fresh(other).state) == "waiting_human" and len(question) == 1
    assert [x.answer for x in events(other, e.UpstreamTold)] == ["happened"] and events(settled, e.UpstreamTold) == []
    assert problems(settled) == problems(other) == [] and len(outside.requests) == 2


@pytest.mark.parametrize("has_asked", [False, True])
def test_of_a_run_that_is_to_end_under_the_halt_a_person_is_asked_and_nobody_else(
    stage: Stage, tools: Toolbox, outside: Outside, has_asked: bool
) -> None:
    run, question = in_doubt(stage, tools, "hooked_mail"), answers(outside, FOUND)
    lifecycle.cancel(run.id, by=OLGA, justification=WHY)
    assert stage.drive() == "parked" and question == [] and [w.kind for w in waiting(run)] == ["reconcile"]
    (unknown,) = events(run, e.ToolOutcomeUnknown)
    assert unknown.payload["reason"].endswith("; the other side was not asked: its tool was halted")
    if has_asked:
        (wait,) = waiting(run)
        senders.ask(run.id, wait.pk, justification=WHY, by=OLGA)
        assert stage.drive() == "parked" and question == []
        assert [x.answer for x in events(run, e.UpstreamTold)] == ["nothing"]
        lift(now_halted())
        senders.ask(run.id, wait.pk, justification=WHY, by=OLGA)
        assert stage.drive() == "parked" and len(question) == 1
        assert [x.answer for x in events(run, e.UpstreamTold)] == ["nothing", "happened"]
    stage.reconcile(run, "happened", {"ref": "seen"})
    assert stage.settle(run) == "cancelled" and len(outside.requests) == 1 and problems(run) == []


def test_a_worker_that_has_just_looked_and_found_no_halt_asks_nobody(
    stage: Stage, tools: Toolbox, outside: Outside
) -> None:
    run = in_doubt(stage, tools, "hooked")
    lift(now_halted())
    known = KnownHalts(stage.worker.id)  # without a pool it couldn't ask

    async def look() -> None:
        async with (await stage.connected()).connection() as link:
            await known.refresh(link, {})

    stage.wait(look())
    stage.halts, question = known, answers(outside, FOUND)
    assert stage.settle(run) == "completed" and len(question) == 1 and "ToolReconciled" in kinds(run)
