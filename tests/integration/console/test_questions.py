"""What a run asks people: found in the inbox, answered in a form of its own, once; nothing typed is lost."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from durableagents import Agent, Context, End
from ledger import events as e
from runs.engine.agents import registry
from runs.models import Run, Wait
from runs.services import lifecycle
from tests.integration.console.conftest import SHOP, Reader, filled_in, text_of
from tests.integration.console.stage import settled, working
from tests.integration.runs.stage import events

pytestmark = pytest.mark.django_db(transaction=True)
HOSTILE = "<script>alert(1)</script>\u202e"


class Wanted(BaseModel):
    title: str = "a chair"


class Address(BaseModel):
    street: str = Field(min_length=1, max_length=80)


class Visit(BaseModel):
    day: Literal["monday", "friday"]
    people: int = Field(title="How many", ge=1, le=9)
    justification: str = Field(default="", max_length=100, description="A name that the page uses too.")
    where: Address


@pytest.fixture
def run() -> Iterator[Run]:
    """A run that asks legal when, and finance the same, at once."""
    agent = Agent("visit", "1.0.0", input=Wanted, state=Wanted)

    @agent.node(start=True)
    async def plan(state: Wanted, ctx: Context) -> End:
        both = (
            ctx.ask(
                of,
                title=f"When? {of} {HOSTILE}",
                schema=Visit,
                prefilled={"day": "monday", "where": {"street": HOSTILE}},
            )
            for of in ("legal", "finance_po")
        )
        return End([visit.model_dump() for visit in await ctx.gather(*both)])

    agent.validate()
    run = lifecycle.start("visit", {"title": "chairs for the quay"}, by=SHOP)
    with working():
        yield settled(run, "waiting_human")
    registry.remove(agent.graph_id)


def wait_of(run: Run, of: str) -> Wait:
    return Wait.objects.get(run=run, kind="input", detail__of=of)


def form_of(answer: Any, wait: Wait) -> dict[str, str]:
    """The question's form as a browser would send it."""
    page = answer.content.decode()
    form = page[page.index(f'id="answer-{wait.id}"') :]
    form = form[: form.index("</form>")]
    return {**filled_in(form), "justification": ""}


def test_a_question_is_found_and_answered_by_whom_it_is_put_to(reader: Callable[..., Reader], run: Run) -> None:
    legal, finance = reader("approver_legal"), reader("approver_finance")
    mine, theirs = wait_of(run, "legal"), wait_of(run, "finance_po")
    for place in ("/", "/inbox"):
        page = legal.get(place).content.decode()
        assert f"#question-{mine.id}" in page and f"#question-{theirs.id}" not in page and "chairs for the quay" in page
        assert "<script>alert" not in page
    assert "1 waiting for you" in legal.read("/inbox")
    page = legal.get(f"/runs/{run.id}")
    assert f'id="answer-{mine.id}"' in page.content.decode() and f'id="answer-{theirs.id}"' not in page.content.decode()
    assert "Answered by approver finance or operator" in text_of(page) and "<script>alert" not in page.content.decode()
    form = form_of(page, mine)
    name = next(key for key in form if key.endswith(".people")).partition(".")[0]
    typed = form | {f"{name}.people": "3", f"{name}.where.street": "Quay 1", "justification": "they called"}
    answer = legal.client.post(f"/runs/{run.id}/answers/{mine.id}", typed, follow=True)
    assert answer.status_code == 200 and "Answered. The run goes on." in text_of(answer)
    (told,) = events(run, e.InputAnswered)
    assert (told.by, told.role) == ("user:approver_legal", "approver_legal")
    given = {"day": "monday", "people": 3, "where": {"street": "Quay 1"}}
    assert told.payload == {"answer": given, "justification": "they called"}
    on_people = legal.read(f"/runs/{run.id}?tab=decisions")
    assert "Question answered by user:approver_legal" in on_people and "“they called”" in on_people
    assert "InputAnswered answered by user:approver_legal" in legal.read(f"/runs/{run.id}?tab=journal")
    settled(run, "waiting_human")
    assert f"#question-{theirs.id}" in finance.get("/inbox").content.decode()
    assert f"#question-{mine.id}" not in legal.get("/inbox").content.decode()


def test_what_is_wrong_stands_at_its_field_and_nothing_typed_is_lost(operator: Reader, run: Run) -> None:
    wait = wait_of(run, "legal")
    form = form_of(operator.get(f"/runs/{run.id}"), wait)
    name = next(key for key in form if key.endswith(".people")).partition(".")[0]
    typed = {f"{name}.people": "many", f"{name}.where.street": "Kept <i>words</i>", "justification": "kept too"}
    answer = operator.post(f"/runs/{run.id}/answers/{wait.id}", **{**form, **typed})
    page = answer.content.decode()
    assert answer.status_code == 422 and not events(run, e.InputAnswered)
    assert re.search(rf'aria-invalid="true"[^>]*id="f-{name}-people"', page) and page.count('aria-invalid="true"') == 1
    said = text_of(answer)
    assert "is not a whole number; give a whole number, such as 12" in said and "is not of type" not in said
    assert 'value="many"' in page and "Kept &lt;i&gt;words&lt;/i&gt;" in page and "kept too" in page


def test_a_second_answer_is_told_whose_the_first_was(reader: Callable[..., Reader], operator: Reader, run: Run) -> None:
    wait = wait_of(run, "legal")
    form = form_of(operator.get(f"/runs/{run.id}"), wait)
    name = next(key for key in form if key.endswith(".people")).partition(".")[0]
    form |= {f"{name}.people": "2"}
    first = operator.post(f"/runs/{run.id}/answers/{wait.id}", **form)
    second = reader("approver_legal").post(
        f"/runs/{run.id}/answers/{wait.id}", **(form | {"justification": "too late"})
    )
    assert first.status_code == 302 and second.status_code == 409
    assert "It was answered by user:operator" in text_of(second) and "too late" in text_of(second)


WRONG_FORMS: dict[str, dict[str, str]] = {
    "nothing": {},
    "a stray field": {"colour": "red"},
    "too large": {"justification": "x" * 1_100_000},
    "NUL": {"justification": "a\x00"},
}


@pytest.mark.parametrize("kind", WRONG_FORMS)
def test_nobody_else_answers_nor_is_told_what_is_wrong_with_the_form(
    reader: Callable[..., Reader], run: Run, kind: str
) -> None:
    wait = wait_of(run, "legal")
    form = {"justification": "please"} | WRONG_FORMS[kind]
    assert reader("integrator").client.post(f"/runs/{run.id}/answers/{wait.id}", form).status_code == 404
    for role in ("approver_finance", "auditor"):
        answer = reader(role).client.post(f"/runs/{run.id}/answers/{wait.id}", form)
        said = text_of(answer)
        assert answer.status_code == 403 and "Only approver_legal or operator answers this" in said
        assert "is missing" not in said and "no field of this form" not in said and "NUL" not in said
    assert not events(run, e.InputAnswered)
