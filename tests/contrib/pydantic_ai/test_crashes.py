from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from durableagents import Context, End, Gate, ReplayClass
from durableagents.contrib.pydantic_ai import Outside, durable
from ledger import events as e
from runs.engine.agents import Agent
from runs.engine.memory import MemoryRun
from tests.cases import each_case
from tests.contrib.pydantic_ai.samples import WORLD, Bank, World, files_agent, sql_agent, support_agent
from tests.tiers import many, sample
from tests.unit.engine.mortal import Death, mortal
from tests.unit.engine.story import Story
from tests.unit.engine.test_crashes import restore_waits
from tests.world import IN_PLACE, Notes, agent_of

PURE, KEYED, UNSAFE = ReplayClass.PURE, ReplayClass.IDEMPOTENT_WITH_KEY, ReplayClass.UNSAFE_ON_REPLAY


@dataclass(frozen=True)
class Case:
    agent: Callable[[], Agent]
    output: Any
    done: dict[str, int]
    asked: int


def bank() -> Agent:
    async def advise(state: Notes, ctx: Context) -> End:
        given = await ctx.think(support_agent, "I lost my card", deps=Bank(123, {123: "John"}))
        return End([given.advice, given.block_card, given.risk])

    tools = {"customer_balance": PURE, "block_card": KEYED, "note": UNSAFE}
    return agent_of(advise, assistants=[durable(support_agent, tools=tools)])


def sql() -> Agent:
    async def write(state: Notes, ctx: Context) -> End:
        given = await ctx.think(sql_agent, "all records")
        return End([type(given).__name__, given.sql])

    return agent_of(write, assistants=[durable(sql_agent, tools={"schema_of": PURE})])


def files() -> Agent:
    async def tidy(state: Notes, ctx: Context) -> End:
        return End(json.loads(await ctx.think(files_agent, "tidy up")))

    declared = durable(
        files_agent,
        tools={"delete_file": UNSAFE, "render": KEYED, "list_files": PURE},
        later=["render"],
        gates={"delete_file": Gate("finance_po", "deleting is forever")},
        outside={"pick_colour": Outside()},
    )
    return agent_of(tidy, assistants=[declared])


BANK = Case(bank, ["$123.45", True, 8], {"customer_balance": 2, "block_card lost": 1, "note lost": 1}, 3)
SQL = Case(sql, ["Query", "SELECT * FROM records"], {"schema_of recrods": 1, "schema_of records": 1}, 4)
FILES = Case(
    files,
    [["File '.env' deleted", '{"colour":"blue"}', '{"url":"x"}', '[".env","README.md"]'], ["success"] * 4],
    {"delete_file .env": 1, "render 3": 1, "list_files": 1},
    2,
)
CASES = {"bank": BANK, "sql": SQL, "files": FILES}


def fresh() -> World:
    WORLD.__init__()  # type: ignore[misc]
    return WORLD


def answer(story: Story) -> None:
    for wait_id, wait in list(story.run.waits.items()):
        if wait.resolution is not None:
            continue
        match wait.spec.kind:
            case "timer":
                story.run.resolve(wait_id, "fired")
            case "approval":
                story.decide(slot=wait.spec.slot)
            case "signal":
                story.run.signal(wait.spec.detail["name"], {"colour": "blue"})
            case "webhook" if any(isinstance(x, e.ToolAccepted) for x in story.run.events):
                story.call_back({"url": "x"})
            case "reconcile":
                story.reconcile(
                    "happened" if WORLD.done["note lost"] + WORLD.done["delete_file .env"] else "did_not",
                    receipt=RECEIPTS[wait.spec.detail["tool"]],
                )


RECEIPTS = {"note": None, "delete_file": "File '.env' deleted", "block_card": {"blocked": 123, "on": "2026-11-23"}}


async def tell(case: Case, story: Story | None = None) -> Story:
    story = story or Story(case.agent(), retry=IN_PLACE)
    for _ in range(60):
        answer(story)
        if await story.drive() in ("completed", "failed", "operator"):
            break
    assert story.run.state == "completed", (
        story.kinds(),
        [x.payload for x in story.events(e.OperatorNeeded)],
        [x.payload for x in story.events(e.RunFailed)],
    )
    return story


@each_case("name", CASES)
async def test_an_agent_of_the_documentation_works_as_it_is(name: str) -> None:
    case, world = CASES[name], fresh()
    story = await tell(case)
    assert story.output == case.output
    assert world.done == case.done
    assert len(world.asked) == case.asked == len(story.events(e.ModelResponded))


@each_case("name", CASES)
async def test_every_prefix_of_its_journal_leads_to_the_same_end(name: str) -> None:
    case, world = CASES[name], fresh()
    whole = await tell(case)
    for cut in sample(whole.commits[:-1], 2):
        before = whole.run.events[:cut]
        world = fresh()
        story = await tell(case, _cut(case, whole, cut))
        assert story.output == case.output, cut
        assert len(world.asked) == case.asked - sum(isinstance(x, e.ModelResponded) for x in before), cut
        done = sum(isinstance(x, (e.ToolRead, e.ToolReturned, e.ToolFailed, e.ToolAccepted)) for x in before)
        assert world.done.total() == sum(case.done.values()) - done, cut


def _cut(case: Case, whole: Story, upto: int) -> Story:
    story = Story(case.agent(), retry=IN_PLACE)
    run: MemoryRun = story.run
    run.id, run.events = whole.run.id, []
    run.append(whole.run.events[:upto])
    run.snapshots = [(seq, snapshot) for seq, snapshot in whole.run.snapshots if seq <= upto]
    restore_waits(run, whole)
    return story


@each_case("name", CASES)
async def test_a_worker_may_die_before_each_write_of_it(name: str) -> None:
    """A request or call under way is repeated where its class allows it; all others are made once. The test of every
    prefix is that of a death after each write."""
    case = CASES[name]
    for nth in range(1, 40, many(1, 2)):
        world = fresh()
        schedule = [Death(nth, "before")]
        story = await tell(case, Story(case.agent(), retry=IN_PLACE, journal=mortal(schedule)))
        assert story.output == case.output
        assert len(world.asked) - case.asked in (0, 1), "only the request that was under way"
        for what, times in world.done.items():
            repeated = times - case.done[what]
            may = what.partition(" ")[0] in ("customer_balance", "schema_of", "list_files", "block_card", "render")
            assert repeated in (0, 1) if may else repeated == 0, what
        assert len(set(world.keys)) <= 1, "one key, ever"
        if schedule:
            return
    raise AssertionError("it outlives all of them")


@each_case("point", ["CP2", "CP4"])
@each_case("tool", ["note", "block_card", "customer_balance", "model"])
async def test_a_worker_may_die_in_a_call_of_it(point: str, tool: str) -> None:
    world = fresh()
    story = await tell(BANK, Story(bank(), retry=IN_PLACE, kill_at=[(point, tool)]))
    assert story.output == BANK.output
    assert story.kill_at == []
    assert world.done["note lost"] == 1, "unsafe: a person was asked, and said what had become of it"
    assert len(story.events(e.ToolOutcomeUnknown)) == (tool == "note")
    assert len(set(world.keys)) == 1
