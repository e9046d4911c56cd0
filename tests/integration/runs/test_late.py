"""A worker taken for dead returns with an answer: it may not write it, but may hand it in."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from durableagents import BusinessFailure, Context, End, Happened, ReplayClass, ToolCall, tool
from ledger import events as e
from ledger.errors import IllegalTransition, StaleLease
from ledger.models import Event
from runs.journal.claims import Worker
from runs.models import Incident, Process, Run
from runs.services import late_results
from runs.services.late_results import lost_worker, record_late_result
from runs.workers import failover
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.situations import act
from tests.integration.runs.stage import (
    Stage,
    calling,
    events,
    facts,
    fresh,
    in_thread,
    kinds,
    now,
    output,
    overrides,
    problems,
    waiting,
)
from tests.integration.runs.test_steering import check_form, is_sound
from tests.world import Done, Item, Notes, Outside, Toolbox, agent_of


def comes_back(stage: Stage, run: Run, name: str, *, at: str = "CP4") -> Worker:
    """Let a worker drive the run, be taken for dead at a crash point of its call, and continue."""
    worker = stage.hire()

    def taken_for_dead(point: str, tool: str) -> None:
        if (point, tool) == (at, name):
            stage.at = lambda point, tool: None
            in_thread(lambda: failover.worker_died(worker.id, "stopped for too long", Incident.Cause.SUSPICION))

    stage.at = taken_for_dead
    with pytest.raises(StaleLease):
        stage.drive(worker)
    return worker


def tells(stage: Stage, worker: Worker) -> bool:
    (answer,) = stage.late
    return record_late_result(answer, lost_worker(worker.id))


@pytest.mark.parametrize("at", ["CP2", "CP4"])
def test_late_answer_settles_an_open_question(stage: Stage, tools: Toolbox, outside: Outside, at: str) -> None:
    run = stage.start(calling(tools, "mail"))
    worker = comes_back(stage, run, "mail", at=at)
    assert stage.drive() == "parked" and [w.kind for w in waiting(run)] == ["reconcile"]
    assert tells(stage, worker) is True
    assert waiting(run) == [] and str(fresh(run).state) == "running"
    (settled,) = events(run, e.ToolReconciled)
    assert (settled.verdict, settled.by) == ("happened", f"worker:{worker.id}")
    assert stage.drive() == "completed" and output(run) == "mail:a"
    assert len(outside.requests) == 1 and facts(run) == ["pending", "unknown", "reconciled"]
    check_form(run)
    assert problems(run) == []


def test_it_comes_before_anybody_took_the_run(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = stage.start(calling(tools, "mail"))
    worker = comes_back(stage, run, "mail")
    assert tells(stage, worker) is True
    assert stage.drive() == "completed" and output(run) == "mail:a"
    assert events(run, e.ToolOutcomeUnknown) == [] and len(outside.requests) == 1


def test_late_answer_beats_an_unknown_outcome(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    """The next worker has read the journal and asks the hook; then the answer comes, and nobody is asked."""
    run = stage.start(calling(tools, "hooked_mail"))
    worker = comes_back(stage, run, "hooked_mail")
    (answer,) = stage.late
    outside.hook = lambda args, call: in_thread(lambda: record_late_result(answer, lost_worker(worker.id))) and None
    assert stage.drive() == "completed" and output(run) == "hooked_mail:a"
    assert events(run, e.ToolOutcomeUnknown) == [] and waiting(run) == [] and len(outside.requests) == 1
    check_form(run)


def test_it_comes_while_the_hook_is_telling_the_same(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    """The first recorded answer is valid, and the node uses it."""
    run = stage.start(calling(tools, "hooked_mail"))
    worker = comes_back(stage, run, "hooked_mail")
    (answer,) = stage.late

    def found(args: Any, call: Any) -> Any:
        in_thread(lambda: record_late_result(answer, lost_worker(worker.id)))
        return Happened(Done(ref="as the hook has it"))

    outside.hook = found
    assert stage.drive() == "completed" and output(run) == "hooked_mail:a"
    assert kinds(run).count("ToolReconciled") == 1 and facts(run) == ["pending", "reconciled"]
    check_form(run)


def test_handing_it_in_again_changes_nothing(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(calling(tools, "mail"))
    worker = comes_back(stage, run, "mail")
    assert [tells(stage, worker), tells(stage, worker)] == [True, False]
    assert kinds(run).count("ToolReconciled") == 1 and kinds(run).count("ToolAnsweredLate") == 0


def test_a_call_that_was_repeated_meanwhile_keeps_its_outcome(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = stage.start(calling(tools, "order"))
    worker = comes_back(stage, run, "order")
    assert stage.drive() == "completed"
    before = output(run), facts(run), fresh(run).state
    assert tells(stage, worker) is False
    assert (output(run), facts(run), fresh(run).state) == before
    (found,) = events(run, e.ToolAnsweredLate)
    assert (found.outcome, found.contradicts, found.payload["result"]["ref"]) == ("happened", "", "order:a")
    check_form(run)


def test_a_keyed_call_that_waits_for_its_timer_is_settled(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    from durableagents import TransportError

    run = stage.start(calling(tools, "order"))
    worker = comes_back(stage, run, "order")
    outside.trouble("order", TransportError("down"))
    assert stage.drive() == "parked" and [w.kind for w in waiting(run)] == ["timer"]
    assert tells(stage, worker) is True and waiting(run) == []
    assert stage.drive() == "completed" and len(outside.requests) == 1
    check_form(run)


@pytest.mark.parametrize("verdict", ["did_not", "fail"])
def test_contradiction_is_logged(stage: Stage, tools: Toolbox, caplog: pytest.LogCaptureFixture, verdict: str) -> None:
    run = stage.start(calling(tools, "mail"))
    worker = comes_back(stage, run, "mail")
    assert stage.drive() == "parked"
    Process.objects.filter(pk=worker.id).update(end_cause="proof")
    stage.reconcile(run, verdict)
    before = fresh(run).state
    assert tells(stage, worker) is False and fresh(run).state == before
    (found,) = events(run, e.ToolAnsweredLate)
    assert found.contradicts == verdict
    assert [r.levelname for r in caplog.records if r.name == "runs.services.late_results"] == ["ERROR"]


def test_late_refusal_informs_and_decides_nothing(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = stage.start(calling(tools, "mail"))
    outside.trouble("mail", BusinessFailure("no such address", code="bounced"))
    worker = stage.hire()

    def taken_for_dead(point: str, tool: str) -> None:
        if (point, tool) == ("CP2", "mail"):
            in_thread(lambda: failover.worker_died(worker.id, "stopped", Incident.Cause.SUSPICION))

    stage.at = taken_for_dead
    with pytest.raises(StaleLease):
        stage.drive(worker)
    stage.at = lambda point, tool: None
    assert stage.drive() == "parked"
    assert tells(stage, worker) is False
    (found,) = events(run, e.ToolAnsweredLate)
    assert (found.outcome, found.payload["code"]) == ("refused", "bounced") and len(waiting(run)) == 1


def test_a_paused_run_keeps_the_news_until_it_is_resumed(stage: Stage, tools: Toolbox) -> None:
    from tests.integration.runs.situations import act

    run = stage.start(calling(tools, "mail"))
    worker = comes_back(stage, run, "mail")
    assert stage.drive() == "parked"
    act("pause", run)
    assert tells(stage, worker) is True and str(fresh(run).state) == "paused"
    act("resume", run)
    assert stage.drive() == "completed"


def test_a_call_that_this_run_never_made_is_not_taken_from_anybody(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(calling(tools, "mail"))
    stage.drive()
    before = Event.objects.filter(run_id=run.id).count()
    made_up = late_results.LateAnswer(str(run.id), "0.9/9", 0, "mail", result={"ref": "x"})
    assert record_late_result(made_up, lost_worker(stage.worker.id)) is False
    assert Event.objects.filter(run_id=run.id).count() == before


# --- who may still be sending ---


def unknown_of(stage: Stage, tools: Toolbox, *, host: str, cause: str) -> Run:
    """Return a run whose unsafe call's worker was declared dead without proof, on this host or another."""
    run = stage.start(calling(tools, "mail"))
    worker = stage.hire()
    stage.kill_at = [("CP2", "mail")]
    assert stage.drive(worker) == "killed"
    if host:
        Process.objects.filter(pk=worker.id).update(host=host)
    failover.worker_died(worker.id, "silent for 31 s", Incident.Cause(cause))
    assert stage.drive() == "parked"
    return run


def long_ago(run: Run) -> Any:
    return now() + timedelta(hours=1)


@pytest.mark.parametrize("cause", ["host_gone", "suspicion"])
def test_what_a_lost_host_may_still_send_is_not_sent_again_on_a_bare_word(
    stage: Stage, tools: Toolbox, cause: str, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(
        update={"database_url": "postgresql://a.server.for.many/"}
    )
    run = unknown_of(stage, tools, host="lost.example", cause=cause)
    with pytest.raises(IllegalTransition, match="may take until"):
        stage.reconcile(run, "did_not", sender_is_gone=True)
    later = long_ago(run)
    monkeypatch.setattr("runs.services.command.database_now", lambda: later)
    with pytest.raises(IllegalTransition, match=r"sender_is_gone.*declare_dead --host lost\.example"):
        stage.reconcile(run, "did_not")
    stage.reconcile(run, "did_not", sender_is_gone=True)
    (settled,) = events(run, e.ToolReconciled)
    assert "lost.example is gone" in settled.payload["attested"] and overrides(run)[-1].justification == "looked it up"


def test_failed_run_settles_no_call_of_unknown_outcome_after_its_end(
    stage: Stage, tools: Toolbox, outside: Outside
) -> None:

    async def node(state: Notes, ctx: Context) -> End:
        return End(
            [
                each.ref
                for each in await ctx.gather(ctx.call(tools.mail, Item(name="a")), ctx.call(tools.look, Item(name="x")))
            ]
        )

    run = stage.start(agent_of(node, tools=tools.all()))
    worker = comes_back(stage, run, "mail", at="CP2")
    outside.trouble("look", KeyError("a bug"))
    assert stage.drive() == "failed" and kinds(run)[-2:] == ["WaitOpened", "RunFailed"]
    before = facts(run)
    assert tells(stage, worker) is False
    assert (str(fresh(run).state), facts(run), kinds(run)[-1]) == ("failed", before, "ToolAnsweredLate"), (
        "no verdict behind the end"
    )
    act("retry", run)
    assert waiting(run) == []
    check_against_journal(run)
    assert stage.drive() == "completed" and output(run) == ["mail:a", "look:x"] and len(outside.seen("mail")) == 1
    is_sound(run)


# --- a keyed call whose key may have expired ---


def forgetful(tools: Toolbox, outside: Outside, *, key_ttl: timedelta) -> Any:
    @tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, key_ttl=key_ttl, timeout=5, reconcile=tools._ask_hook)
    async def reserve(args: Item, call: ToolCall) -> Done:
        return await outside.take_async("reserve", args, call)

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(reserve, Item(name="a"))).ref)

    return agent_of(node, tools=[reserve])


def test_late_answer_settles_a_call_with_a_spent_key(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = stage.start(forgetful(tools, outside, key_ttl=timedelta(microseconds=1)))
    worker = comes_back(stage, run, "reserve")
    settled: list[bool] = []
    outside.hook = lambda args, call: settled.append(in_thread(lambda: tells(stage, worker)))
    assert stage.drive() == "completed" and output(run) == "reserve:a", "nobody is asked"
    assert settled == [True] and facts(run) == ["pending", "reconciled"] and len(outside.requests) == 1
    is_sound(run)


def test_repeat_keeps_answer(stage: Stage, tools: Toolbox, outside: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    run = stage.start(forgetful(tools, outside, key_ttl=timedelta(hours=1)))
    worker = comes_back(stage, run, "reserve")
    settled: list[bool] = []
    later = now() + timedelta(hours=2)

    def meanwhile(call: ToolCall) -> None:
        monkeypatch.setattr("runs.services.late_results.database_now", lambda: later)
        settled.append(in_thread(lambda: tells(stage, worker)))

    outside.trouble("reserve", meanwhile, when="after")
    assert stage.drive() == "completed" and settled == [False]
    assert facts(run) == ["pending", "committed"] and len(events(run, e.ToolAnsweredLate)) == 1
    check_against_journal(run)


# --- further late results ---


def test_unrecordable_answer_is_no_outcome_for_a_retry(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    """It is known that it came but not its content: a person enters the receipt."""
    run = stage.start(calling(tools, "mail"))
    worker = comes_back(stage, run, "mail")
    (answer,) = stage.late
    assert stage.drive() == "parked"
    act("fail", run)
    late_results.note_unrecorded(answer, lost_worker(worker.id), "too large")
    act("retry", run)
    assert stage.drive() in ("operator", "parked")
    if events(run, e.OperatorNeeded):
        act("retry", run)
        assert stage.drive() == "parked"
    act("happened", run)
    assert stage.drive() == "completed" and output(run) == "seen" and len(outside.requests) == 1
