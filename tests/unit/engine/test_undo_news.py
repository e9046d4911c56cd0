from __future__ import annotations

import pytest

from durableagents import BusinessFailure
from ledger import events as e
from runs.engine.journal import Effects
from runs.engine.memory import MemoryJournal
from tests.unit.engine.story import Story
from tests.unit.engine.undoings import Reversible, failing, names
from tests.world import Outside


@pytest.fixture
def tools(outside: Outside) -> Reversible:
    return Reversible(outside)


def question(story: Story) -> str:
    return str(story.one_waiting("input")[1].spec.detail["title"])


def leave(story: Story, slot: str = "") -> None:
    story.run.answer({"decision": "leave", "justification": "called them"}, slot=slot)


def late(slot: str, outcome: str, contradicts: str, n: int = 0) -> e.ToolAnsweredLate:
    return e.ToolAnsweredLate(
        slot=slot,
        tool="post",
        by="worker:gone",
        outcome=outcome,
        contradicts=contradicts,
        n=n,
        payload={"result": {"ref": "post:x"}} if outcome == "happened" else {},
    )


async def test_early_news_are_asked_about(outside: Outside, tools: Reversible, monkeypatch: pytest.MonkeyPatch) -> None:
    """Someone reports between the reading of the record and the plan: nothing is lost."""
    story = Story(failing(tools, [["book", "post"]]))
    outside.trouble("post", BusinessFailure("no room", code="full"))
    read, items = MemoryJournal.effects, []

    async def and_then_somebody_tells(journal: MemoryJournal) -> Effects:
        effects = await read(journal)
        if not items:
            items.append(late("0.1/2", "happened", "refused"))
            journal.run.append(items)
        return effects

    monkeypatch.setattr(MemoryJournal, "effects", and_then_somebody_tells)
    assert await story.settle() == "parked" and names(outside) == ["book", "unbook"]
    kinds = story.kinds()
    assert kinds.index("ToolAnsweredLate") < kinds.index("UndoBegun")
    assert question(story).startswith("post (0.1/2) is not undone: an answer that came late")
    leave(story)
    assert await story.settle() == "failed"
    (left,) = story.events(e.EffectLeft)
    assert (left.of_slot, left.of_attempt) == ("0.1/2", 0)


async def test_a_late_word_that_an_undo_happened_that_was_refused_is_told(outside: Outside, tools: Reversible) -> None:
    outside.trouble("unpost", BusinessFailure("too late", code="late"))
    story = Story(failing(tools, [["post", "buy"]]))
    assert await story.settle() == "parked"
    story.decide("approved")
    assert await story.settle() == "parked"
    assert question(story).startswith("post (0.1/1) is not undone: unpost")
    undo = story.events(e.ToolFailed)[-1].slot or ""
    leave(story)
    story.run.append([late(undo, "happened", "refused")])
    assert await story.settle() == "parked"
    assert "tells that it was happened; on record was refused" in question(story)
    leave(story)
    assert await story.settle() == "failed" and len(story.events(e.EffectLeft)) == 2


async def test_late_refusal_of_a_recorded_undo_is_told(outside: Outside, tools: Reversible) -> None:
    story = Story(failing(tools, [["buy", "book"]]))
    assert await story.settle() == "parked" and names(outside)[-1] == "unbook"
    (undo,) = [x.of_slot and x.slot for x in story.events(e.EffectUndone)]
    story.run.append([late(undo or "", "refused", "happened")])
    story.decide("approved")
    assert await story.settle() == "parked"
    assert "tells that it was refused; on record was happened" in question(story)
    leave(story)
    assert await story.settle() == "failed"


async def test_what_agrees_with_the_record_bothers_nobody(outside: Outside, tools: Reversible) -> None:
    story = Story(failing(tools, [["buy", "book"]]))
    assert await story.settle() == "parked"
    undo = story.events(e.EffectUndone)[0].slot or ""
    story.run.append([late(undo, "happened", "")])
    story.decide("approved")
    assert await story.settle() == "failed" and not story.events(e.EffectLeft)


async def test_late_results_are_asked_in_their_order(outside: Outside, tools: Reversible) -> None:
    """The second is about an earlier call and comes during the first question, which a replay must find in place."""
    outside.trouble("post", BusinessFailure("no room", code="full"))
    outside.trouble("order", BusinessFailure("no room", code="full"))
    story = Story(failing(tools, [["buy", "post"]]))
    assert await story.settle() == "parked"
    story.run.append([late("0.1/2", "happened", "refused")])
    story.decide("approved")
    assert await story.settle() == "parked" and question(story).startswith("post (0.1/2)")
    story.run.append([e.CallbackArrivedLate(slot="0.1/0", tool="rent", payload={})])
    leave(story)
    assert await story.settle() == "parked", "nothing is asked in the other's place"
    assert "operator" not in {wait.spec.kind for wait in story.run.open_waits()}
    leave(story)
    assert await story.settle() == "failed"
    assert [x.of_slot for x in story.events(e.EffectLeft)] == ["0.1/2", "0.1/0"]


async def test_last_news_delay_the_end(outside: Outside, tools: Reversible, monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(failing(tools, [["book"]]))
    load, items = MemoryJournal.load, []

    async def after_somebody_told(journal: MemoryJournal) -> object:
        if not items and story.events(e.EffectUndone):
            items.append(e.CallbackArrivedLate(slot="0.1/0", tool="rent", payload={}))
            journal.run.append(items)
        return await load(journal)

    monkeypatch.setattr(MemoryJournal, "load", after_somebody_told)
    assert await story.settle() == "parked" and "came late" in question(story)
    leave(story)
    assert await story.settle() == "failed"
