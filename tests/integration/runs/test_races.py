"""Concurrent actions on one run: one order, one winner, nothing lost or doubled."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from approvals.models import Approval, Decision
from approvals.services import AlreadyDecided, decide
from ledger import events as e
from ledger.errors import IllegalTransition
from runs.models import Run, Wait
from runs.services import callbacks, lifecycle
from runs.workers import failover, timers
from tests.integration.approvals.timing import due, make_late
from tests.integration.runs.situations import Situations, act
from tests.integration.runs.stage import (
    Stage,
    at_once,
    dump,
    events,
    fresh,
    in_thread,
    kinds,
    now,
    overrides,
    problems,
    waiting,
)
from tests.integration.runs.test_steering import check_form
from tests.tiers import many
from tests.world import FIONA, FRANK, OLGA, SHOP, Outside, Toolbox

pytestmark = pytest.mark.every(2)

MANY = many(64, 24)


def check(run: Run) -> None:
    check_form(run)
    assert problems(run) == []


def deciding(approval: Approval, verdict: str, by: Any = FIONA) -> Callable[[], Any]:
    return partial(decide, approval.id, verdict=verdict, plan_hash=approval.plan_hash, justification="quickly", by=by)


def winners(answers: list[Any], loses: type[Exception]) -> list[Any]:
    """Return the successful answers; assert that all others failed with `loses`."""
    won = [a for a in answers if not isinstance(a, Exception)]
    assert [a for a in answers if isinstance(a, Exception) and not isinstance(a, loses)] == []
    return won


@pytest.mark.parametrize("verdicts", [["approve"], ["reject"], ["approve", "reject"]])
def test_of_many_decisions_at_once_the_first_stands(situations: Situations, stage: Stage, verdicts: list[str]) -> None:
    run = situations.make("at_gate")
    approval = run.approvals.get()
    acts = [deciding(approval, verdicts[i % len(verdicts)], (FIONA, FRANK)[i % 2]) for i in range(MANY)]
    (won,) = winners(at_once(*acts), AlreadyDecided)
    (decision,) = Decision.objects.filter(approval=approval)
    (found,) = events(run, e.ApprovalDecided)
    state = {"approve": "approved", "reject": "rejected"}[decision.verdict]
    assert state == won.state == found.verdict == Approval.objects.get(pk=approval.pk).state
    assert decision.by == found.by and Wait.objects.get(pk=approval.wait_id).resolution == state
    check(run)
    assert stage.drive() == ("completed" if state == "approved" else "failed") and stage.drive() == "idle"


@pytest.mark.parametrize("other", ["reject", "expire", "cancel"])
def test_one_of_many_concurrent_acts_wins(situations: Situations, stage: Stage, other: str) -> None:
    run = situations.make("at_gate")
    approval = run.approvals.get()
    if other == "expire":
        make_late(approval, now() + timedelta(seconds=0.3))
    others = {
        "reject": deciding(approval, "reject", FRANK),
        "expire": timers.sweep,
        "cancel": partial(act, "cancel", run),
    }
    acts: list[Callable[[], Any]] = [(deciding(approval, "approve"), others[other])[i % 2] for i in range(MANY)]
    answers = at_once(*acts)
    timers.sweep()
    losers = [a for a in answers if isinstance(a, Exception)]
    winners(answers, (AlreadyDecided, IllegalTransition))  # type: ignore[arg-type]
    approval = Approval.objects.get(pk=approval.pk)
    wait = Wait.objects.get(pk=approval.wait_id)
    found = events(run, e.ApprovalDecided)
    assert len(found) == (approval.state != "withdrawn") and wait.resolution == str(approval.state)
    assert Decision.objects.filter(approval=approval).count() == (approval.state in ("approved", "rejected"))
    for loser in losers:
        if isinstance(loser, AlreadyDecided):
            assert loser.extra["state"] in (str(approval.state), "expired")
            assert loser.extra["decided_by"] in (wait.resolved_by, None) and str(approval.state) in loser.detail
        else:
            assert loser.extra["state"]
    if other == "cancel" and approval.state == "withdrawn":
        assert {loser.extra["decided_by"] for loser in losers if isinstance(loser, AlreadyDecided)} <= {OLGA.ref}
    check(run)
    stage.drive()
    check(run)
    assert stage.drive() == "idle" and fresh(run).state in ("completed", "failed", "cancelled")


@pytest.mark.parametrize("how", ["happened", "did_not", "fail"])
def test_of_many_verdicts_on_one_call_the_first_stands(situations: Situations, stage: Stage, how: str) -> None:
    run = situations.make("unknown")
    verdicts = [how, "happened", "did_not", "fail"]
    won = winners(at_once(*(partial(act, verdicts[i % 4], run) for i in range(24))), IllegalTransition)
    assert len(won) == 1 == len(events(run, e.ToolReconciled)) == len(overrides(run))
    check(run)


@pytest.mark.parametrize(
    ("situation", "service"),
    [
        ("at_gate", "pause"),
        ("owned", "pause"),
        ("paused_at_gate", "resume"),
        ("at_gate", "cancel"),
        ("owned", "cancel"),
        ("failed", "retry"),
        ("stopped", "retry"),
    ],
)
def test_an_act_that_many_make_at_once_is_made_once(situations: Situations, situation: str, service: str) -> None:
    run = situations.make(situation)
    before = len(kinds(run))
    won = winners(at_once(*(partial(act, service, run) for _ in range(24))), IllegalTransition)
    assert len(won) == 1 == len(overrides(run)) - (situation == "paused_at_gate")
    assert len(kinds(run)) == before + 1
    check(run)


PAIRS: list[tuple[str, Callable[[Run, Outside], Callable[[], Any]], str]] = [
    ("at_gate", lambda run, _: deciding(run.approvals.get(), "approve"), "cancel"),
    ("at_gate", lambda run, _: deciding(run.approvals.get(), "reject"), "pause"),
    ("paused_at_gate", lambda run, _: deciding(run.approvals.get(), "approve"), "resume"),
    (
        "at_callback",
        lambda run, o: partial(callbacks.receive_callback, o.urls["0.1/1"].rsplit("/", 1)[1], {"ref": "x"}),
        "cancel",
    ),
    (
        "at_callback",
        lambda run, o: partial(callbacks.receive_callback, o.urls["0.1/1"].rsplit("/", 1)[1], {"ref": "x"}),
        "pause",
    ),
    ("unknown", lambda run, _: partial(act, "happened", run), "cancel"),
    ("unknown", lambda run, _: partial(act, "fail", run), "pause"),
    ("stopped", lambda run, _: partial(act, "retry", run), "cancel"),
]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: f"{p[0]}-{p[2]}")
def test_two_concurrent_acts_have_one_order(situations: Situations, stage: Stage, outside: Outside, pair: Any) -> None:
    """Both succeed, or one refuses the other; then the run is exactly one of ready, waiting, paused, ended."""
    situation, other, service = pair
    for _ in range(2):
        run = situations.make(situation)
        answers = at_once(other(run, outside), partial(act, service, run))
        assert winners(answers, (IllegalTransition, AlreadyDecided))  # type: ignore[arg-type]
        check(run)
        if fresh(run).state == "paused":
            act("resume", run)
        stage.drive()
        assert fresh(run).state != "running", "it was not left behind"
        check(run)
        if fresh(run).state not in ("completed", "failed", "cancelled"):
            act("cancel", run)
            while stage.drive() != "idle":
                pass


# --- a worker releasing a run, and someone at the same moment ---


def meanwhile(stage: Stage, point: str, does: Callable[[], Any]) -> list[Any]:
    """Let someone act and commit when the worker first passes a point."""
    answers: list[Any] = []

    def at(passed: str, tool: str) -> None:
        if passed == point and not answers:
            answers.append(None)
            answers[0] = in_thread(does)

    stage.at = at
    return answers


def test_a_decision_that_comes_before_the_run_parks_is_not_slept_through(situations: Situations, stage: Stage) -> None:
    run = stage.start(situations.agent, text="gate")
    meanwhile(stage, "CP8", lambda: deciding(run.approvals.get(), "approve")())
    assert stage.drive() == "completed"
    assert "RunParked" not in kinds(run)


def test_answer_before_parking_is_noticed(situations: Situations, stage: Stage, outside: Outside) -> None:
    run = stage.start(situations.agent, text="callback")
    meanwhile(
        stage, "CP8", lambda: callbacks.receive_callback(outside.urls["0.1/1"].rsplit("/", 1)[1], {"ref": "early"})
    )
    assert stage.drive() == "completed" and events(run, e.RunCompleted)[0].payload == "early"


@pytest.mark.parametrize(
    ("text", "service", "how"),
    [
        ("gate", "pause", "paused"),
        ("gate", "cancel", "cancelled"),
        ("unknown", "pause", "paused"),
        ("unknown", "cancel", "parked"),
        ("sleep", "pause", "paused"),
        ("sleep", "cancel", "cancelled"),
        ("callback", "cancel", "cancelled"),
    ],
)
def test_a_wish_that_comes_before_the_run_parks_is_heard(
    situations: Situations, stage: Stage, outside: Outside, text: str, service: str, how: str
) -> None:
    from durableagents import TransportError

    outside.trouble("mail", TransportError("cut"), when="after")
    run = stage.start(situations.agent, text=text)
    meanwhile(stage, "CP8", lambda: act(service, run))
    assert stage.drive() == how
    check(run)


@pytest.mark.parametrize("service", ["pause", "cancel"])
def test_wish_in_the_last_step_is_heard(situations: Situations, stage: Stage, tools: Toolbox, service: str) -> None:
    """A cancel before the end commits wins; a pause of a finished run lets it end."""
    run = stage.start(situations.agent, text="end")
    meanwhile(stage, "CP7", lambda: act(service, run))
    assert stage.drive() == {"pause": "completed", "cancel": "cancelled"}[service]
    check(run)


def test_a_reconcile_waits_for_the_worker_to_let_go(situations: Situations, stage: Stage, outside: Outside) -> None:
    from durableagents import TransportError

    outside.trouble("mail", TransportError("cut"), when="after")
    run = stage.start(situations.agent, text="unknown")
    refused: list[str] = []

    def too_early() -> None:
        with pytest.raises(IllegalTransition) as caught:
            act("happened", run)
        refused.append(caught.value.detail)

    meanwhile(stage, "CP8", too_early)
    assert stage.drive() == "parked" and "parking the run" in refused[0]
    act("happened", run)
    assert stage.drive() == "completed"


# --- sweepers and watchdogs ---


@pytest.mark.parametrize("situation", ["asleep", "at_gate", "at_callback", "paused_asleep"])
def test_many_sweepers_act_on_what_is_due_once(situations: Situations, situation: str) -> None:
    run = situations.make(situation)
    due(run)
    before = len(kinds(run))
    at_once(*(timers.sweep for _ in range(16)))
    timers.sweep()
    assert len(kinds(run)) == before + 1 and waiting(run) == []
    check(run)


def test_services_lock_in_one_order_and_never_deadlock(situations: Situations, outside: Outside) -> None:
    """A deadlock would show as an OperationalError in an answer."""
    run = situations.make("at_gate")
    approval = run.approvals.get()
    due(run)
    acts: list[Callable[[], Any]] = []
    for i in range(12):
        acts += [
            deciding(approval, ("approve", "reject")[i % 2]),
            partial(act, ("pause", "resume", "cancel", "retry")[i % 4], run),
            timers.sweep,
            failover.watch,
        ]
    answers = at_once(*acts)
    winners(answers, (IllegalTransition, AlreadyDecided))  # type: ignore[arg-type]
    check(run)


def test_many_may_start_at_once(situations: Situations) -> None:
    answers = at_once(*(partial(lifecycle.start, situations.agent.graph_id, {}, by=SHOP) for _ in range(32)))
    assert len({run.id for run in answers}) == 32 == Run.objects.count()
    for run in answers:
        assert kinds(run) == ["RunCreated"]


def test_a_loser_leaves_nothing_behind(situations: Situations) -> None:
    run = situations.make("at_gate")
    approval = run.approvals.get()
    deciding(approval, "approve")()
    before = dump()
    winners(at_once(*(deciding(approval, "reject") for _ in range(8))), AlreadyDecided)
    winners(
        at_once(*(partial(lifecycle.resume, run.id, by=OLGA, justification="as seen") for _ in range(8))),
        IllegalTransition,
    )
    assert dump() == before
