from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

from durableagents import Agent, Context, End
from ledger import events as e
from runs.engine.checkpoints.position import REENTERED, REPLAYED, Position, position_of
from runs.engine.journal import Snapshot
from runs.engine.migrating import MigrationResult, Moving, tried
from runs.engine.tape import Tape
from tests.cases import each_case
from tests.unit.engine.mortal import Death, die_as_scheduled, mortal
from tests.unit.engine.story import HASHER, Story
from tests.world import Notes, Outside, Toolbox, agent_of, only_for_now

NODES = {"take": "take", "hold": "hold", "last": "last"}


def made(tools: Toolbox, version: str, ask: str) -> Agent:
    async def take(state: Notes, ctx: Context) -> str:
        state.seen = [*state.seen, (await ctx.call(tools.order, {"name": "first"})).ref]
        return "hold"

    async def hold(state: Notes, ctx: Context) -> str:
        await ctx.call(tools.look, {"name": ask})
        await ctx.signal("go")
        state.seen = [*state.seen, (await ctx.call(tools.order, {"name": f"second {version}"})).ref]
        return "last"

    async def last(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.order, {"name": "third"})
        return End(state.seen)

    agent = agent_of(take, hold, last, tools=tools.all(), name="crashing-mover", version=version)
    agent._fingerprint = f"made up {version}"
    return agent


def versions(tools: Toolbox, how: str) -> tuple[Agent, Agent]:
    """Return two versions; the second repeats the first one's waiting visit or differs in it."""
    return made(tools, "1.0.0", "a"), made(tools, "2.0.0", "a" if how == REPLAYED else "b")


def stands(story: Story) -> Position:
    seq, at = story.run.snapshots[-1] if story.run.snapshots else (0, Snapshot("", 0, 0, "", None))
    return position_of(at, story.run.events[seq:])


async def found_for(story: Story, moving: Moving) -> MigrationResult:
    created = story.run.events[0]
    assert isinstance(created, e.RunCreated)
    return await tried(moving, story.run.id, created, stands(story), [], depth=0, hasher=HASHER)


async def move(story: Story, to: Agent) -> MigrationResult:
    """Write what the app `releases` writes."""
    moving = Moving(story.agent.graph_id, to, NODES)
    found = await found_for(story, moving)
    assert not found.is_refused, found.why
    story.generation += 1
    moved = e.RunMigrated(
        of=moving.of,
        to=to.graph_id,
        generation=story.generation,
        how=found.how,
        node=found.node,
        visit=found.at.visit,
        slots=found.at.generation,
        fingerprint=to.fingerprint(),
        by="user:olga",
        payload={"state": found.state},
    )
    story.run.append([moved])
    for slot, attempt, kind, n in found.closes:
        wait = next(w for w in story.run.waits.values() if (w.spec.slot, w.spec.kind) == (slot, kind))
        ended = e.WaitResolved(slot=slot, attempt=attempt, wait=kind, n=n, resolution="withdrawn", by="user:olga")
        story.run.resolve(wait.spec.id, "withdrawn", event=ended)
    story.agent = to
    return found


async def tell(how: str, schedule: list[Death]) -> tuple[Story, Outside]:
    outside = Outside()
    tools = Toolbox(outside)
    old, new = versions(tools, how)
    story = Story(old)
    assert await story.settle() == "parked"
    assert (await move(story, new)).how == how
    die_as_scheduled(story, schedule, ("CP2", "CP4", "CP7"))
    story.run.signal("go")
    assert await story.settle() in ("completed", "parked")
    return story, outside


def check(story: Story, outside: Outside, how: str) -> None:
    orders = [r.body for r in outside.requests if r.executed and r.tool == "order"]
    assert [body.split('"name": ')[1] for body in orders] == ['"first"}', '"second 2.0.0"}', '"third"}']
    assert story.run.events[-1].payload == ["order:first", "order:second 2.0.0"]
    slots = [x.slot for x in story.run.events if isinstance(x, e.ToolInvoked)]
    assert slots == ["0.1/1", "0.2/3" if how == REPLAYED else "1.3/3", "1.3/1" if how == REPLAYED else "1.4/1"]
    visits = [(x.node, x.visit) for x in story.run.events if isinstance(x, e.VisitEntered)]
    assert len(visits) == len(set(visits)), "each is entered once"
    assert {x.fingerprint for _, x in story.run.snapshots} == {"made up 1.0.0", "made up 2.0.0"}
    assert not story.run.open_waits()


@each_case("how", [REPLAYED, REENTERED])
@each_case(("nth", "when"), list(itertools.product(range(1, 11), ["before", "after", "call"])))
def test_what_is_left_is_done_once_wherever_a_worker_dies(how: str, nth: int, when: Any) -> None:
    with only_for_now():
        story, outside = asyncio.run(tell(how, [Death(nth, when), Death(1, "before"), Death(2, "after")]))
        check(story, outside, how)


@each_case("how", [REPLAYED, REENTERED])
@each_case("lost", [1, 2])
def test_checkpoints_of_after_the_move_may_all_be_lost(how: str, lost: int) -> None:
    """The worker dies at each commit and the newest checkpoints are unreadable: the migration holds its state."""
    with only_for_now():
        whole, _ = asyncio.run(tell(how, []))
        moved = next(i for i, x in enumerate(whole.run.events) if isinstance(x, e.RunMigrated))
        for nth in range(1, len([c for c in whole.commits if c > moved]) + 1):
            story, outside = asyncio.run(_with_lost_checkpoints(how, nth, lost))
            check(story, outside, how)


async def _with_lost_checkpoints(how: str, nth: int, lost: int) -> tuple[Story, Outside]:
    outside = Outside()
    old, new = versions(Toolbox(outside), how)
    story = Story(old)
    await story.settle()
    await move(story, new)
    kept = list(story.run.snapshots)
    story.journal = mortal([Death(nth, "after")])
    story.run.signal("go")
    while (how_it_went := await story.drive()) != "killed" and how_it_went != "completed":
        assert how_it_went == "parked"
    gone = story.run.snapshots[len(kept) :]
    if not Tape(story.run.events).in_doubt():  # otherwise an operator is asked about that call, migrated or not
        story.run.snapshots = story.run.snapshots[: max(1, len(story.run.snapshots) - lost)]
    if story.run.state != "completed":
        assert await story.settle() == "completed"
    story.run.snapshots = kept + gone + [each for each in story.run.snapshots if each not in kept + gone]
    return story, outside


def test_a_visit_that_was_entered_since_the_move_is_not_left_where_its_checkpoint_is_lost(outside: Outside) -> None:
    with only_for_now():
        tools = Toolbox(outside)
        old, new = versions(tools, REENTERED)
        story = Story(old)
        for to, how in ((new, REENTERED), (made(tools, "3.0.0", "b"), REPLAYED)):
            assert asyncio.run(story.settle()) == "parked"
            story.run.snapshots = story.run.snapshots[:2]
            found = asyncio.run(move(story, to))
            assert found.how == how, found.why
        assert (found.node, found.at.visit, found.answered, found.closes) == ("hold", 3, ["1.3/1"], [])
        story.run.signal("go")
        assert asyncio.run(story.settle()) == "completed"
    visits = [(x.node, x.visit) for x in story.events(e.VisitEntered)]
    assert visits == [("take", 1), ("hold", 2), ("hold", 3), ("last", 4)]
    assert story.output == ["order:first", "order:second 3.0.0"]
    assert [json.loads(r.body)["name"] for r in outside.seen("look")] == ["a", "b"], "what was read is not read again"


def test_a_continuation_that_has_entered_no_node_is_moved_with_what_it_was_given() -> None:
    with only_for_now():
        tools = Toolbox(Outside())
        old, new = versions(tools, REPLAYED)
        come = e.RunCarriedOn(
            origin="a",
            first="a",
            turn=1,
            handoffs=0,
            how="renewal",
            node="hold",
            payload={"state": {"asked": {"text": "x", "amount": 1}, "seen": ["before"]}},
        )
        story = Story(old)
        story.run.append([come])
        found = asyncio.run(move(story, new))
        assert (found.how, found.node, found.at.visit) == (REENTERED, "hold", 0)
        assert asyncio.run(story.settle()) == "parked"
        entered = [x for x in story.run.events if isinstance(x, e.VisitEntered)]
        assert [(x.node, x.visit) for x in entered] == [("hold", 1)]
        assert story.run.snapshots[-1][1].state["seen"] == ["before"]
