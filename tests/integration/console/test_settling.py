"""Two operators settle an unknown outcome on the run's page: what each sees, does, and is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pydantic import BaseModel, Field

from durableagents import Agent, Context, End, Refused
from ledger import events as e
from ledger.models import ActRecord
from ledger.spans import span_id
from runs.engine.agents import registry
from runs.models import Message, Run
from runs.services import lifecycle
from tests.integration.api.test_settling import run
from tests.integration.approvals.setup import somebody
from tests.integration.console.conftest import SHOP, Reader, filled_in, text_of
from tests.integration.console.stage import settled, until, working
from tests.integration.runs.conftest import outside, stage, tools  # noqa: F401 (fixtures)
from tests.integration.runs.stage import Stage, dump, events, kinds, output, problems

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["run"]  # fixtures
SAID = {"verdict": "happened", "receipt": '{"ref": "<b>seen</b>"}', "justification": "In the outbox."}


@pytest.fixture
def ann(run: Run) -> Client:
    return signed_in("ann")


@pytest.fixture
def ben(run: Run) -> Client:
    return signed_in("ben")


def signed_in(name: str) -> Client:
    client = Client()
    client.force_login(User.objects.get(username=name))
    return client


def says(client: Client, run: Run, **said: Any) -> Any:
    return client.post(f"/runs/{run.id}/reconciliations", SAID | said, follow=True)


def page(client: Client, run: Run) -> str:
    answer = client.get(f"/runs/{run.id}")
    assert answer.status_code == 200
    return answer.content.decode()


def agreeing(html: str) -> dict[str, str]:
    """Return the hidden values of the second person's form."""
    (form,) = re.findall(r'<form[^>]*id="agree-form".*?</form>', html, re.S)
    return dict(re.findall(r'type="hidden" name="(wait_id|agrees_with|verdict)" value="([^"]*)"', form))


def test_a_run_and_its_effects_lead_to_their_spans(run: Run, ann: Client, settings: Any) -> None:
    row = ann.get(f"/api/v1/runs/{run.id}/ledger").json()["results"][0]
    template = "http://127.0.0.1:16686/trace/{trace_id}?uiFind={span_id}"
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"trace_url": template})
    html = page(ann, run)
    for span in (row["span_id"], span_id(str(run.id))):
        assert f'<a href="http://127.0.0.1:16686/trace/{run.trace_id}?uiFind={span}" rel="noreferrer">' in html
    assert str(run.id) in ann.get(re.findall(r'href="(/runs\?trace_id=[^"]+)"', html)[0]).content.decode()


def test_the_first_says_it_and_the_second_agrees(run: Run, stage: Stage, ann: Client, ben: Client) -> None:  # noqa: F811
    html = page(ann, run)
    assert "Two operators must agree." in html and "Propose</button>" in html and "Settle</button>" not in html
    assert "Two operators have to settle it" in text_of(ann.get(f"/runs/{run.id}"))
    assert "A second operator" not in text_of(ann.get("/reconcile"))
    text = text_of(says(ann, run))
    assert "A second operator has to confirm it" in text and kinds(run)[-1] == "OutcomeProposed"
    assert 'id="agree-form"' not in page(ann, run)
    listed = text_of(ben.get("/reconcile"))
    assert "user:ann says: it happened. A second operator has to confirm it." in listed
    html = page(ben, run)
    assert "user:ann says: it happened" in re.sub(r"\s+", " ", html) and "In the outbox." in html
    assert "<b>seen</b>" not in html and "&lt;b&gt;seen&lt;/b&gt;" in html
    form = agreeing(html)
    assert form["agrees_with"] == "0" and form["verdict"] == "happened"
    done = ben.post(f"/runs/{run.id}/reconciliations", form | {"justification": "I see it too."}, follow=True)
    assert "Outcome recorded." in text_of(done)
    assert stage.drive() == "completed" and output(run) == "<b>seen</b>" and problems(run) == []
    for tab in ("timeline", "decisions", "journal"):
        assert ben.get(f"/runs/{run.id}?tab={tab}").status_code == 200
    assert "a second person has to confirm" in ben.get(f"/runs/{run.id}?tab=journal").content.decode()


def test_someone_who_agrees_with_what_stands_no_more_is_told_and_keeps_their_text(
    run: Run, ann: Client, ben: Client
) -> None:
    says(ann, run)
    form = agreeing(page(ben, run)) | {"justification": "I see it too, in the archive."}
    says(ann, run, receipt='{"ref": "another"}')
    before = dump()
    refused = ben.post(f"/runs/{run.id}/reconciliations", form)
    html = refused.content.decode()
    assert refused.status_code == 409 and "The proposal you agree with has changed" in html and dump() == before
    assert "I see it too, in the archive." in html and 'id="agree-form"' in html
    assert agreeing(html)["agrees_with"] == "1", "the form is about what is said now"


def test_someone_who_only_reads_sees_who_said_what_and_no_form(run: Run, ann: Client) -> None:
    says(ann, run)
    somebody("audrey", "auditor")
    somebody("eve", "approver_finance")
    html = page(signed_in("audrey"), run)
    assert "In the outbox." in html and 'id="agree-form"' not in html and 'id="reconcile-form"' not in html
    html = page(signed_in("eve"), run)
    assert "In the outbox." in html and "seen&lt;" not in html and "Not shown to you" in html


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
