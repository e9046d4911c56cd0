"""A story in memory, told with what integrators may import: driven, answered, killed, and held against what left."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from durableagents import Budget, BusinessFailure, NotSent, Refused, TransportError
from durableagents.testing import Harness, StoryProblem, answers, calls, says, together
from tests.cases import each_case
from tests.conftest import CHECKOUT
from tests.unit.testing.desk import Address, desk, helper


def test_it_needs_no_settings_no_django_and_no_database() -> None:
    code = "import sys; import durableagents.testing; print('django' in sys.modules, 'psycopg' in sys.modules)"
    completed = subprocess.run(
        [sys.executable, "-c", code], cwd=CHECKOUT, env={}, capture_output=True, text=True, check=True
    )
    assert completed.stdout.split() == ["False", "False"]


def test_a_run_that_needs_nobody_comes_to_its_end() -> None:
    story = Harness(desk, {})
    story.assert_completed([250, "plain"])
    story.assert_effects([("post", {"text": "done: plain"})])
    story.assert_each_effect_once()
    story.assert_replays()
    assert [sent.tool for sent in story.sent] == ["look_up", "post"] and story.output == [250, "plain"]


def test_a_gate_is_passed_by_a_yes_and_not_by_a_no() -> None:
    story = Harness(desk, {"order_id": "A-2", "what": "refund"})
    story.assert_waits_for_approval("finance_po", tool="refund")
    assert story.state == "waiting_human" and story.effects == []
    story.approve("finance_po", by="user:cfo")
    story.assert_effects(["refund", "post"])
    story.assert_completed([12000, "R-A-2"])
    story.assert_replays()

    other = Harness(desk, {"order_id": "A-2", "what": "refund"})
    other.reject(justification="too dear")
    other.assert_completed([12000, "no: too dear"])
    other.assert_effects(["post"])
    other.assert_replays()


def test_nobody_deciding_means_no() -> None:
    story = Harness(desk, {"order_id": "A-2", "what": "refund"})
    story.advance(days=8)
    story.assert_completed([12000, "no: No decision was made before the deadline."])


def test_a_callback_a_question_a_signal_and_time() -> None:
    story = Harness(desk, {"what": "transfer"})
    story.assert_waits_for_callback("transfer")
    story.call_back({"refund_id": "R-9"})
    story.assert_completed([250, "R-9"])

    story = Harness(desk, {"what": "transfer"})
    story.advance(days=3)
    story.assert_failed("no_answer")

    story = Harness(desk, {"what": "question"})
    story.assert_waits_for_answer("operator", title="Where to?")
    story.answer(Address(street="Elm"))
    story.assert_completed([250, "Elm"])

    story = Harness(desk, {"what": "signal"})
    story.assert_waits_for_signal("arrived")
    story.signal("arrived", {"pallets": 3})
    story.assert_completed([250, {"pallets": 3}])
    late = Harness(desk, {"what": "signal"})
    late.advance(timedelta(days=1))
    late.assert_completed([250, "nothing came"])

    story = Harness(desk, {"what": "sleep"}, at=datetime(2026, 3, 1, tzinfo=UTC))
    story.assert_sleeps(until=datetime(2026, 3, 1, 1, tzinfo=UTC))
    story.advance(minutes=59)
    story.assert_sleeps()
    story.advance(minutes=1)
    story.assert_completed([250, "2026-03-01T01:00:00+00:00"])
    story.assert_replays()


def test_branches_wait_at_once_and_go_on_in_any_order() -> None:
    for first in ("answer", "callback"):
        story = Harness(desk, {"what": "both"})
        deeds = [lambda s=story: s.answer({"street": "Elm"}), lambda s=story: s.call_back({"refund_id": "R"})]
        for deed in deeds if first == "answer" else deeds[::-1]:
            deed()
        story.assert_completed([250, [{"refund_id": "R"}, {"street": "Elm"}]])
        story.assert_each_effect_once()
        story.assert_replays()


def test_a_message_is_answered_or_refused_while_the_run_waits() -> None:
    story = Harness(desk, {"what": "question"})
    assert story.message("note", {"order_id": "B-1"}) == {"usd": 2}
    with pytest.raises(Refused, match="there is none"):
        story.message("note", {"order_id": "none"})
    story.answer({"street": "Elm"})
    story.assert_completed([250, "B-1", "Elm"])
    story.assert_replays()


def test_models_say_what_they_are_told_to() -> None:
    turns = [together(calls("look_up", order_id="A-2")), calls("refund", order_id="A-2", usd=12000), answers(usd=12000)]
    story = Harness(desk, {"what": "think"}, models={"clerk": turns})
    story.assert_waits_for_approval("finance_po", tool="refund")
    story.approve()
    story.assert_completed([250, 12000])
    assert [name for name, _ in story.prompts] == ["clerk"] * 3
    story.assert_replays()


@each_case("point", ["before_effect", "after_effect", "after_record"])
def test_a_turn_that_is_on_record_is_not_said_again(point: str) -> None:
    turns = [calls("look_up", order_id="A-2"), TransportError("outage"), answers(usd=1)]
    story = Harness(desk, {"what": "think"}, models={"clerk": turns}, kill=[(point, "model")])
    story.assert_completed([250, 1])
    assert [sent.tool for sent in story.sent] == ["look_up", "look_up", "post"]


def test_a_child_is_driven_too_or_ended_by_the_test() -> None:
    story = Harness(desk, {"what": "child"})
    story.assert_waits_for_approval(tool="refund")
    story.approve()
    story.assert_completed([250, {"helped": "R-A-1"}])
    story.assert_effects([("refund", {"usd": 12000}), "post"])
    story.assert_replays()

    story = Harness(desk, {"what": "child"}, children="played")
    story.end_child("desk-helper", output={"helped": "by hand"})
    story.assert_completed([250, {"helped": "by hand"}])
    story = Harness(desk, {"what": "child"}, children="played")
    story.end_child(code="no_such_payment")
    story.assert_failed("no_such_payment")


def test_a_run_goes_on_as_another_one() -> None:
    story = Harness(desk, {"what": "renew"})
    story.assert_completed(["renewed", 250, "plain"])
    story.assert_replays()
    story = Harness(desk, {"what": "handoff"})
    story.approve()
    story.assert_completed({"helped": "R-A-1"})


# --- trouble ----------------------------------------------------------------------------------------------------------


def test_an_outage_is_waited_for_and_a_keyed_call_is_one_effect() -> None:
    story = Harness(desk, {"what": "refund"})
    assert story.state == "completed"
    story = Harness(desk, {"what": "question"})
    story.fail("post", NotSent("refused"), times=3)
    story.answer({"street": "Elm"})
    story.assert_completed()
    assert len(story.sent) == 2 and story.clock.now > datetime(2026, 1, 5, 9, tzinfo=UTC)


@each_case("after", [False, True])
def test_a_keyed_call_whose_answer_is_lost_goes_out_again_under_its_key(after: bool) -> None:
    story = Harness(desk, {"order_id": "A-2", "what": "refund"})
    story.fail("refund", after_effect=after)
    story.approve()
    story.assert_completed([12000, "R-A-2"])
    assert len([sent for sent in story.sent if sent.tool == "refund"]) == 1 + after
    assert len({sent.key for sent in story.sent if sent.tool == "refund"}) == 1
    story.assert_effects(["refund", "post"])
    story.assert_each_effect_once()
    story.assert_replays()


@each_case("when", ["before_effect", "after_effect"])
def test_an_unsafe_call_of_unknown_outcome_is_asked_about_and_never_repeated_unasked(when: str) -> None:
    story = Harness(desk, {"what": "question"})
    story.crash("post", when)  # type: ignore[arg-type]
    story.answer({"street": "Elm"})
    story.assert_waits_for_verdict("post")
    has_happened = when == "after_effect"
    story.settle("happened" if has_happened else "did_not", result={"tracking": "T-9"} if has_happened else None)
    story.assert_completed()
    story.assert_effects(["post"])
    story.assert_each_effect_once()
    story.assert_replays()


def test_the_oracle_sees_what_a_wrong_verdict_does() -> None:
    story = Harness(desk, {"what": "question"})
    story.crash("post", "after_effect")
    story.answer({"street": "Elm"})
    story.settle("did_not")  # it did
    story.assert_completed()
    with pytest.raises(AssertionError, match=r"post at 0.2/1 was carried out 2 times"):
        story.assert_each_effect_once()


def test_the_oracle_tells_apart_what_one_key_carries() -> None:
    """A tool that makes its body of something else than its arguments is what idempotency keys don't protect from."""
    from durableagents.testing.oracle import Sent, effects_of, twice

    one = Sent("refund", {"usd": 1}, "k", "0.1/1", 0, "run", happened=True)
    other = Sent("refund", {"usd": 2}, "k", "0.1/1", 0, "run", happened=True)
    mails = [Sent("post", {}, None, "0.1/2", 0, "run", happened=True) for _ in range(2)]
    assert len(effects_of([one, one])) == 1 and twice([one, one]) == []
    assert len(effects_of([one, other])) == 2 and "another body under the same key" in twice([one, other])[0]
    assert len(effects_of(mails)) == 2 and "carried out 2 times" in twice(mails)[0]


@each_case("point", ["before_intent", "before_effect", "after_effect", "after_record"])
@each_case("tool", ["refund", "post"])
def test_no_matter_who_dies_each_effect_is_single(point: str, tool: str) -> None:
    story = Harness(desk, {"what": "refund"}, kill=[(point, tool)])
    if story.state != "completed":
        story.assert_waits_for_verdict("post")
        story.settle(
            "happened" if point == "after_effect" else "did_not", result={} if point == "after_effect" else None
        )
    story.assert_completed([250, "R-A-1"])
    story.assert_effects(["refund", "post"])
    story.assert_each_effect_once()
    story.assert_replays()


@each_case("after", [False, True])
def test_a_death_at_any_write_changes_nothing(after: bool) -> None:
    for nth in range(1, 8):
        story = Harness(desk, {"order_id": "A-2", "what": "refund"})
        story.kill_at_write(nth, after=after)
        story.approve()
        if story.state == "waiting_human":  # an unsafe call between its intent and its record
            story.settle("happened" if story.effects[-1].tool == "post" else "did_not", result={})
        story.assert_completed([12000, "R-A-2"])
        story.assert_effects(["refund", "post"])
        story.assert_each_effect_once()


def test_a_refusal_is_told_to_the_node_and_a_failed_run_is_retried() -> None:
    story = Harness(desk, {"order_id": "A-2", "what": "refund"})
    story.refuse("refund", "no funds", code="no_funds")
    story.approve()
    story.assert_completed([12000, "no_funds"])

    story = Harness(desk, {"what": "question"})
    story.refuse("post", code="no_such_street")
    story.answer({"street": "Elm"})
    story.assert_failed("no_such_street")
    story.retry()
    story.assert_completed()


def test_a_cancelled_run_sends_nothing_more() -> None:
    story = Harness(desk, {"what": "child"})
    story.cancel()
    story.assert_cancelled()
    story.assert_effects([])
    with pytest.raises(StoryProblem, match="no run waits for an approval"):
        story.approve()


def test_a_paused_run_stands_still_and_keeps_what_comes_until_it_is_resumed() -> None:
    story = Harness(desk, {"order_id": "A-2", "what": "refund"})
    story.pause()
    assert story.state == "paused"
    story.approve("finance_po", by="user:cfo")
    assert story.state == "paused" and story.effects == [], "the yes is kept, and wakes nobody"
    with pytest.raises(StoryProblem, match="there is nothing to pause"):
        story.pause()
    story.resume()
    story.assert_effects(["refund", "post"])
    story.assert_completed([12000, "R-A-2"])
    story.assert_replays()
    for act in (story.pause, story.resume):
        with pytest.raises(StoryProblem, match=r"nothing to pause|the run is not paused"):
            act()


def test_a_paused_run_to_which_nothing_came_goes_back_to_its_wait_and_time_passes_all_the_same() -> None:
    story = Harness(desk, {"order_id": "A-2", "what": "refund"})
    story.pause()
    story.resume()
    story.assert_waits_for_approval("finance_po", tool="refund")
    story.pause()
    story.advance(days=8)
    assert story.state == "paused"
    story.resume()
    story.assert_completed([12000, "no: No decision was made before the deadline."])


def test_a_paused_run_can_be_cancelled_and_so_do_those_that_it_started_stand_still() -> None:
    story = Harness(desk, {"what": "child"})
    story.pause()
    story.approve()
    assert story.state == "paused" and story.effects == []
    story.cancel()
    story.assert_cancelled()


def test_a_raise_sets_going_nobody_who_is_paused() -> None:
    story = Harness(desk, {"what": "refund"}, budget=Budget(tool_calls=2))
    story.pause()
    story.raise_budget(Budget(tool_calls=9))
    assert story.state == "paused"
    story.resume()
    story.assert_completed()


def test_a_budget_that_is_used_up_is_raised() -> None:
    story = Harness(desk, {"what": "refund"}, budget=Budget(tool_calls=2))
    story.assert_waits_for_budget()
    story.raise_budget(Budget(tool_calls=9))
    story.assert_completed()


def test_tools_and_hooks_can_be_stood_in_for() -> None:
    instead = {"look_up": [{"customer": "Bo", "usd": 5}], "refund": lambda args, call: {"refund_id": "X"}}
    story = Harness(desk, {"what": "refund"}, tools=instead)
    story.assert_completed([5, "X"])
    story = Harness(desk, {"what": "refund"}, tools={"refund": [BusinessFailure("no", code="gone")]})
    story.assert_completed([250, "gone"])


# --- told wrongly -----------------------------------------------------------------------------------------------------


def test_what_can_not_be_is_said_in_words() -> None:
    with pytest.raises(StoryProblem, match=r"the input does not fit returns@1.0.0: order_id"):
        Harness(desk, {"order_id": 3})
    with pytest.raises(StoryProblem, match="Import its module first"):
        Harness("nobody", {})
    with pytest.raises(StoryProblem, match="there is no tool 'psot'; known tools:"):
        Harness(desk, {}, tools={"psot": []})
    with pytest.raises(StoryProblem, match="asked for its turn number 1, and its script has 0"):
        Harness(desk, {"what": "think"}, models={"clerk": []})
    with pytest.raises(StoryProblem, match="assistant 'clerk' is asked and has nothing to say"):
        Harness(desk, {"what": "think"})
    with pytest.raises(StoryProblem, match="has no answer left: 0 were given"):
        Harness(desk, {}, tools={"look_up": []})
    story = Harness(desk, {"what": "question"})
    with pytest.raises(
        StoryProblem, match=r"for an approval \(queue='finance_po'\): returns@1.0.0 waits for an answer of 'operator'"
    ):
        story.approve("finance_po")
    with pytest.raises(StoryProblem, match=r"the answer does not fit 'Where to\?': street: 'E' is too short"):
        story.answer({"street": "E"})
    with pytest.raises(StoryProblem, match="waits for no signal 'arived': arrived"):
        story.signal("arived")
    with pytest.raises(StoryProblem, match="nobody takes the message 'nota': the messages are note"):
        story.message("nota", {})
    with pytest.raises(StoryProblem, match="only a failed run can be retried"):
        story.retry()
    with pytest.raises(StoryProblem, match="there is no crash point 'CP77'"):
        story.kill("CP77")
    with pytest.raises(ValueError, match="the clock only goes forward"):
        story.advance(hours=-1)
    story = Harness(desk, {"what": "transfer"})
    with pytest.raises(StoryProblem, match="the body is not an answer to transfer"):
        story.call_back({"id": 3})
    with pytest.raises(
        AssertionError, match=r"expected: the run completed. It is otherwise: .* waits for a callback to transfer"
    ):
        story.assert_completed()


def test_an_unknown_edge_and_a_missing_start_are_named() -> None:
    from durableagents import Agent, Context, End
    from runs.engine.agents import registry
    from tests.unit.testing.desk import Case, Wish

    lost = Agent("lost", "1.0.0", input=Wish, state=Case, initial=lambda wish: Case(order_id="", what=""))
    try:
        with pytest.raises(StoryProblem, match="no node is marked as start: mark one with start=True"):
            Harness(lost, {})

        @lost.node(start=True, to=["there"])
        async def here(case: Case, ctx: Context) -> str:
            return "elsewhere"

        with pytest.raises(StoryProblem, match="node 'here' leads to 'there', which does not exist"):
            Harness(lost, {})

        @lost.node()
        async def there(case: Case, ctx: Context) -> End:
            return End()

        story = Harness(lost, {})
        story.assert_failed("bad_edge")
        assert "went to 'elsewhere'" in story.now
    finally:
        registry.remove("lost@1.0.0")


def test_a_wrong_expectation_says_what_is() -> None:
    story = Harness(desk, {"what": "refund"})
    with pytest.raises(AssertionError, match=r"effect 1: expected post, and refund\(.*\) was carried out"):
        story.assert_effects(["post", "refund"])
    with pytest.raises(AssertionError, match=r"effect 1: .*usd is 3 in the record, but 250"):
        story.assert_effects([("refund", {"usd": 3}), "post"])
    with pytest.raises(AssertionError, match="not expected: post"):
        story.assert_effects(["refund"])
    with pytest.raises(AssertionError, match="missing: post"):
        story.assert_effects(["refund", "post", "post"])
    with pytest.raises(AssertionError, match="It ended with"):
        story.assert_completed("another")
    with pytest.raises(AssertionError, match="expected: the run failed"):
        story.assert_failed()


def test_the_tools_are_the_agents_own_again_afterwards() -> None:
    before = desk.fingerprint()
    Harness(desk, {}, tools={"look_up": [{"customer": "Bo", "usd": 5}]})
    desk._fingerprint = ""
    assert desk.fingerprint() == before
    Harness(desk, {}).assert_completed([250, "plain"])


async def test_a_test_that_is_a_coroutine_tells_stories_too() -> None:
    story = Harness(desk, {})
    story.assert_completed()
    story.assert_replays()
    assert says("hello").parts[0].content == "hello" and helper.graph_id == "desk-helper@1.0.0"
