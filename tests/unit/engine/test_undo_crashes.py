"""Effects are undone once, in reverse order, after any crash and from every prefix of a journal."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger import events as e
from runs.engine.memory import MemoryRun
from runs.engine.tools import DidNotHappen, Happened, ToolCall
from tests.tiers import many
from tests.unit.engine.mortal import Death, die_as_scheduled
from tests.unit.engine.story import Story
from tests.unit.engine.test_crashes import restore_waits
from tests.unit.engine.undoings import Reversible, answer_all, cancel, failing, names, to_the_end
from tests.world import AT_ONCE, IN_PLACE, Done, Outside, only_for_now

OPS = ("book", "post", "buy", "rent", "order")
programs = st.lists(st.lists(st.sampled_from(OPS), max_size=4), min_size=1, max_size=2)
deaths = st.lists(st.builds(Death, st.integers(1, 14), st.sampled_from(["before", "after", "call"])), max_size=8)


class Truthful(Outside):
    def __post_init__(self) -> None:
        self.hook = self._what_became

    def _what_became(self, args: Any, call: ToolCall) -> Happened | DidNotHappen:
        seen = [r for r in self.requests if (r.slot, r.attempt) == (call.slot, call.attempt)]
        return Happened(Done(ref=f"{call.tool}:{args.name}", amount=args.amount)) if seen else DidNotHappen()


async def tell(program: list[list[str]], schedule: list[Death], *, is_cancelled: bool) -> tuple[Story, Outside]:
    outside = Truthful()
    agent = failing(Reversible(outside), program)
    agent._fingerprint = "made up"
    story = Story(agent, retry=IN_PLACE)
    die_as_scheduled(story, [Death(d.nth, d.when) for d in schedule])
    if is_cancelled:
        await story.drive()
        if story.run.state not in ("failed", "compensating") and "UndoBegun" not in story.kinds():
            cancel(story, "undo")
    if story.run.state not in ("failed", "cancelled"):
        await to_the_end(story, outside)
    story.outside = outside  # type: ignore[attr-defined]
    return story, outside


def check(story: Story, outside: Outside) -> None:
    """Assert that each undoable effect was undone once, in reverse order, without needless questions."""
    ended = names(outside)
    done = [x for x in ended if x in ("book", "post", "buy", "rent")]
    undone = [x for x in ended if x in ("unbook", "unpost", "refund", "unrent")]
    inverse = {"book": "unbook", "post": "unpost", "buy": "refund", "rent": "unrent"}
    assert undone == [inverse[x] for x in reversed(done)]
    assert ended[: len(ended) - len(undone)] == [x for x in ended if x not in undone], "nothing new after the first"
    events = story.events(e.EffectUndone)
    assert [x.tool for x in events] == list(reversed(done)) and len({(x.of_slot, x.of_attempt) for x in events}) == len(
        events
    )
    assert [x for x in story.run.entries if x.fact == "compensated"] == [
        x
        for x in story.run.entries
        if x.fact == "compensated" and (x.slot, x.attempt) in {(y.of_slot, y.of_attempt) for y in events}
    ]
    assert story.facts().count("compensated") == len(events)
    assert not story.run.open_waits()


@settings(max_examples=many(200, 25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=programs, deaths=deaths, is_cancelled=st.booleans())
def test_deaths_undo_effects_once(program: list[list[str]], deaths: list[Death], is_cancelled: bool) -> None:
    with only_for_now():
        story, outside = asyncio.run(tell(program, deaths, is_cancelled=is_cancelled))
    assert story.run.state in ("failed", "cancelled")
    check(story, outside)


@settings(max_examples=many(20, 5), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=programs)
def test_every_prefix_of_a_journal_that_undoes_leads_to_the_same_end(program: list[list[str]]) -> None:
    with only_for_now():
        whole, seen = asyncio.run(tell(program, [], is_cancelled=False))
        for upto in whole.commits:
            story, outside = asyncio.run(_resume(program, whole, upto))
            assert story.failure.payload == whole.failure.payload
            again = [r for r in outside.requests if r.executed]
            first = [r for r in seen.requests if r.executed]
            assert all(any((r.tool, r.body) == (x.tool, x.body) for x in first) for r in again)
            assert len(story.events(e.EffectUndone)) == len(whole.events(e.EffectUndone))


async def _resume(program: list[list[str]], whole: Story, upto: int) -> tuple[Story, Outside]:
    outside = Truthful()
    agent = failing(Reversible(outside), program)
    agent._fingerprint = "made up"
    story = Story(agent, retry=AT_ONCE)
    run: MemoryRun = story.run
    run.id, run.events = whole.run.id, []
    run.facts.clear()
    run.append(whole.run.events[:upto])
    run.snapshots = [(seq, snapshot) for seq, snapshot in whole.run.snapshots if seq <= upto]
    run.state = run.at_work
    for event in run.events:
        if isinstance(event, e.ToolInvoked):  # announced means sent
            outside.urls[event.slot or ""] = "known"
            sent = [r for r in whole_requests(whole) if (r.slot, r.attempt) == (event.slot, event.attempt)]
            outside.requests += sent[:1]
    restore_waits(run, whole)
    answer_all(story, outside)
    await to_the_end(story, outside)
    return story, outside


def whole_requests(whole: Story) -> list[Any]:
    return list(whole.outside.requests)  # type: ignore[attr-defined]
