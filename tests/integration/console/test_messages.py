"""People send messages to a run on its page: what each sees, does, and is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client
from pydantic import BaseModel, Field

from durableagents import Agent, Context, End, Refused
from ledger import events as e
from ledger.models import ActRecord
from runs.engine.agents import registry
from runs.models import Message, Run
from runs.services import lifecycle
from tests.integration.console.conftest import SHOP, Reader, filled_in, text_of
from tests.integration.console.stage import settled, until, working
from tests.integration.runs.conftest import outside, stage, tools  # noqa: F401 (fixtures)
from tests.integration.runs.stage import events

pytestmark = pytest.mark.django_db(transaction=True)


def page(client: Client, run: Run) -> str:
    answer = client.get(f"/runs/{run.id}")
    assert answer.status_code == 200
    return answer.content.decode()


HOSTILE = "<script>alert(1)</script>\u202e"


@pytest.fixture
def auditor(reader: Callable[..., Reader]) -> Reader:
    return reader("auditor")


class Review(BaseModel):
    documents: list[str] = []


class Add(BaseModel):
    name: str = Field(max_length=200)
    pages: int = Field(default=1, ge=1, title="How many pages")


class Count(BaseModel):
    documents: int
    last: str


@pytest.fixture
def talking() -> Iterator[Run]:
    agent = Agent("talk", "1.0.0", input=Review, state=Review)

    @agent.node(start=True)
    async def collect(state: Review, ctx: Context) -> End:
        await ctx.signal("go")
        return End({"documents": state.documents})

    @agent.message(takes=Add, answers=Count, title="add a document")
    def add_document(state: Review, request: Add) -> Count:
        """A document to look at."""
        if request.name == "none":
            raise Refused(f"there is no such document {HOSTILE}")
        state.documents.append(request.name)
        return Count(documents=len(state.documents), last=request.name)

    @agent.view(answers=Count, title="so far")
    def so_far(state: Review) -> Count:
        return Count(documents=len(state.documents), last=HOSTILE)

    @agent.view(answers=Count)
    def broken(state: Review) -> Count:
        raise ValueError(HOSTILE)

    agent.validate()
    started = lifecycle.start("talk", {}, by=SHOP)
    with working():
        yield settled(started, "waiting_event")
    registry.remove(agent.graph_id)


def form_of(answer: Any) -> dict[str, str]:
    page = answer.content.decode()
    form = page[page.index('id="send-add_document"') :]
    return filled_in(form[: form.index("</form>")])


def answered(talking: Run) -> None:
    """Wait until its only message is handled and no worker drives it."""
    until(lambda: Message.objects.filter(run=talking).exclude(outcome="").first(), f"an answer of run {talking.pk}")
    settled(talking, "waiting_event")


def send(reader: Reader, talking: Run, **typed: Any) -> Any:
    address = f"/runs/{talking.id}"
    data = form_of(reader.get(address)) | {f"m-add_document.{name}": value for name, value in typed.items()}
    return data, reader.post(f"{address}/messages/add_document", **data)


def test_a_person_sends_a_message_once_and_sees_its_answer(talking: Run, operator: Reader) -> None:
    page = text_of(operator.get(f"/runs/{talking.id}"))
    assert "No messages yet." in page and "How many pages" in page
    data, answer = send(operator, talking, name="a.pdf", pages="3")
    assert answer.status_code == 302, text_of(answer)
    assert operator.post(f"/runs/{talking.id}/messages/add_document", **data).status_code == 302
    (message,) = Message.objects.filter(run=talking)
    answered(talking)
    (came,) = events(talking, e.MessageReceived)
    assert came.payload == {"name": "a.pdf", "pages": 3} and came.by == message.by
    (record,) = ActRecord.objects.filter(run_id=talking.id, action="message")
    assert record.by == message.by and record.subject == "add_document 1"
    page = text_of(operator.get(f"/runs/{talking.id}"))
    assert "answered" in page and "a.pdf" in page
    assert "message 1: add document" in page, "in the timeline"


def test_a_refusal_is_shown_with_its_words_and_hostile_text_is_inert(talking: Run, operator: Reader) -> None:
    _, answer = send(operator, talking, name="none")
    assert answer.status_code == 302
    answered(talking)
    page = operator.get(f"/runs/{talking.id}").content.decode()
    assert "there is no such document" in page and "<script>alert" not in page and "\u202e" not in page


def test_who_may_not_send_sees_no_form_and_is_refused(talking: Run, auditor: Reader, operator: Reader) -> None:
    page = auditor.get(f"/runs/{talking.id}").content.decode()
    assert "send-add_document" not in page and "talk-title" in page
    data = form_of(operator.get(f"/runs/{talking.id}"))
    assert auditor.post(f"/runs/{talking.id}/messages/add_document", **data).status_code == 403
    assert Message.objects.count() == 0
