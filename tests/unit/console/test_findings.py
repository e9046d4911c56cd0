from __future__ import annotations

from ledger import events as e
from runs.console import pieces
from runs.story import findings
from tests.cases import each_case
from tests.unit.console.test_story import begun, only


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


@each_case(("past", "news", "contradicted"), NEWS)
def test_news_that_belies_the_record_is_loud_on_lane_and_timeline_and_no_other_is(
    past: list[e.Event], news: e.Event, contradicted: str
) -> None:
    tape = begun().invoked(replay_class="unsafe_on_replay")
    for event in (*past, news):
        tape.add(event)
    story = tape.story()
    effect, row = only(story), story.timeline.rows[-1]
    assert (effect.contradicted, row.kind) == (contradicted, "error" if contradicted else "mark")
    drawn = pieces.effect(effect, {})
    assert ("Check this" in drawn) == bool(contradicted)
    if contradicted:
        words = findings.on_record(contradicted)
        assert words in drawn and f"“{words}”" in row.note and findings.witness(effect.late, "order") in row.note


@each_case(("verdict", "is_over"), [("happened", True), ("did_not", True), ("fail", False)])
def test_once_a_person_has_said_again_what_became_of_it_nobody_is_to_look_into_it(verdict: str, is_over: bool) -> None:
    tape = begun().invoked(replay_class="unsafe_on_replay").add(settled("did_not")).add(CALLED_BACK)
    tape.add(settled(verdict, 1))
    drawn = pieces.effect(only(tape.story()), {})
    assert ("Check this" in drawn) != is_over and "upstream has since answered the call" in drawn.lower()
