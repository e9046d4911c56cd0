"""A literature review from question to report: a person approves its scope, and its references were really read."""

from __future__ import annotations

import asyncio
import functools
import hashlib
from collections import Counter
from typing import Any

import psycopg
import pytest
from pydantic import ValidationError

from durableagents import BusinessFailure
from durableagents.demo.literature import corpus
from durableagents.demo.literature.literature_review import agent
from durableagents.demo.literature.paper_reader import agent as paper_reader
from durableagents.demo.literature.records import Errand
from ledger import events as e
from runs.connections import dsn
from runs.engine.assistants import Assistant, ModelTurn, responses
from runs.engine.thinking.request import request_model
from runs.engine.tools import FINAL
from tests.cases import each_case
from tests.system.sandbox.harness import Sandbox
from tests.unit.engine.story import Story

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(180)]
QUESTION: dict[str, Any] = {**agent.samples[0].input, "documents": 6, "at_once": 3}
SCOPE = {"documents": 6, "packages": ", ".join(corpus.PACKAGES)}


made = corpus.documents
known = functools.cache(made)


@pytest.fixture(autouse=True)
def read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the packages once for all tests: they don't change, and reading takes seconds."""
    monkeypatch.setattr(corpus, "documents", known)


async def settled(story: Story, *, fails: frozenset[int] = frozenset(), scope: Any = SCOPE) -> str:
    for _ in range(100):
        how = await story.settle()
        if how != "parked":
            return how
        if story.waiting("input"):
            story.run.answer(scope)
        ended = {x.child for x in story.run.events if isinstance(x, e.ChildEnded)}
        for at, (child, spec) in enumerate([*story.run.children.items()]):
            if child in ended:
                continue
            if at in fails:
                story.run.end_child(child, "failed", code="altered")
                continue
            reading = Story(paper_reader, dict(spec.input))
            assert await reading.settle() == "completed"
            story.run.end_child(child, output=reading.output)
    raise AssertionError("it goes round in circles")


def turn(output: dict[str, Any]) -> ModelTurn:
    from pydantic_ai.messages import ModelResponse, ToolCallPart

    response = ModelResponse(parts=[ToolCallPart(FINAL, output, tool_call_id="end")])
    return ModelTurn("liar", responses().dump_python(response, mode="json"), 1, 1)


async def test_every_reference_was_read_and_has_the_digest_of_what_was_read(sandbox: Sandbox) -> None:
    story = Story(agent, QUESTION)
    assert await settled(story) == "completed"
    report = story.output
    assert report["documents_read"] == 6 == len(story.run.children) and report["unread"] == []
    assert hashlib.sha256(report["report"].encode()).hexdigest() == report["report_sha256"]
    read = {spec.input["title"]: spec.input["sha256"] for spec in story.run.children.values()}
    assert report["cited"] and all(read[name] == sha256 for name, sha256 in report["cited"].items())
    for name, sha256 in report["cited"].items():
        assert (await corpus.fetch(report["edition"], name)).sha256 == sha256
        assert f"{name} (" in report["report"] and sha256 in report["report"]
    assert [row["operation"] for row in sandbox.executed("publish") if row["run_id"] == story.run.id] == ["publish"]


async def test_without_a_scope_nothing_is_read(sandbox: Sandbox) -> None:
    story = Story(agent, QUESTION)
    assert await story.settle() == "parked"
    ((wait_id, _),) = story.waiting("input")
    story.run.resolve(wait_id, "timed_out")
    assert await story.settle() == "failed" and story.failure.code == "no_scope" and not story.run.children


DEATHS = {
    "CP1": ["open_library", "publish_report", "", ""],
    "CP2": ["open_library", "publish_report", "model", "model"],
    "CP4": ["open_library", "publish_report", "search_library"],
    "CP6": ["open_library", "publish_report", "model", "model", "search_library"],
    "CP7": ["", "", "", ""],
}


@pytest.mark.every(2)
@pytest.mark.parametrize("point", DEATHS)
async def test_a_worker_that_dies_again_and_again_makes_each_step_once(sandbox: Sandbox, point: str) -> None:
    story = Story(agent, QUESTION, kill_at=[(point, name) for name in DEATHS[point]])
    assert await settled(story) == "completed"
    assert max(Counter(spec.input["title"] for spec in story.run.children.values()).values()) == 1
    assert len([row for row in sandbox.executed("publish") if row["run_id"] == story.run.id]) == 1
    models = [event.slot for event in story.run.events if isinstance(event, e.ModelResponded)]
    assert len(models) == len(set(models)) == 2 and story.kill_at == []


async def test_a_writer_that_cites_what_nobody_read_is_sent_back_once_and_then_refused(sandbox: Sandbox) -> None:
    items: list[str] = []

    async def liar(assistant: Assistant, messages: list[Any], model: str) -> ModelTurn:
        if assistant.name != "writer":
            return await request_model(assistant, messages, model)
        items.append(messages[0].parts[0].content)
        return turn({"title": "All is well", "sections": [{"heading": "H", "text": "Trust me [7]."}]})

    story = Story(agent, QUESTION, model=liar)
    assert await settled(story) == "failed" and story.failure.code == "cites_unread"
    assert len(items) == 2 and "the notes are 1 to 6" in items[1] and not sandbox_published(sandbox, story)


def sandbox_published(sandbox: Sandbox, story: Story) -> bool:
    return any(row["run_id"] == story.run.id for row in sandbox.executed("publish"))


async def test_a_quote_that_does_not_stand_in_the_text_is_dropped(sandbox: Sandbox) -> None:
    async def liar(assistant: Assistant, messages: list[Any], model: str) -> ModelTurn:
        return turn({"summary": "It says so.", "quote": "Nothing of the sort.", "relevance": 3})

    shelf = await corpus.fill()
    (found,) = await corpus.search(shelf.edition, "transaction savepoint", 1)
    errand = Errand(topic="What?", edition=shelf.edition, title=found["id"], sha256=found["sha256"])
    story = Story(paper_reader, errand.model_dump(), model=liar)
    assert await story.settle() == "completed" and story.output["quote"] is None
    honest = Story(paper_reader, errand.model_dump())
    assert await honest.settle() == "completed" and honest.output["quote"]


@each_case(
    "wrong",
    [
        {"documents": 0},
        {"documents": 201},
        {"at_once": 0},
        {"pace_seconds": -1},
        {"pace_seconds": float("nan")},
        {"topic": ""},
        {"topic": "\ud800"},
        {"topic": "x" * 2001},
        {"more": 1},
    ],
)
def test_what_can_not_be_reviewed_is_refused_at_the_start(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        agent.input.model_validate(QUESTION | wrong)


@pytest.mark.long
def test_there_are_hundreds_of_documents_and_they_are_the_same_at_every_look() -> None:
    once, again = known(), made()
    assert once == again and len(once) >= 200
    assert len({each.id for each in once}) == len(once)
    assert all(corpus.SHORTEST - 1 <= len(each.body) <= corpus.LONGEST for each in once)
    assert {each.source.rpartition(" ")[0].lower() for each in once} >= {"django", "psycopg"}


async def test_filling_it_twice_at_once_gives_one_shelf() -> None:
    first, second = await asyncio.gather(corpus.fill(), corpus.fill())
    assert first == second == await corpus.fill()
    ids = [f"{each.id} {each.sha256}" for each in corpus.documents()]
    assert first.documents == len(ids)
    assert first.sha256 == hashlib.sha256("\n".join(ids).encode()).hexdigest()


async def test_a_search_finds_what_the_words_mean_and_always_in_the_same_order() -> None:
    shelf = await corpus.fill()
    found = await corpus.search(shelf.edition, "transaction savepoint rollback", 10)
    assert len(found) == 10 and "django.db.transaction" in {row["id"] for row in found}
    assert found == await corpus.search(shelf.edition, "transaction savepoint rollback", 10)
    assert found == sorted(found, key=lambda row: (-row["score"], row["id"]))


async def test_an_altered_text_and_an_unknown_one_are_refused() -> None:
    shelf = await corpus.fill()
    with psycopg.connect(dsn()) as connection:
        connection.execute("UPDATE durableagents_document SET body = 'Forged.' WHERE id = 'django.db.transaction'")
    try:
        with pytest.raises(BusinessFailure, match="not what its digest says"):
            await corpus.fetch(shelf.edition, "django.db.transaction")
        with pytest.raises(BusinessFailure, match="no document"):
            await corpus.fetch(shelf.edition, "django.db.nothing")
        with pytest.raises(BusinessFailure, match="no edition"):
            await corpus.search("another", "transaction", 5)
    finally:
        with psycopg.connect(dsn()) as connection:
            connection.execute("DELETE FROM durableagents_document")
