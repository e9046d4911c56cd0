"""A new run from the input of one that can't continue, after its effects were reviewed."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from durableagents import Context, End
from durableagents.contrib.forks import forking
from durableagents.contrib.forks.forking import ForkRequest
from durableagents.contrib.forks.starting_again import StartAgainRequest, Verdict, read_remains, start_again
from ledger import events as e
from ledger.errors import Forbidden, IllegalTransition, InvalidInput, JustificationRequired
from ledger.models import LedgerEntry, OverrideRecord
from runs.models import Run
from runs.services import lifecycle
from runs.services.starts import keys
from tests.contrib.forks.test_forks import AGAIN, TAKE, asked, orders, say, whole
from tests.integration.runs.stage import Stage, calling, events, fresh, head, kinds, output, problems
from tests.tampering import tamper
from tests.world import FIONA, OLGA, SHOP, Notes, Outside, Toolbox, agent_of


def tear(run: Run, kind: str, n: int = 0) -> None:
    tamper(
        "UPDATE ledger_event SET sealed = '\\x00'::bytea WHERE run_id = %s AND seq = (SELECT seq FROM ledger_event"
        " WHERE run_id = %s AND kind = %s ORDER BY seq OFFSET %s LIMIT 1)",
        run.pk,
        run.pk,
        kind,
        n,
    )


def again(run: Run, *audit: Verdict, **more: Any) -> Run:
    return start_again(run.pk, StartAgainRequest(audit, **more), by=OLGA, justification="its journal is damaged")


def decided(run: Run, **counts: str) -> list[Verdict]:
    return [Verdict(x.slot, x.attempt, counts.get(x.tool, "happened")) for x in read_remains(run).effects]


@pytest.fixture
def stuck(stage: Stage, tools: Toolbox) -> Run:
    """A run with two orders that waits for a signal; then one of its events becomes unreadable."""
    run = stage.start(orders(tools), text="wait")
    assert stage.settle(run) == "parked"
    return run


def test_a_damaged_run_has_a_way_out_and_nothing_happens_twice(stage: Stage, stuck: Run, outside: Outside) -> None:
    tear(stuck, "ToolRead")
    found = read_remains(stuck)
    assert found.fences_all and len(found.problems) == 1 and "was changed" in found.problems[0]
    assert [(x.tool, x.external_id, x.is_verified) for x in found.effects] == [
        ("order", "order:a", True),
        ("order", "order:b", True),
    ]
    made = again(stuck, *decided(stuck))
    assert str(fresh(stuck).state) == "cancelled" and kinds(stuck)[-2:] == ["RunCancelled", "ForkMade"]
    assert [x.action for x in OverrideRecord.objects.filter(run_id=stuck.pk).order_by("id")] == [
        "cancel",
        "start_again",
    ]
    assert (made.forked_from, made.fork_how) == (stuck.pk, "start_again")
    stage.settle(made)
    assert kinds(made).count("AnswerTakenOver") == 2 and len(outside.executed("order")) == 2
    assert [x.how for x in events(made) if isinstance(x, e.AnswerTakenOver)] == ["audit", "audit"]
    from runs.services import signals

    signals.signal(made.pk, "go", {}, by=SHOP)
    assert stage.settle(made) == "completed" and output(made)["ref"] == "look:catalogue,order:a,order:b"
    assert not LedgerEntry.objects.filter(run_id=made.pk).exists()
    assert problems(made) == []


def test_an_effect_that_nobody_has_decided_keeps_it_from_starting(stuck: Run) -> None:
    before = head(stuck).seq
    with pytest.raises(InvalidInput, match="2 of its effects") as refused:
        again(stuck)
    assert [x["problem"].partition(" (run")[0] for x in refused.value.extra["errors"]] == [
        "order (order:a) is not decided",
        "order (order:b) is not decided",
    ]
    assert str(fresh(stuck).state) == "waiting_event" and head(stuck).seq == before and Run.objects.count() == 1


@pytest.mark.parametrize(
    ("audit", "says"),
    [
        ([Verdict("0.2/1", 0, "happened")], "is not decided"),
        ([Verdict("0.2/1", 0, "happened"), Verdict("0.2/1", 0, "unknown"), Verdict("0.2/2", 0, "unknown")], "twice"),
        ([Verdict("0.2/1", 0, "maybe"), Verdict("0.2/2", 0, "unknown")], "is not decided"),
        ([Verdict("0.2/1", 0, "did_not"), Verdict("0.2/2", 0, "unknown")], "is recorded as done"),
        (
            [Verdict("0.2/1", 0, "unknown"), Verdict("0.2/2", 0, "unknown"), Verdict("0.9/9", 0, "unknown")],
            "not an effect",
        ),
        ([Verdict("0.2/1", 0, "unknown"), Verdict("0.2/2", 0, "happened", result=5)], "is invalid"),
    ],
)
def test_what_is_said_of_effects_has_to_be_about_them(stuck: Run, audit: list[Verdict], says: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        again(stuck, *audit)
    assert any(says in x["problem"] for x in refused.value.extra["errors"])
    assert Run.objects.count() == 1 and str(fresh(stuck).state) == "waiting_event"


def test_an_unknown_one_is_asked_about_at_the_call(stage: Stage, stuck: Run, outside: Outside) -> None:
    made = again(stuck, *decided(stuck, order="unknown"))
    stage.settle(made)
    assert asked(made).slot == "0.2/1"
    say(made, TAKE)
    stage.settle(made)
    say(made, AGAIN)
    stage.settle(made)
    assert len(outside.executed("order")) == 3
    assert problems(made) == []


def test_an_intent_that_can_not_be_read_is_told_by_its_row(stage: Stage, stuck: Run, outside: Outside) -> None:
    tear(stuck, "ToolInvoked")
    tear(stuck, "ToolReturned")
    first = next(x for x in read_remains(stuck).effects if x.slot == "0.2/1")
    assert (first.tool, first.external_id, first.is_verified, first.has_result) == ("order", "order:a", False, False)
    with pytest.raises(InvalidInput, match="its result is not in the record"):
        again(stuck, *decided(stuck))
    audit = [Verdict("0.2/1", 0, "happened", result={"ref": "order:a", "amount": 1}), Verdict("0.2/2", 0, "happened")]
    made = again(stuck, *audit)
    stage.settle(made)
    assert len(outside.executed("order")) == 2 and kinds(made).count("AnswerTakenOver") == 2
    assert problems(made) == []


def test_a_call_of_unknown_outcome_is_settled_before_two_runs_work_on_it(stage: Stage, tools: Toolbox) -> None:
    stage.kill_at = [("CP4", "mail")]
    run = stage.start(calling(tools, "mail", "m", name="again-in-doubt"))
    stage.settle(run)
    with pytest.raises(IllegalTransition, match="settle its open waits"):
        again(run, *decided(run, mail="unknown"))
    assert Run.objects.count() == 1 and kinds(run)[-1] != "CancelRequested"


def test_only_an_operator_starts_again(stuck: Run) -> None:
    for by in (SHOP, FIONA):
        with pytest.raises(Forbidden):
            start_again(stuck.pk, StartAgainRequest(decided(stuck)), by=by, justification="try")
    with pytest.raises(JustificationRequired, match="Starting a run again needs a reason"):
        start_again(stuck.pk, StartAgainRequest(decided(stuck)), by=OLGA, justification=" ")
    assert str(fresh(stuck).state) == "waiting_event"


def test_of_a_key_one_run_lives(stage: Stage, tools: Toolbox) -> None:
    orders(tools)
    with transaction.atomic():
        first = keys.start(keys.Wanted("fork-orders", {"text": "wait"}, business_key="inv-9"), by=SHOP).run
    stage.settle(first)
    made = again(first, *decided(first))
    assert fresh(made).business_key == "inv-9"
    with pytest.raises(keys.KeyTaken, match=str(made.pk)):
        again(first, *decided(first))
    whole(first)


def test_what_a_run_has_undone_stands_for_nothing(stage: Stage, outside: Outside) -> None:
    from tests.unit.engine.undoings import Reversible

    tools = Reversible(outside)

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.book, {"name": "a"})
        await ctx.signal("go")
        return End()

    run = stage.start(agent_of(node, tools=tools.all(), name="again-undone"))
    stage.settle(run)
    lifecycle.cancel(run.pk, by=OLGA, justification="no more", effects="undo")
    assert stage.settle(run) == "cancelled"
    found = {x.tool: x for x in read_remains(run).effects}
    assert (found["book"].outcome, found["book"].has_result) == ("undone", False)
    made = forking.fork(run.pk, ForkRequest(1), by=OLGA, justification="book it again")
    stage.settle(made)
    assert "undid it" in asked(made).detail["about"]
