"""A run becomes a test that passes with today's code and says what other code does differently."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import call_command

from durableagents.contrib.replay.files import InvalidRecording
from durableagents.contrib.replay.scripts import RecordedRun, proven_source_of_test, source_of_test
from durableagents.testing import Harness, StoryProblem, answers, calls
from ledger import events as e
from runs.engine.agents import Agent
from runs.services import lifecycle
from tests.cases import each_case
from tests.contrib.replay.test_replays import STORIES
from tests.integration.runs.stage import Stage
from tests.tampering import tamper
from tests.unit.testing.desk import desk
from tests.world import SHOP, only_for_now

pytestmark = pytest.mark.django_db(transaction=True)


def told(story: Harness) -> RecordedRun:
    """Return the run as the database has it, a second between two events."""
    member = story._first
    began = datetime(2026, 5, 4, 12, tzinfo=UTC)
    times = [began + timedelta(seconds=n) for n in range(len(member.run.events))]
    return RecordedRun(
        member.run.id, member.agent, member.run.events[0], member.run.events[1:], times, member.run.state
    )


def run(text: str, **changed: Any) -> None:
    names: dict[str, Any] = {"__name__": "here"}
    exec(compile(text, "a test", "exec"), names)
    names.update(changed)
    (test,) = (value for name, value in names.items() if name.startswith("test_"))
    test()


def cancelled() -> Harness:
    story = Harness(desk, {"what": "transfer"})
    story.cancel()
    return story


def retried() -> Harness:
    story = Harness(desk, {"what": "question"})
    story.refuse("post", code="no_such_street")
    story.answer({"street": "Elm"})
    story.retry()
    return story


def reconciled() -> Harness:
    story = Harness(desk, {"what": "question"})
    story.crash("post", "before_effect")
    story.answer({"street": "Elm"})
    story.settle("did_not")
    return story


def happened() -> Harness:
    story = Harness(desk, {"what": "question"})
    story.crash("post")
    story.answer({"street": "Elm"})
    story.settle("happened", result={"tracking": "T-5"})
    return story


def expired() -> Harness:
    story = Harness(desk, {"order_id": "A-2", "what": "refund"})
    story.advance(days=8)
    return story


def timed_out() -> Harness:
    story = Harness(desk, {"what": "signal"})
    story.advance(days=2)
    return story


def refused_message() -> Harness:
    story = Harness(desk, {"what": "question"})
    for order in ("B", "none"):
        try:
            story.message("note", {"order_id": order})
        except Exception:
            assert order == "none"
    return story


def waits() -> Harness:
    return Harness(desk, {"order_id": "A-2", "what": "refund"})


def two_thoughts() -> Harness:
    return Harness(desk, {"what": "think"}, models={"clerk": [calls("look_up", order_id="A-2"), answers(usd=3)]})


TOLD = [each for each in STORIES if each.__name__ not in ("<lambda>", "refused")] + [
    cancelled,
    retried,
    reconciled,
    happened,
    expired,
    timed_out,
    refused_message,
    waits,
    two_thoughts,
    STORIES[-2],
    STORIES[-1],
    STORIES[-4],
]


@each_case("tell", TOLD)
def test_a_run_is_told_again_as_it_was(tell: Callable[[], Harness]) -> None:
    text = proven_source_of_test(told(tell()))
    run(text)
    assert "from tests.unit.testing.desk import desk as agent" in text
    compile(text, "a test", "exec")


def test_code_that_does_otherwise_is_told_from_it_in_words() -> None:
    story = Harness(desk, {"order_id": "A-2", "what": "refund"})
    story.approve(by="user:cfo", justification="as agreed")
    text = proven_source_of_test(told(story))
    assert "story.approve(slot='0.1/2', by='user:cfo', role='approver', justification='as agreed')" in text
    text = proven_source_of_test(told(Harness(desk, {"what": "refund"})))
    with only_for_now():
        for other, words in (
            (changed(order=[0, 1]), None),
            (changed(order=[0]), r"effect 1: expected refund\(.*, and post\(.*was carried out"),
            (changed(order=[1, 0]), r"at 0.1/1 the record has look_up\(.*but the code makes refund"),
            (changed(order=[0, 1, 1]), r"at 0.1/3 the record has no call, but the code makes refund"),
            (changed(order=[0, 1], usd=11), r"at 0.1/2 the record has refund\(.*: usd is 250 in the record, but 11"),
        ):
            if words is None:
                run(text, agent=other)
                continue
            with pytest.raises(AssertionError, match=words):
                run(text, agent=other)


def changed(order: list[int], usd: int = 250) -> Agent:
    from durableagents import Context, End
    from runs.engine.agents import registry
    from tests.unit.testing.desk import Case, Letter, Order, Refund, Wish, look_up, post, refund

    registry.remove("desk-changed@1.0.0")
    made = Agent(
        "desk-changed",
        "1.0.0",
        input=Wish,
        state=Case,
        tools=[look_up, refund, post],
        initial=lambda wish: Case(order_id=wish.order_id, what=wish.what),
    )

    @made.node(start=True, to=["close"])
    async def begin(case: Case, ctx: Context) -> str:
        doing = [(look_up, Order(order_id="A-1")), (refund, Refund(order_id="A-1", usd=usd))]
        for n in order:
            case.notes.append((await ctx.call(*doing[n])).model_dump().get("usd", "R-A-1"))
        return "close"

    @made.node()
    async def close(case: Case, ctx: Context) -> End:
        await ctx.call(post, Letter(to="Ada", text="done: refund"))
        return End(case.notes)

    return made


def test_what_no_story_tells_is_refused_by_name() -> None:
    renewed = Harness(desk, {"what": "renew"})
    with pytest.raises(InvalidRecording, match="it was continued as another run"):
        source_of_test(told(renewed))
    whole = told(Harness(desk, {}))
    for event, words in (
        (e.OperatorNeeded(reason="x"), "it stopped for an operator"),
        (e.ToolAnsweredLate(slot="0.1/1", tool="x", by="", outcome="", contradicts=""), "an answer arrived late"),
        (e.BudgetSet(by="user:x", caps={"usd_micro": 3}, until=""), "a budget in dollars"),
    ):
        with pytest.raises(InvalidRecording, match=words):
            source_of_test(replace(whole, later=[*whole.later, event], times=[*whole.times, whole.times[-1]]))
    with pytest.raises(InvalidRecording, match="it is running"):
        source_of_test(replace(whole, state="running"))
    with only_for_now(), pytest.raises(InvalidRecording, match="can't be imported"):
        source_of_test(replace(whole, agent=changed([0])))


def test_a_test_that_would_not_pass_is_not_given() -> None:
    whole = told(Harness(desk, {}))
    lies = [*whole.later[:-1], e.RunCompleted(payload="otherwise")]
    with pytest.raises(InvalidRecording, match=r"fails when run in memory: .*the run ends with"):
        proven_source_of_test(replace(whole, later=lies))


def test_a_place_that_is_left_out_is_named() -> None:
    story = Harness(desk, {})
    record = {"0.1/1": {"tool": "look_up", "args": {"order_id": "A-1"}, "returns": {"customer": "Ada", "usd": 250}}}
    with pytest.raises(StoryProblem, match=r"at 0.2/1 the record has no call, but the code makes post"):
        Harness(desk, {}, record=record)
    record["0.2/1"] = {"tool": "post", "args": {"to": "Ada", "text": "done: plain"}, "returns": {}}
    record["0.2/2"] = {"tool": "post", "args": {}, "returns": {}}
    again = Harness(desk, {}, record=record)
    again.assert_completed(story.output)
    with pytest.raises(AssertionError, match=r"recorded, but not made: post\(\{\}\) at 0.2/2"):
        again.assert_follows_record()


# --- the command ------------------------------------------------------------------------------------------------------


def command(*args: str, capsys: Any) -> tuple[int, str, str]:
    code = 0
    try:
        call_command("runs", *args)
    except SystemExit as ended:
        code = int(ended.code or 0)
    return code, *capsys.readouterr()


@pytest.mark.django_db(transaction=True)
def test_the_command_writes_a_test_of_a_run_of_the_database(stage: Stage, tmp_path: Path, capsys: Any) -> None:
    made, _ = lifecycle.start("returns@1.0.0", {"order_id": "A-2", "what": "values"}, by=SHOP), None
    stage.settle(made)
    target = tmp_path / "test_it.py"
    code, _, err = command("to-test", str(made.id), "--out", str(target), capsys=capsys)
    assert code == 0, err
    text = target.read_text()
    run(text)
    assert "key:shop" not in text and "'is': 'uuid'" in text and str(made.id) in text
    code, _, err = command("to-test", str(made.id), "--out", str(target), capsys=capsys)
    assert code == 2 and "already exists" in err and target.read_text() == text
    code, out, _ = command("to-test", str(made.id), "--redact", "order_id", capsys=capsys)
    assert code == 0 and "A-2" not in out
    run(out)
    for wrong, words in ((str(uuid4()), "no run"), ("what", "isn't a run id")):
        code, _, err = command("to-test", wrong, capsys=capsys)
        assert code == 2 and words in err.lower()
    tamper("UPDATE ledger_event SET sealed = NULL WHERE run_id = %s AND kind = 'ToolRead'", made.id)
    code, _, err = command("to-test", str(made.id), capsys=capsys)
    assert code == 2 and "its record is damaged" in err
