from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from threading import Event as Flag
from typing import Any

import pytest

from durableagents import Agent, Context, End, ReplayClass, ToolCall, tool
from durableagents.contrib.forks import forking
from durableagents.contrib.forks.forking import ForkRequest
from durableagents.contrib.forks.starting_again import StartAgainRequest, Verdict, read_remains, start_again
from ledger import events as e
from ledger.actors import Actor
from ledger.errors import IllegalTransition, InvalidInput
from runs.models import Incident, Process, Run
from runs.services import lifecycle, reconciling
from runs.workers import failover
from tests.contrib.change_control.test_settling import ann, ben, guarded, two
from tests.contrib.forks.test_forks import AGAIN, NO, asked, say
from tests.contrib.forks.test_start_again import tear
from tests.integration.runs.aging import all_earlier
from tests.integration.runs.situations import Situations
from tests.integration.runs.stage import Stage, calling, dump, events, fresh, in_thread, problems
from tests.world import OLGA, Done, Item, Notes, Outside, Toolbox, agent_of

__all__ = ["ann", "ben", "two"]  # fixtures
DID_NOT, HAPPENED, UNKNOWN = "did_not", "happened", "unknown"
GONE = {"sender_is_gone": True}


@pytest.fixture
def line() -> Iterator[Flag]:
    """Holds its sender until set."""
    line = Flag()
    yield line
    line.set()


@pytest.fixture
def sent() -> list[str]:
    return []


@pytest.fixture
def faxing(line: Flag, sent: list[str]) -> Agent:
    @tool(replay_class=ReplayClass.UNSAFE_ON_REPLAY, timeout=0.2)
    def fax(args: Item, call: ToolCall) -> Done:
        sent.append(args.name)
        line.wait(60)
        return Done(ref="fax")

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(fax, Item(name="letter"))).ref)

    return agent_of(node, tools=[fax], name="faxing")


@pytest.fixture
def failed(stage: Stage, faxing: Agent) -> Run:
    """Return a run that a person failed while its call's thread continues."""
    run = stage.start(faxing)
    assert stage.drive() == "parked"
    stage.reconcile(run, "fail")
    return run


def again(run: Run, counts_as: str, *, by: Actor = OLGA, **said: Any) -> Run:
    audit = [Verdict(x.slot, x.attempt, counts_as, x.run, **said) for x in read_remains(fresh(run)).effects]
    return start_again(run.pk, StartAgainRequest(audit), by=by, justification="it went wrong")


def lose(stage: Stage, run: Run) -> None:
    """Let its worker on another host be declared dead without proof during a call; then fail the run."""
    worker = stage.hire()
    stage.kill_at = [("CP2", "mail")]
    assert stage.drive(worker) == "killed"
    Process.objects.filter(pk=worker.id).update(host="lost.example")
    failover.worker_died(worker.id, "silent for 31 s", Incident.Cause.HOST_GONE)
    assert stage.drive() == "parked"
    stage.reconcile(run, "fail")


@pytest.fixture
def many(settings: Any) -> None:
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(
        update={"database_url": "postgresql://a.server.for.many/"}
    )


# --- a sender that may still be active --------------------------------------------------------------------------------


def test_it_is_not_begun_again_while_what_it_sent_may_be_on_its_way(failed: Run, sent: list[str]) -> None:
    before = dump()
    for said in ({}, GONE):
        with pytest.raises(InvalidInput, match="still alive and may still be sending"):
            in_thread(lambda said=said: again(failed, DID_NOT, **said))  # type: ignore[misc]
    assert dump() == before and sent == ["letter"]


def test_and_is_once_its_sender_is_gone(stage: Stage, failed: Run, line: Flag, sent: list[str]) -> None:
    failover.worker_died(stage.worker.id, "the test says so")
    made = again(failed, DID_NOT)
    line.set()
    stage.worker = stage.hire()
    assert stage.drive() == "completed" and sent == ["letter", "letter"] and problems(made) == []


def test_attestation_needs_the_time_to_have_passed(stage: Stage, tools: Toolbox, outside: Outside, many: None) -> None:
    run = stage.start(calling(tools, "mail"))
    lose(stage, run)
    with pytest.raises(InvalidInput, match="may take until"):
        again(run, DID_NOT, **GONE)
    all_earlier(run.pk, timedelta(hours=1))
    with pytest.raises(InvalidInput, match=r"sender_is_gone.*declare_dead --host lost\.example"):
        again(run, DID_NOT)
    made = again(run, DID_NOT, **GONE)
    (found,) = events(made, e.RunForked)
    (gone,) = found.payload["attested"]
    assert gone.startswith("mail at 0.1/1: pid ") and gone.endswith(" on lost.example is gone")
    assert stage.drive() == "completed" and len(outside.executed("mail")) == 1 and problems(made) == []


def test_that_it_happened_or_is_unknown_may_be_said_at_any_time(stage: Stage, failed: Run, sent: list[str]) -> None:
    made = again(failed, HAPPENED, result={"ref": "the fax's journal", "amount": 0})
    assert stage.drive() == "completed" and sent == ["letter"] and problems(made) == []


def test_a_word_at_the_call_is_no_way_round(stage: Stage, failed: Run, line: Flag, sent: list[str]) -> None:
    made = again(failed, UNKNOWN)
    assert stage.drive() == "parked"
    before = dump()
    with pytest.raises(IllegalTransition, match="still alive and may still be sending"):
        in_thread(lambda: say(made, AGAIN))
    assert dump() == before and sent == ["letter"]
    failover.worker_died(stage.worker.id, "the test says so")
    say(made, AGAIN)
    line.set()
    stage.worker = stage.hire()
    assert stage.drive() == "completed" and sent == ["letter", "letter"] and problems(made) == []


def test_nor_is_a_fork(stage: Stage, failed: Run, sent: list[str]) -> None:
    made = forking.fork(failed.pk, ForkRequest(1), by=OLGA, justification="once more")
    assert stage.drive() == "parked"
    with pytest.raises(IllegalTransition, match="still alive and may still be sending"):
        in_thread(lambda: say(made, AGAIN))
    say(made, NO)
    stage.settle(made)
    assert sent == ["letter"] and problems(made) == []


def test_the_word_at_the_call_attests_it_too(stage: Stage, tools: Toolbox, outside: Outside, many: None) -> None:
    run = stage.start(calling(tools, "mail"))
    lose(stage, run)
    made = again(run, UNKNOWN)
    assert stage.drive() == "parked"
    with pytest.raises(IllegalTransition, match="may take until"):
        say(made, AGAIN)
    all_earlier(run.pk, timedelta(hours=1))
    with pytest.raises(IllegalTransition, match="sender_is_gone"):
        say(made, AGAIN)
    assert asked(made).detail["schema"]["properties"]["sender_is_gone"]["type"] == "boolean"
    say(made, AGAIN | GONE)
    (answered,) = events(made, e.InputAnswered)
    assert answered.payload["attested"].endswith("on lost.example is gone")
    assert stage.drive() == "completed" and len(outside.executed("mail")) == 1 and problems(made) == []


def test_unnamed_sender_needs_an_attestation(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = Situations(stage, tools).make("unknown")
    stage.reconcile(run, "fail")
    tear(run, "ToolOutcomeUnknown")
    with pytest.raises(InvalidInput, match="still alive"):  # the proof that its sender is done is unreadable
        again(run, DID_NOT)
    failover.worker_died(stage.worker.id, "the test says so")
    assert again(run, DID_NOT).forked_from == run.pk


def parent_of(child: Agent) -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        return End(await ctx.child(child, {"text": "x", "amount": 1}))

    return agent_of(node, name="above-faxing")


@pytest.fixture
def above(stage: Stage, faxing: Agent) -> Run:
    """A parent that failed because its child was failed while the child's call continues."""
    parent = stage.start(parent_of(faxing))
    stage.settle(parent)
    child = Run.objects.get(parent=parent.pk)
    stage.drive()
    assert [w.kind for w in child.waits.filter(resolved_at=None)] == ["reconcile"]
    stage.reconcile(child, "fail")
    stage.settle(parent)
    assert str(fresh(parent).state) == "failed"
    return parent


def test_a_run_between_is_no_way_round(stage: Stage, above: Run, line: Flag, sent: list[str]) -> None:
    with pytest.raises(InvalidInput, match="still alive and may still be sending"):
        in_thread(lambda: again(above, DID_NOT))
    failover.worker_died(stage.worker.id, "the test says so")
    assert again(above, DID_NOT).forked_from == above.pk and sent == ["letter"]


def test_a_run_that_it_started_and_that_is_at_work_is_ended_first(stage: Stage, tools: Toolbox) -> None:
    async def below(state: Notes, ctx: Context) -> End:
        await ctx.signal("go")
        return End()

    under = agent_of(below, name="below-at-work")
    parent = stage.start(parent_of(under))
    stage.settle(parent)
    child = Run.objects.get(parent=parent.pk)
    with pytest.raises(InvalidInput, match=f"Run {child.pk}, which it started, is still active"):
        again(parent, DID_NOT)


# --- where two people settle it ---------------------------------------------------------------------------------------


@pytest.fixture
def mailed(stage: Stage, tools: Toolbox, two: None, ann: Actor) -> Run:
    """A run that one of two people failed; its sender is done, and nobody knows whether its letter left."""
    run = Situations(stage, tools).make("unknown")
    says(run, ann, verdict="fail")
    return run


def says(run: Run, by: Actor, **said: Any) -> None:
    reconciling.reconcile(run.pk, **said, justification="looked it up", by=by)


SEEN = {"ref": "made up", "amount": 1}


def test_one_person_is_not_two(stage: Stage, mailed: Run, outside: Outside, ann: Actor, ben: Actor) -> None:
    before = dump()
    for by in (ann, ben, Actor("key", "ann", role="operator", auth="api_key", person=ann.person)):
        for value in ({"counts_as": DID_NOT}, {"counts_as": HAPPENED, "result": SEEN}):
            with pytest.raises(InvalidInput, match="two people must settle unknown outcomes here") as refused:
                again(mailed, **value, by=by)
            assert "let two people settle it" in refused.value.extra["errors"][0]["fix"]
    assert dump() == before
    made = again(mailed, UNKNOWN, by=ann)
    assert stage.drive() == "parked" and asked(made).slot == "0.1/1"
    assert len(outside.requests) == 1 and problems(made) == []


def test_a_shell_is_not_held_up_and_one_is_enough_where_nobody_asked_for_two(mailed: Run, ann: Actor) -> None:
    shell = Actor("os", "root", role="operator", auth="shell")
    assert again(mailed, DID_NOT, by=shell).forked_from == mailed.pk
    guarded()
    assert again(mailed, DID_NOT, by=ann).forked_from == mailed.pk


def test_after_a_retry_two_settle_it_and_that_is_repeated_by_one(
    stage: Stage, mailed: Run, tools: Toolbox, ann: Actor, ben: Actor, outside: Outside
) -> None:
    lifecycle.retry(mailed.pk, by=ben, justification="look again")
    assert stage.drive() == "parked"
    for by in (ann, ben):
        says(mailed, by, verdict="happened", receipt={"ref": "seen there"})
    assert stage.drive() == "completed"
    with pytest.raises(InvalidInput, match="two people must settle"):  # another result than the two agreed on
        again(mailed, HAPPENED, by=ann, result=SEEN)
    made = again(mailed, HAPPENED, by=ann)
    assert stage.drive() == "completed" and len(outside.requests) == 1 and problems(made) == []


def test_run_between_takes_two(stage: Stage, above: Run, two: None, ann: Actor, sent: list[str], line: Flag) -> None:
    failover.worker_died(stage.worker.id, "the test says so")
    for value in ({"counts_as": DID_NOT}, {"counts_as": HAPPENED, "result": SEEN}):
        with pytest.raises(InvalidInput, match="two people must settle"):
            again(above, **value, by=ann)
    assert sent == ["letter"]
