from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import Group, User

from durableagents import BusinessFailure, TransportError
from ledger import events as e
from runs.models import Process, Run
from runs.services import callbacks
from runs.services.late_results import lost_worker, record_late_result
from runs.workers import failover
from tests.integration.approvals.setup import somebody
from tests.integration.console.conftest import Reader
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.situations import act
from tests.integration.runs.stage import Stage, calling, events, facts, fresh, in_thread, output, waiting
from tests.integration.runs.test_asking_upstream import ask
from tests.integration.runs.test_callbacks import TAKEN, token_of
from tests.integration.runs.test_late import comes_back, forgetful, tells
from tests.integration.runs.test_late_news import said_of
from tests.integration.runs.test_steering import is_sound
from tests.world import Outside, Toolbox


def denied(stage: Stage, tools: Toolbox, name: str = "mail") -> tuple[Run, Any]:
    """Return a run whose unsafe call a person declared undone, and its worker, alive with the answer."""
    run = stage.start(calling(tools, name))
    worker = comes_back(stage, run, name)
    assert stage.drive() == "parked"
    Process.objects.filter(pk=worker.id).update(end_cause="proof")
    stage.reconcile(run, "did_not")
    return run, worker


def asked_again(stage: Stage, run: Run, outside: Outside) -> None:
    """Assert that the run asks a person about the attempt with the late result, and sent nothing."""
    assert stage.drive() == "parked"
    (wait,) = waiting(run)
    assert (wait.kind, wait.attempt, str(fresh(run).state)) == ("reconcile", 0, "waiting_human")
    assert len(outside.requests) == 1 and [x.attempt for x in events(run, e.ToolInvoked)] == [0]
    is_sound(run)
    assert stage.drive() == "idle"


def read_by_an_operator(run: Run) -> str:
    user, _ = User.objects.get_or_create(username="opal")
    user.groups.set([Group.objects.get_or_create(name="operator")[0]])
    return " ".join(Reader(user).read(f"/runs/{run.id}").split())


def test_someone_who_is_asked_again_is_told_why(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run, worker = denied(stage, tools)
    tells(stage, worker)
    asked_again(stage, run, outside)
    page = read_by_an_operator(run)
    assert "Check this first: settled as it did not happen , and the sending worker" in page
    assert "the sending worker of the call reports that it happened (event" in page and "mail:a" in page
    assert "is unknown again" in page and "it happens twice" in page
    assert "about to be sent again" not in page
    assert "a late result says" in waiting(run)[0].detail["reason"]


@pytest.mark.parametrize("verdict", ["happened", "did_not", "fail"])
def test_contradicted_verdict_is_asked_again(stage: Stage, tools: Toolbox, outside: Outside, verdict: str) -> None:
    run, worker = denied(stage, tools)
    assert tells(stage, worker) is False
    asked_again(stage, run, outside)
    act(verdict, run)
    check_against_journal(run)
    match verdict:
        case "happened":
            assert stage.drive() == "completed" and output(run) == "seen" and len(outside.requests) == 1
        case "did_not":
            assert stage.drive() == "completed" and [r.attempt for r in outside.requests] == [0, 1]
        case _:
            assert str(fresh(run).state) == "failed"
            act("retry", run)
            assert stage.drive() == "operator" and events(run, e.OperatorNeeded)[-1].reason == "late_news"
            assert "doesn't go out again before a person" in said_of(run)
            page = read_by_an_operator(run)
            assert "An answer came when the run had gone on without it; after a retry the call doesn't go out" in page
            assert "on record: fail the run , and the sending worker of the call reports that it happened" in page
            assert "late_news" not in page and "late[0]" not in page
            act("retry", run)
            asked_again(stage, run, outside)
    is_sound(run)


def test_upstream_is_asked_about_the_earlier_attempt_under_its_key(
    stage: Stage, tools: Toolbox, outside: Outside
) -> None:
    items: list[str | None] = []
    outside.hook = lambda args, call: items.append(call.key)
    run = stage.start(forgetful(tools, outside, key_ttl=timedelta(microseconds=1)))
    worker = comes_back(stage, run, "reserve")
    assert stage.drive() == "parked"
    Process.objects.filter(pk=worker.id).update(end_cause="proof")
    stage.reconcile(run, "did_not")
    tells(stage, worker)
    asked_again(stage, run, outside)
    ask(run, somebody("olga", "operator"))
    assert stage.drive() == "parked"
    (key,) = {request.key for request in outside.requests}
    assert items == [key, key] and key is not None


def breaks_before_it_leaves(stage: Stage) -> None:
    stage.claim()
    (run_id,) = Run.objects.filter(owner=stage.worker.id).values_list("id", flat=True)
    failover.engine_failed(run_id, stage.worker.id, "it broke here")


def test_verdict_given_in_view_of_it_stops_no_retry(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run, worker = denied(stage, tools)
    tells(stage, worker)
    asked_again(stage, run, outside)
    act("did_not", run)
    breaks_before_it_leaves(stage)
    act("retry", run)
    assert stage.drive() == "completed" and [r.attempt for r in outside.requests] == [0, 1]
    assert not [x for x in events(run, e.OperatorNeeded) if x.reason == "late_news"]
    is_sound(run)


def test_retry_goes_on_with_a_further_attempt_under_way(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run, worker = denied(stage, tools)
    outside.trouble("mail", TransportError("cut"), when="after")
    assert stage.drive() == "parked" and [w.attempt for w in waiting(run)] == [1]
    act("fail", run, wait_id=waiting(run)[0].pk)  # another attempt was unknown before
    tells(stage, worker)
    act("retry", run)
    assert stage.drive() == "operator" and "goes on with that further attempt" in said_of(run)
    act("retry", run)
    assert stage.drive() == "parked" and [(w.kind, w.attempt) for w in waiting(run)] == [("reconcile", 1)]
    assert len(outside.requests) == 2
    check_against_journal(run)


def test_the_word_comes_just_before_the_intent_is_written(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    """The worker has read the journal; the database has newer facts."""
    run, worker = denied(stage, tools)

    def meanwhile(point: str, tool: str) -> None:
        if (point, tool) == ("CP1", "mail"):
            stage.at = lambda point, tool: None
            assert in_thread(partial(tells, stage, worker)) is False

    stage.at = meanwhile
    asked_again(stage, run, outside)


def test_without_a_witness_it_is_sent_again_at_once(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run, _ = denied(stage, tools)
    assert stage.drive() == "completed" and [r.attempt for r in outside.requests] == [0, 1]
    check_against_journal(run)


def test_late_result_during_the_repeat_delays_nothing(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run, worker = denied(stage, tools)
    (answer,) = stage.late
    outside.trouble(
        "mail", lambda call: in_thread(lambda: record_late_result(answer, lost_worker(worker.id))), when="after"
    )
    assert stage.drive() == "completed" and [r.attempt for r in outside.requests] == [0, 1]
    assert events(run, e.ToolAnsweredLate)[0].contradicts == "did_not"
    check_against_journal(run)


@pytest.mark.parametrize("verdict", ["happened", "did_not"])
def test_refused_call_with_a_callback_is_asked(stage: Stage, tools: Toolbox, outside: Outside, verdict: str) -> None:
    """The answer comes after the retry, so the retry couldn't show it."""
    outside.trouble("ask", BusinessFailure("no", code="no_credit"), when="after")
    run = stage.start(calling(tools, "ask"))
    assert stage.drive() == "failed"
    act("retry", run)
    assert callbacks.receive_callback(token_of(outside), {"ref": "on second thoughts"}) == TAKEN
    asked_again(stage, run, outside)
    act(verdict, run)
    if verdict == "happened":
        assert stage.drive() == "completed" and output(run) == "seen" and len(outside.requests) == 1
    else:
        assert stage.drive() == "parked" and [r.attempt for r in outside.requests] == [0, 1]
    is_sound(run)


def test_nobody_is_asked_to_approve_what_may_have_been_done(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    """The earlier approval covers no further attempt, so its queue would be asked again; first a person looks."""

    run = stage.start(calling(tools, "wire", "a", 5000))
    assert stage.drive() == "parked"
    stage.decide(run)
    worker = comes_back(stage, run, "wire")
    assert stage.drive() == "parked"
    Process.objects.filter(pk=worker.id).update(end_cause="proof")
    stage.reconcile(run, "did_not")
    tells(stage, worker)
    asked_again(stage, run, outside)
    assert len(events(run, e.ApprovalRequested)) == 1
    act("did_not", run)
    assert stage.drive() == "parked" and [w.kind for w in waiting(run)] == ["approval"]
    stage.decide(run)
    assert stage.drive() == "completed" and [r.attempt for r in outside.requests] == [0, 1]
    check_against_journal(run)


def test_cancelled_run_names_what_may_have_happened(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run, worker = denied(stage, tools)
    tells(stage, worker)
    asked_again(stage, run, outside)
    act("cancel", run)
    assert str(fresh(run).state) == "cancelled" and waiting(run) == []
    assert events(run, e.RunCancelled)[0].in_flight == ["0.1/1"]
    assert facts(run) == ["pending", "unknown", "reconciled"]
    check_against_journal(run)
