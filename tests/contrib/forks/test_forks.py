from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.db import DatabaseError, transaction

from durableagents import Agent, Context, End, Renew
from durableagents.contrib.forks import forking
from durableagents.contrib.forks.forking import EffectsChanged, ForkRequest
from durableagents.contrib.forks.points import RecordNotTrusted, visits_of
from durableagents.contrib.releases import services
from ledger.actors import Actor
from ledger.errors import Forbidden, InvalidInput, JustificationRequired, NotFound
from ledger.models import LedgerEntry, OverrideRecord
from runs.engine.errors import UnknownVersion
from runs.models import Run, Wait
from runs.services import lifecycle, questions, signals
from runs.services.starts import keys
from runs.services.version_choice import VersionClosed
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.stage import Stage, at_once, events, fresh, head, kinds, output, problems
from tests.integration.runs.test_children import everything
from tests.tampering import tamper
from tests.world import FIONA, OLGA, SHOP, Done, Item, Notes, Outside, Toolbox, agent_of

AGAIN, TAKE, NO = {"decision": "do_it_again"}, {"decision": "take_what_is_on_record"}, {"decision": "no"}


def orders(tools: Toolbox, **more: Any) -> Agent:
    async def read(state: Notes, ctx: Context) -> str:
        state.seen.append((await ctx.call(tools.look, Item(name="catalogue"))).ref)
        return "order"

    async def order(state: Notes, ctx: Context) -> End:
        for name in ("a", "b"):
            state.seen.append((await ctx.call(tools.order, Item(name=name))).ref)
        if state.asked.text == "wait":
            await ctx.signal("go")
        return End(Done(ref=",".join(map(str, state.seen))))

    return agent_of(read, order, tools=tools.all(), output=Done, **({"name": "fork-orders"} | more))


def mailer(tools: Toolbox, name: str) -> Agent:
    async def first(state: Notes, ctx: Context) -> str:
        await ctx.signal("go")
        return "second"

    async def second(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(tools.mail, Item(name="m"))).ref)

    return agent_of(first, second, tools=tools.all(), name=name)


@pytest.fixture
def run(stage: Stage, tools: Toolbox) -> Run:
    run = stage.start(orders(tools), text="ours")
    assert stage.settle(run) == "completed"
    return run


def fork(run: Run, visit: int = 2, *, by: Actor = OLGA, why: str = "see whether it goes better", **more: Any) -> Run:
    return forking.fork(run.pk, ForkRequest(visit, **more), by=by, justification=why)


def asked(run: Run) -> Wait:
    return run.waits.get(kind="input", resolved_at__isnull=True)


def say(run: Run, answer: Any, *, by: Actor = OLGA) -> None:
    questions.answer(run.pk, asked(run).pk, answer, by=by, justification="seen")


def whole(*runs: Run) -> None:
    for each in runs:
        check_against_journal(each)
        assert problems(each) == []


def test_a_fork_begins_at_a_visit_and_both_runs_say_so(stage: Stage, run: Run, outside: Outside) -> None:
    made = fork(run)
    assert (made.forked_from, made.fork_how, made.graph_id, made.creator) == (run.pk, "fork", run.graph_id, OLGA.person)
    assert kinds(made)[:2] == ["RunCreated", "RunForked"] and kinds(run)[-1] == "ForkMade"
    record = OverrideRecord.objects.get(run_id=run.pk)
    assert (record.action, record.by, record.justification) == ("fork", OLGA.ref, "see whether it goes better")
    assert record.after["fork"] == str(made.pk)
    assert stage.settle(made) == "parked" and len(outside.seen("look")) == 1, "what came before isn't done again"
    whole(run, made)
    say(made, AGAIN)
    assert stage.settle(made) == "parked" and len(outside.executed("order")) == 3
    say(made, TAKE)
    assert stage.settle(made) == "completed" and output(made) == output(run)
    assert len(outside.executed("order")) == 3 and len({r.key for r in outside.seen("order")}) == 3
    assert [x.fact for x in LedgerEntry.objects.filter(run_id=made.pk).order_by("id")] == ["pending", "committed"]
    whole(run, made)


@pytest.mark.parametrize("by", [SHOP, FIONA])
def test_only_an_operator_forks(run: Run, by: Actor) -> None:
    with pytest.raises(Forbidden, match="Only an operator may fork a run"):
        fork(run, by=by)
    assert Run.objects.count() == 1


@pytest.mark.parametrize(
    ("wanted", "error", "says"),
    [
        (ForkRequest(0), InvalidInput, "before its first one"),
        (ForkRequest(-3), InvalidInput, "before its first one"),
        (ForkRequest(3), InvalidInput, "none of its visits"),
        (ForkRequest(2, version="9.9.9"), UnknownVersion, "9.9.9"),
        (ForkRequest(2, seen=1), EffectsChanged, "There are now 2"),
    ],
)
def test_impossible_fork_is_refused_by_name(run: Run, wanted: ForkRequest, error: type[Exception], says: str) -> None:
    before = head(run).seq
    with pytest.raises(error, match=says):
        forking.fork(run.pk, wanted, by=OLGA, justification="try")
    with pytest.raises(error, match=says):
        forking.prepare(run, wanted)
    assert Run.objects.count() == 1 and head(run).seq == before and not OverrideRecord.objects.exists()


def test_a_fork_needs_a_reason_and_a_run(run: Run) -> None:
    with pytest.raises(JustificationRequired):
        fork(run, why="")
    with pytest.raises(NotFound):
        forking.fork(uuid4(), ForkRequest(1), by=OLGA, justification="try")
    assert Run.objects.count() == 1


def test_a_closed_version_takes_no_forks_and_another_does(stage: Stage, tools: Toolbox, run: Run) -> None:
    services.close_version("fork-orders", "1.0.0", by=OLGA, justification="no more of it")
    with pytest.raises(VersionClosed):
        fork(run)
    newer = orders(tools, version="2.0.0")
    made = fork(run, version="2.0.0")
    assert made.graph_id == newer.graph_id and stage.settle(made) == "parked"
    whole(made)


def test_a_version_without_the_node_is_refused(stage: Stage, run: Run) -> None:
    async def read(state: Notes, ctx: Context) -> End:
        return End()

    agent_of(read, name="fork-orders", version="3.0.0")
    with pytest.raises(InvalidInput, match="begins at node order, which"):
        fork(run, version="3.0.0")


def test_a_checkpoint_that_was_changed_is_no_place_to_begin(run: Run) -> None:
    tamper("UPDATE runs_checkpoint SET state = state || '\\x00'::bytea WHERE run_id = %s", run.pk)
    with pytest.raises(RecordNotTrusted, match="checksum"):
        fork(run)
    assert Run.objects.count() == 1


def test_an_origin_whose_journal_was_changed_after_the_point_is_no_evidence(run: Run) -> None:
    tamper(
        "UPDATE ledger_event SET sealed = sealed || '\\x00'::bytea WHERE run_id = %s AND kind = 'ToolReturned'", run.pk
    )
    with pytest.raises(RecordNotTrusted, match="was changed"):
        fork(run)
    assert Run.objects.count() == 1


def test_of_a_run_at_work_every_call_with_an_effect_is_asked_about(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(mailer(tools, "fork-at-work"))
    stage.settle(run)
    made = fork(run, 1)
    signals.signal(made.pk, "go", {}, by=SHOP)
    stage.settle(made)
    assert "Nobody can say" in asked(made).detail["about"]
    assert events(made)[1].fences_all  # type: ignore[attr-defined]


def test_a_fork_keeps_the_key_and_of_a_key_one_run_lives(stage: Stage, tools: Toolbox) -> None:
    orders(tools)
    wanted = keys.Wanted("fork-orders", {"text": "wait"}, business_key="inv-1")
    with transaction.atomic():
        first = keys.start(wanted, by=SHOP).run
    stage.settle(first)
    with pytest.raises(keys.KeyTaken, match=str(first.pk)):
        fork(first)
    lifecycle.cancel(first.pk, by=OLGA, justification="begin again")
    made = fork(first)
    assert made.business_key == "inv-1" or fresh(made).business_key == "inv-1"
    with pytest.raises(keys.KeyTaken, match=str(made.pk)):
        fork(first)
    assert Run.objects.count() == 2
    stage.settle(made)
    whole(first, made)


def test_two_forks_at_once_of_a_key_are_one(stage: Stage, tools: Toolbox) -> None:
    orders(tools)
    with transaction.atomic():
        first = keys.start(keys.Wanted("fork-orders", {"text": "go"}, business_key="inv-2"), by=SHOP).run
    stage.settle(first)
    done = at_once(*(lambda: fork(first) for _ in range(4)))
    assert sorted(type(x).__name__ for x in done) == ["KeyTaken", "KeyTaken", "KeyTaken", "Run"]
    assert Run.objects.filter(forked_from=first.pk).count() == 1
    whole(first)


def test_what_a_run_did_after_it_was_renewed_is_told_too(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    async def work(state: Notes, ctx: Context) -> Any:
        done = await ctx.call(tools.order, Item(name=f"t{len(state.seen)}"))
        state.seen.append(done.ref)
        return End() if len(state.seen) >= 2 else Renew(state)

    run = stage.start(agent_of(work, tools=tools.all(), name="fork-renewed"))
    everything(stage)
    made = fork(run, 1)
    assert [x["run"] for x in events(made)[1].payload["effects"]] == [str(run.pk), str(fresh(run).goes_on_as)]


def test_a_fork_of_a_fork_carries_what_was_done(stage: Stage, run: Run) -> None:
    made = fork(run)
    stage.settle(made)
    say(made, AGAIN)
    stage.settle(made)
    say(made, TAKE)
    stage.settle(made)
    again = fork(made, 1)
    effects = events(again)[1].payload["effects"]
    assert [(x["run"], x["slot"]) for x in effects] == [
        (str(run.pk), "0.2/1"),
        (str(run.pk), "0.2/2"),
        (str(made.pk), "0.1/1"),
    ]
    stage.settle(again)
    whole(run, made, again)


def test_who_a_run_is_a_fork_of_never_changes(run: Run) -> None:
    made = fork(run)
    for change in ({"forked_from": None}, {"fork_how": "start_again"}):
        with pytest.raises(DatabaseError, match="never changes"), transaction.atomic():
            Run.objects.filter(pk=made.pk).update(**change)
    Run.objects.filter(pk=run.pk).update(forked_from=made.pk, fork_how="fork")
    assert any("forked_from" in problem for problem in problems(run))


def test_the_points_of_a_run_are_its_visits(run: Run) -> None:
    assert [(x.visit, x.node, x.problem) for x in visits_of(run)] == [(1, "read", ""), (2, "order", "")]


def test_an_intent_without_a_word_is_found(stage: Stage, run: Run) -> None:
    made = fork(run)
    with pytest.MonkeyPatch.context() as patch:
        from runs.engine.forks import Fork

        patch.setattr(Fork, "fences", lambda self, tool: False)
        stage.settle(made)
    assert [x for x in problems(made) if "no answer allows this repeated call" in x]


def test_who_took_part_in_the_origin_does_not_decide_in_its_fork(stage: Stage, run: Run) -> None:
    from runs.services.authority import own_act

    made = fork(run)
    assert own_act(made, OLGA.person, OLGA.name) == "started this run"
    assert own_act(made, FIONA.person, FIONA.name) is None
    who = Actor("user", run.created_by.partition(":")[2])
    assert "started a run from which this run was forked" in str(own_act(made, None, who.name))
    assert own_act(run, OLGA.person, OLGA.name) is None, "who forks a run has put nothing into it"
