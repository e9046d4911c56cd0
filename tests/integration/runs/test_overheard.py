from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import UUID

from django.utils.timezone import now
from psycopg_pool import AsyncConnectionPool
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaToolCall

from durableagents import Assistant, Context, End
from ledger.models import Event, Head
from runs.engine.agents import registry
from runs.engine.driver import Driver
from runs.engine.runtime import Control
from runs.engine.thinking.request import request_model
from runs.journal.claims import Worker
from runs.models import Overheard, Run
from runs.overheard.reading import listen, live_output_of
from runs.overheard.texts import MAX_CHARACTERS, Text, Texts
from runs.workers import failover
from tests.integration.runs.stage import Stage, fresh
from tests.world import Done, Killed, Notes, agent_of


class Speaker:
    """A scripted model that streams its answer and stops in the middle until released."""

    def __init__(self, *pieces: str) -> None:
        self.pieces, self.asked = pieces, 0
        self.is_half_way, self.may_go_on = asyncio.Event(), asyncio.Event()

    async def say(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        self.asked += 1
        yield {0: DeltaToolCall("final_result", '{"ref": "')}
        for piece in self.pieces:
            yield {0: DeltaToolCall(json_args=piece)}
        self.is_half_way.set()
        await self.may_go_on.wait()
        yield {0: DeltaToolCall(json_args='."}')}


def speaking(speaker: Speaker) -> Any:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        async for piece in speaker.say(messages, info):
            yield piece

    speaks = Assistant("speaker", "Speak.", Done, offline=stream)

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.think(speaks, "go")).ref)

    return agent_of(node, assistants=[speaks])


def heard(run: Run) -> list[str]:
    return [one.text for one in live_output_of([run.id]).get(run.id, [])]


class Drive:
    """Drives the one ready run, held in the middle of the model's answer."""

    def __init__(self, stage: Stage, speaker: Speaker, worker: Worker | None = None) -> None:
        self.stage, self.speaker = stage, speaker
        (claimed,) = stage.claim(worker)
        stage.texts._pool = stage.wait(stage.connected())
        self.driver = Driver(
            registry.find(claimed.graph_id),
            stage.journal(claimed, worker),
            stage.runtime,
            Control(),
            trace_id=claimed.trace_id,
        )
        self.driving: asyncio.Task[str] | None = None
        stage.wait(self._begin())

    async def _begin(self) -> None:
        self.driving = asyncio.create_task(self.driver.drive())
        await asyncio.wait_for(self.speaker.is_half_way.wait(), 10)
        await self.stage.texts.send(await self.stage.connected())

    def end(self) -> str:
        async def end() -> str:
            assert self.driving is not None
            self.speaker.may_go_on.set()
            try:
                return await self.driving
            finally:
                await self.stage.texts.send(await self.stage.connected())

        try:
            return self.stage.wait(end())
        except Killed:
            return "killed"


def test_it_is_seen_while_it_is_said_and_then_stands_on_record_alone(stage: Stage) -> None:
    speaker = Speaker("All", " is", " well")
    run = stage.start(speaking(speaker))
    listen([run.id])
    drive = Drive(stage, speaker)
    seen = live_output_of([run.id])[run.id]
    assert drive.end() == "completed"
    assert [(one.slot, one.text.strip()) for one in seen] == [("0.1/1/0/0", 'final_result {"ref": "All is well')]
    assert seen[0].characters == len(seen[0].text)
    assert heard(run) == [] and speaker.asked == 1
    assert not Event.objects.filter(run_id=run.id, clear__contains=b"final_result {").exists()
    for text in stage.texts._texts:
        text.over_at = 0.0
    stage.wait(stage.texts.send(stage.wait(stage.connected())))
    assert not Overheard.objects.exists(), "nothing of it is left over"


def test_where_nobody_looks_nothing_is_streamed_and_nothing_written(stage: Stage) -> None:
    ways: list[int] = []

    async def ask(assistant: Assistant, messages: list[Any], model: str, *hear: Any) -> Any:
        ways.append(len(hear))
        return await request_model(assistant, messages, model, *hear)

    stage.ask_model = ask
    for is_watched in (False, True):
        speaker = Speaker("x")
        run = stage.start(speaking(speaker))
        if is_watched:
            listen([run.id])
        Drive(stage, speaker).end()
    assert ways == [0, 1]
    assert {str(row.run_id) for row in Overheard.objects.all()} == {str(run.id)}


def test_what_a_dead_worker_heard_is_gone_with_the_next_claim(stage: Stage) -> None:
    speaker = Speaker("half a sentence")
    run = stage.start(speaking(speaker))
    listen([run.id])
    stage.kill_at = [("CP4", "model")]
    drive = Drive(stage, speaker)
    assert drive.end() == "killed" and heard(run) != [], "its lease stands: nobody knows yet"
    speaker.pieces = ("whole",)
    failover.worker_died(stage.worker.id, "the test says so")
    assert heard(run) == []
    stage.worker = stage.hire()
    Run.objects.filter(pk=run.id).update(ready_at=now())
    stage.settle(run)
    assert str(fresh(run).state) == "completed" and speaker.asked == 2
    assert heard(run) == [] and not stage.kill_at


def test_one_that_has_lost_the_run_says_nothing(stage: Stage) -> None:
    run = stage.start(speaking(Speaker()))
    listen([run.id])
    journal = stage.take(run)
    pool = stage.wait(stage.connected())
    texts = Texts()
    for lease in (replace(journal.lease, epoch=journal.lease.epoch + 1), replace(journal.lease, token=UUID(int=7))):
        stale = Text(str(run.id), lease, "0.1/1/0/0", 0)
        stale.hear("from the grave")
        texts._texts = [stale]
        stage.wait(texts.send(pool))
    assert not Overheard.objects.exists()
    mine = Text(str(run.id), journal.lease, "0.1/1/0/0", 0)
    mine.hear("alive")
    texts._texts = [mine]
    stage.wait(texts.send(pool))
    assert heard(run) == ["alive"]
    Head.objects.filter(run_id=run.id).update(epoch=9)
    assert heard(run) == []


def test_it_is_bounded_and_hostile_text_is_inert(stage: Stage) -> None:
    run = stage.start(speaking(Speaker()))
    listen([run.id])
    journal = stage.take(run)
    text = Text(str(run.id), journal.lease, "0.1/1/0/0", 0)
    text.hear("x" * 1_000_000 + "\x00\ud800<script>" + "https://here.example/api/v1/callbacks/" + "t" * 43)
    texts = Texts()
    texts._texts = [text]
    stage.wait(texts.send(stage.wait(stage.connected())))
    (one,) = live_output_of([run.id])[run.id]
    assert len(one.text) <= MAX_CHARACTERS + 10 and one.characters > 1_000_000
    assert "\x00" not in one.text and "\ud800" not in one.text
    one.text.encode()
    many = [Text(str(run.id), journal.lease, f"0.1/{n}/0/0", 0) for n in range(300)]
    texts._texts = many

    async def too_many() -> Any:
        texts._pool = stage.pool
        async with texts.overhear(str(run.id), journal.lease, "0.1/1/0/0", 0) as hear:
            return hear

    assert stage.wait(too_many()) is None


def test_a_database_that_is_away_keeps_nobody_from_thinking(stage: Stage) -> None:
    async def without() -> Any:
        away: Any = AsyncConnectionPool("host=/nowhere", min_size=0, max_size=1, open=False)
        texts = Texts()
        texts._pool = away
        async with texts.overhear("0" * 32, None, "1", 0) as hear:  # type: ignore[arg-type]
            assert hear is None
        text = Text("0" * 32, None, "1", 0)  # type: ignore[arg-type]
        text.hear("x")
        texts._texts = [text]
        await texts.send(away)

    stage.wait(without())
