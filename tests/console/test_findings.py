"""What witnesses tell against the record is loud on every page, until somebody has answered it, and nothing else is."""

from __future__ import annotations

import pytest

from ledger import events as e
from runs.console import pieces
from runs.story import findings
from tests.console.test_story import begun, only, rows


def settled(verdict: str, n: int = 0) -> e.ToolReconciled:
    return e.ToolReconciled(slot="0.1/1", tool="order", verdict=verdict, by="user:olga", n=n)


def told(outcome: str, n: int = 0) -> e.ToolAnsweredLate:
    return e.ToolAnsweredLate(
        slot="0.1/1", tool="order", by="worker:w", outcome=outcome, contradicts="", n=n, payload={"result": {}}
    )


REFUSED = e.ToolFailed(slot="0.1/1", tool="order", code="no_credit", requested_hash="h", payload={"message": "no"})
CALLED_BACK = e.CallbackArrivedLate(slot="0.1/1", tool="order", payload={"ref": "R-7"})
NEWS: list[tuple[list[e.Event], e.Event, str]] = [
    ([settled("did_not")], told("happened"), "did_not"),
    ([settled("did_not")], told("accepted"), "did_not"),
    ([settled("did_not")], told("refused"), ""),
    ([settled("fail")], told("happened"), "fail"),
    ([settled("fail")], CALLED_BACK, "fail"),
    ([settled("happened")], told("refused"), "happened"),
    ([settled("happened")], told("happened"), ""),
    ([REFUSED], told("happened"), "refused"),
    ([REFUSED], CALLED_BACK, "refused"),
    ([settled("did_not"), CALLED_BACK, settled("happened", 1)], CALLED_BACK, ""),
    ([settled("did_not"), CALLED_BACK, settled("did_not", 1)], told("happened"), "did_not"),
]


@pytest.mark.parametrize(("past", "news", "belied"), NEWS)
def test_news_that_belies_the_record_is_loud_on_lane_and_timeline_and_no_other_is(
    past: list[e.Event], news: e.Event, belied: str
) -> None:
    tape = begun().invoked(replay_class="unsafe_on_replay")
    for event in (*past, news):
        tape.add(event)
    story = tape.story()
    effect, row = only(story), story.timeline.rows[-1]
    assert (effect.belied, row.kind) == (belied, "error" if belied else "mark")
    drawn = pieces.effect(effect, {})
    assert ("Look into this" in drawn) == bool(belied)
    if belied:
        words = findings.on_record(belied)
        assert words in drawn and f"“{words}”" in row.note and findings.witness(effect.late, "order") in row.note


@pytest.mark.parametrize(("verdict", "is_over"), [("happened", True), ("did_not", True), ("fail", False)])
def test_once_a_person_has_said_anew_what_became_of_it_nobody_is_to_look_into_it(verdict: str, is_over: bool) -> None:
    tape = begun().invoked(replay_class="unsafe_on_replay").add(settled("did_not")).add(CALLED_BACK)
    tape.add(settled(verdict, 1))
    drawn = pieces.effect(only(tape.story()), {})
    assert ("Look into this" in drawn) != is_over and "the other side has answered the call since" in drawn.lower()


@pytest.mark.parametrize(("is_lost", "is_done"), [(False, True), (True, False)])
def test_whoever_recorded_a_refusal_has_nothing_more_to_send(is_lost: bool, is_done: bool) -> None:
    """Nobody has to swear that it is gone before the call goes out again; but another one may have sent it too."""
    tape = begun().invoked(replay_class="unsafe_on_replay")
    if is_lost:
        tape.lost().claimed("recovered").add(e.ToolRedispatched(slot="0.1/1", tool="order", n=1))
    assert only(tape.add(REFUSED).add(CALLED_BACK).story()).is_sender_done is is_done
    assert not only(tape.invoked(replay_class="unsafe_on_replay", attempt=1).story()).is_sender_done


def test_a_verdict_ends_the_wait_for_it_and_not_the_one_that_comes_after() -> None:
    def asked(n: int) -> e.WaitOpened:
        return e.WaitOpened(slot="0.1/1", wait="reconcile", n=n, deadline="2030-01-01T00:00:00+00:00")

    tape = begun().invoked(replay_class="unsafe_on_replay").add(asked(0)).add(settled("did_not")).add(CALLED_BACK)
    first, again = rows(tape.add(asked(1)).story(later=60), "wait")
    assert (first.is_open, first.took, again.is_open) == (False, 1.0, True)


def test_an_answer_that_belies_nothing_does_not_take_the_place_of_one_that_does() -> None:
    tape = begun().invoked(replay_class="unsafe_on_replay").add(settled("did_not")).add(told("happened"))
    effect = only(tape.add(told("refused", 1)).story())
    assert (effect.late, effect.belied) == ("happened", "did_not")


@pytest.mark.parametrize("is_sent_again", [False, True])
def test_a_callback_that_belies_a_verdict_is_loud_also_after_the_repeat(is_sent_again: bool) -> None:
    tape = begun().invoked(replay_class="unsafe_on_replay")
    tape.add(e.ToolReconciled(slot="0.1/1", tool="order", verdict="did_not", by="user:olga", n=0))
    if is_sent_again:
        tape.invoked(replay_class="unsafe_on_replay", attempt=1)
    tape.add(e.CallbackArrivedLate(slot="0.1/1", tool="order", payload={"ref": "R-7"}))
    effect = only(tape.story())
    assert (effect.late, effect.belied, effect.testimony) == ("called back", "did_not", {"ref": "R-7"})
    assert tape.story().timeline.rows[-1].kind == "error"
    if not is_sent_again:
        tape.add(e.WaitOpened(slot="0.1/1", wait="reconcile", n=1, deadline="2030-01-01T00:00:00+00:00"))
        assert only(tape.story()).status == "unknown", "it is not about to be sent again"


def test_a_callback_that_belies_nobody_is_quiet() -> None:
    tape = begun().invoked(replay_class="unsafe_on_replay")
    tape.add(e.CallbackArrivedLate(slot="0.1/1", tool="order", payload={"ref": "R-7"}))
    effect = only(tape.story())
    assert (effect.late, effect.belied) == ("called back", "") and tape.story().timeline.rows[-1].kind == "mark"
