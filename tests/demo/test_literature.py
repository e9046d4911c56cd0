"""A review from question to report: its scope is a person's, its references are what was really read."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from durableagents.demo.literature import model
from durableagents.demo.literature.literature_review import agent, citations, merged, rendered, wrong_citations
from durableagents.demo.literature.paper_reader import agent as paper_reader
from durableagents.demo.literature.records import Draft, Found, Note, Section
from ledger import events as e
from runs.engine.assistants import Assistant, ModelTurn
from runs.engine.steps.model_request import request_model
from tests.engine.story import Story
from tests.sandbox.harness import Sandbox

pytestmark = pytest.mark.django_db(transaction=True)
QUESTION: dict[str, Any] = {**agent.samples[0].input, "documents": 6, "at_once": 3}
ENDINGS = {"completed", "failed"}


def note(n: int) -> Note:
    sha256 = hashlib.sha256(str(n).encode()).hexdigest()
    return Note(
        document_id=f"doc.{n}", source="Django 5", sha256=sha256, embedding_id=f"EMB-{n}", summary="S.", quote=None, relevance=1
    )


async def told(story: Story, *, fails: set[int] = frozenset()) -> str:  # type: ignore[assignment]
    """Drive the review, answer its question, and let each child be a real run of the reader."""
    how = await story.settle()
    while how == "parked":
        if story.waiting("input"):
            story.run.answer({"documents": 6, "leave_out": ""})
        for at, child in enumerate(list(story.run.children)):
            if is_over(story, child):
                continue
            if at in fails:
                story.run.end_child(child, "failed", code="no_such_document")
                continue
            reading = Story(paper_reader, child_input(story, child))
            assert await reading.settle() == "completed"
            story.run.end_child(child, output=reading.output)
        how = await story.settle()
    return how


def child_input(story: Story, child: Any) -> dict[str, Any]:
    return dict(story.run.children[child].input) if isinstance(story.run.children, dict) else dict(child.input)


def is_over(story: Story, child: Any) -> bool:
    ended = {event.child for event in story.run.events if isinstance(event, e.ChildEnded)}
    return str(getattr(child, "id", child)) in {str(each) for each in ended}
