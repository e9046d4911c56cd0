"""An operator has the system asked again about a call: a worker asks, and the answer is shown."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from durableagents import DidNotHappen, Happened, TransportError
from ledger import events as e
from ledger.actors import Actor
from ledger.errors import Forbidden, IllegalTransition, JustificationRequired, StaleLease
from ledger.models import ActRecord
from runs.models import Run, Wait
from runs.services import authority, lifecycle, reconciling
from runs.services.settling import senders
from runs.services.settling.agreeing import Heard, heard
from runs.workers import failover
from tests.integration.approvals.setup import WHY, somebody
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.situations import Situations
from tests.integration.runs.stage import (
    Stage,
    at_once,
    calling,
    dump,
    events,
    fresh,
    in_thread,
    kinds,
    output,
    problems,
    waiting,
)
from tests.world import Done, Outside, Toolbox

FOUND = Happened(Done(ref="as the mailbox has it"))


@pytest.fixture
def olga(stage: Stage) -> Actor:
    return somebody("olga", "operator")


@pytest.fixture
def run(stage: Stage, tools: Toolbox, outside: Outside) -> Run:
    return hooked(stage, tools, outside)


def hooked(stage: Stage, tools: Toolbox, outside: Outside) -> Run:
    """Return a run whose mail may have left, and whose hook found nothing."""

    outside.hook = lambda args, call: None
    outside.trouble("hooked_mail", TransportError("cut"), when="after")
    found = stage.start(calling(tools, "hooked_mail", "letter"))
    assert stage.drive() == "parked" and [w.kind for w in waiting(found)] == ["reconcile"]
    return found


def ask(run: Run, by: Actor, why: str = WHY) -> Run:
    return senders.ask(
        run.id, Wait.objects.get(run=run, kind="reconcile", resolved_at=None).pk, justification=why, by=by
    )


def told(run: Run) -> Heard:
    (found,) = heard(run.waits.filter(kind="reconcile", resolved_at__isnull=True)).values()
    return found


def answers(outside: Outside, answer: Any) -> list[str]:
    """Let the hook answer this from now on; return the list of calls it is asked about."""
    items: list[str] = []

    def hook(args: Any, call: Any) -> Any:
        items.append(f"{call.slot} {call.attempt}")
        if isinstance(answer, BaseException):
            raise answer
        return answer

    outside.hook = hook
    return items


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("answer", "word", "result"),
    [
        (FOUND, "happened", {"ref": "as the mailbox has it", "amount": 0}),
        (DidNotHappen(), "did_not", None),
        (None, "nothing", None),
        (RuntimeError("the mailbox is away"), "nothing", None),
        (SystemExit(3), "nothing", None),  # the worker survives, with all its runs
        (asyncio.CancelledError(), "nothing", None),  # nobody cancels the worker: the hook cancels itself
    ],
)
def test_it_is_asked_by_a_worker_and_what_it_says_settles_nothing(
    run: Run, stage: Stage, outside: Outside, olga: Actor, answer: Any, word: str, result: Any
) -> None:
    question = answers(outside, answer)
    ask(run, olga)
    assert str(fresh(run).state) == "running" and told(run).is_asked and question == []
    assert stage.drive() == "parked" and len(question) == 1
    found = told(run)
    assert (found.is_asked, found.answer, found.result, found.asked_by) == (False, word, result, "user:olga")
    assert [w.kind for w in waiting(run)] == ["reconcile"] and str(fresh(run).state) == "waiting_human"
    assert len(outside.requests) == 1 and events(run, e.ToolReconciled) == []
    assert ActRecord.objects.get(run_id=run.id, action="upstream_ask").justification == WHY
    check_against_journal(run)
    assert problems(run) == []
    reconciling.reconcile(run.id, verdict="happened", receipt={"ref": "seen"}, justification=WHY, by=olga)
    assert stage.drive() == "completed" and output(run) == "seen" and len(question) == 1 and problems(run) == []


def test_it_can_be_asked_again_once_it_has_answered(run: Run, stage: Stage, outside: Outside, olga: Actor) -> None:
    answers(outside, None)
    ask(run, olga)
    before = dump()
    with pytest.raises(IllegalTransition, match="pending since event"):
        ask(run, olga)
    assert dump() == before
    stage.drive()
    question = answers(outside, FOUND)
    ask(run, olga)
    assert stage.drive() == "parked" and len(question) == 1 and told(run).answer == "happened"
    assert [x.n for x in events(run, e.UpstreamTold)] == [0, 1] and problems(run) == []


def test_where_nobody_can_be_asked_it_is_refused(situations: Situations, olga: Actor) -> None:
    run = situations.make("unknown")
    before = dump()
    with pytest.raises(IllegalTransition, match="has no `reconcile` hook"):
        ask(run, olga)
    with pytest.raises(JustificationRequired):
        ask(run, olga, "")
    with pytest.raises(Forbidden):
        ask(run, Actor("user", "fiona", role="approver_finance", auth="session", person=99))
    assert dump() == before
    for name in ("completed", "at_gate"):
        other = situations.make(name)
        with pytest.raises(IllegalTransition):
            senders.ask(other.id, Wait.objects.filter(run=run).get().pk, justification=WHY, by=olga)


def test_next_worker_asks_after_the_first_one_died(run: Run, stage: Stage, outside: Outside, olga: Actor) -> None:
    ask(run, olga)
    worker = stage.hire()

    def dies(args: Any, call: Any) -> Any:
        in_thread(lambda: failover.worker_died(worker.id, "killed"))
        return FOUND

    outside.hook = dies
    with pytest.raises(StaleLease):
        stage.drive(worker)
    assert events(run, e.UpstreamTold) == [] and told(run).is_asked
    answers(outside, FOUND)
    assert stage.drive() == "parked" and told(run).answer == "happened" and len(outside.requests) == 1
    assert problems(run) == []


def test_under_a_pause_it_is_asked_when_the_run_goes_on(run: Run, stage: Stage, outside: Outside, olga: Actor) -> None:
    lifecycle.pause(run.id, by=olga, justification=WHY)
    question = answers(outside, FOUND)
    ask(run, olga)
    assert stage.drive() == "idle" and question == [] and str(fresh(run).state) == "paused" and problems(run) == []
    lifecycle.resume(run.id, by=olga, justification=WHY)
    assert stage.drive() == "parked" and told(run).answer == "happened" and problems(run) == []


def test_of_a_run_that_is_to_end_it_is_asked_too(run: Run, stage: Stage, outside: Outside, olga: Actor) -> None:
    lifecycle.cancel(run.id, by=olga, justification=WHY)
    assert stage.drive() in ("parked", "idle")
    question = answers(outside, FOUND)
    ask(run, olga)
    assert stage.drive() == "parked" and len(question) == 1 and told(run).answer == "happened"
    assert problems(run) == []
    reconciling.reconcile(run.id, verdict="happened", receipt={"ref": "seen"}, justification=WHY, by=olga)
    assert stage.drive() == "cancelled" and problems(run) == []


def test_what_comes_first_stands(run: Run, stage: Stage, outside: Outside, olga: Actor) -> None:
    """A person settles it while the hook is asked; the hook's answer is dropped."""
    ask(run, olga)

    def settled(args: Any, call: Any) -> Any:
        with pytest.raises(IllegalTransition):  # a worker has the run and may be parking it
            in_thread(lambda: reconciling.reconcile(run.id, verdict="did_not", justification=WHY, by=olga))
        return FOUND

    outside.hook = settled
    assert stage.drive() == "parked" and told(run).answer == "happened" and problems(run) == []


def test_many_ask_at_once_and_it_is_asked_once(run: Run, stage: Stage, outside: Outside) -> None:
    many = [somebody(f"op{n}", "operator") for n in range(8)]
    found = at_once(*(partial(ask, run, by) for by in many))
    assert sum(isinstance(x, Run) for x in found) == 1
    assert all(isinstance(x, Run | IllegalTransition) for x in found)
    question = answers(outside, None)
    stage.drive()
    assert len(question) == 1 and kinds(run).count("UpstreamAsked") == 1 and problems(run) == []


def test_asking_upstream_takes_no_part_in_the_run(run: Run, stage: Stage, outside: Outside, olga: Actor) -> None:
    ask(run, olga)
    assert authority.own_act(fresh(run), olga.person, "olga") is None


def test_retry_asks_what_a_failure_left_unasked(run: Run, stage: Stage, outside: Outside, olga: Actor) -> None:
    ask(run, olga)
    reconciling.reconcile(run.id, verdict="fail", justification=WHY, by=olga)
    lifecycle.retry(run.id, by=olga, justification=WHY)
    question = answers(outside, FOUND)
    assert stage.drive() == "parked" and len(question) == 1 and told(run).answer == "happened" and problems(run) == []
    ask(run, olga)
    assert stage.drive() == "parked" and len(question) == 2 and problems(run) == []


def test_cancel_asks_what_a_pause_left_unasked(run: Run, stage: Stage, outside: Outside, olga: Actor) -> None:
    lifecycle.pause(run.id, by=olga, justification=WHY)
    ask(run, olga)
    lifecycle.cancel(run.id, by=olga, justification=WHY)
    question = answers(outside, FOUND)
    assert stage.drive() == "parked" and len(question) == 1 and told(run).answer == "happened" and problems(run) == []
