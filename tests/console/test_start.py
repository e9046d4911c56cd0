"""Starting a run from the form: what was typed is never lost, and one form starts one run."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from pydantic import BaseModel

from durableagents import Agent, Context, End, Sample
from runs.engine.agents import registry
from runs.models import Run
from tests.console.conftest import Reader, filled_in, text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def integrator(reader: Callable[..., Reader]) -> Reader:
    return reader("integrator")


def form_of(answer: Any, **typed: str) -> dict[str, str]:
    """The page's form as a browser would send it, with some fields typed over."""
    page = answer.content.decode()
    hidden = dict(re.findall(r'<input type="hidden" name="(agent|token)" value="([^"]*)"', page))
    return {**filled_in(page), **hidden, **typed}


def test_the_sample_fills_the_form_and_starts_a_run(integrator: Reader) -> None:
    form = form_of(integrator.get("/runs/new", agent="vendor-onboard"))
    assert (form["legal_name"], form["first_order.amount_usd"]) == ("Nordlicht Antriebe GmbH", "84000.00")
    answer = integrator.client.post("/runs/new", {**form, "country": "DE", "tags": "spring, q2"}, follow=True)
    run = Run.objects.get()
    assert answer.redirect_chain == [(f"/runs/{run.id}", 302)] and "Run started." in text_of(answer)
    assert (run.graph_id, run.tags, run.created_by) == ("vendor-onboard@1.0.0", ["spring", "q2"], "user:integrator")


def test_another_sample_is_a_link_away_and_so_is_an_empty_form(integrator: Reader) -> None:
    assert (
        form_of(integrator.get("/runs/new", agent="vendor-onboard", sample="1"))["legal_name"]
        == "Volga Heavy Industries"
    )
    assert form_of(integrator.get("/runs/new", agent="vendor-onboard", sample="none"))["legal_name"] == ""
    assert integrator.get("/runs/new", agent="vendor-onboard", sample="9" * 40).status_code == 200


def test_errors_stand_at_their_fields_and_nothing_typed_is_lost(integrator: Reader) -> None:
    form = form_of(integrator.get("/runs/new", agent="vendor-onboard"), country="DE")
    bad = {"tax_id": "no/slash", "first_order.amount_usd": "a lot", "category": "Kept <i>words</i>"}
    answer = integrator.post("/runs/new", **{**form, **bad})
    page = answer.content.decode()
    assert answer.status_code == 422 and Run.objects.count() == 0
    for name in ("tax_id", "first_order-amount_usd"):
        field = next(tag for tag in re.findall(r"<input[^>]*>", page) if f'id="f-{name}"' in tag)
        assert 'aria-invalid="true"' in field and re.search(rf'aria-describedby="[^"]*f-{name}_error', field), name
        assert f'id="f-{name}_error"' in page
    assert page.count('aria-invalid="true"') == 2
    assert 'value="no/slash"' in page and 'value="a lot"' in page and "Kept &lt;i&gt;words&lt;/i&gt;" in page


@pytest.mark.parametrize(
    ("tags", "status", "words"),
    [
        ("spring, " + "x" * 201, 422, "too long: 201 characters, and at most 200 are taken"),
        (", ".join(map(str, range(51))), 422, "at most 50"),
        ("q2\x00", 422, "holds a NUL character"),
        ("x" * 1_100_000, 413, "holds 1100000 bytes"),
    ],
    ids=["long", "many", "NUL", "huge"],
)
def test_what_is_wrong_with_the_tags_stands_at_the_tags(integrator: Reader, tags: str, status: int, words: str) -> None:
    form = form_of(integrator.get("/runs/new", agent="buyer"), item="chairs", tags=tags)
    answer = integrator.client.post("/runs/new", form)
    page = answer.content.decode()
    assert answer.status_code == status and Run.objects.count() == 0 and re.search(r">\s*chairs</textarea>", page)
    assert re.search(r'aria-invalid="true"\s+aria-describedby="tags_error"', page)
    assert words in page[page.index('id="tags_error"') :][:300] and '<a href="#tags">Tags</a>: ' in page
    assert tags[:50].replace("\x00", "\ufffd") in page


def test_the_same_form_sent_twice_starts_one_run(integrator: Reader) -> None:
    form = form_of(integrator.get("/runs/new", agent="buyer"), item="chairs")
    first, second = integrator.post("/runs/new", **form), integrator.post("/runs/new", **form)
    assert first["Location"] == second["Location"] and Run.objects.count() == 1
    assert "had already started a run" in integrator.read(second["Location"])


def test_a_form_sent_again_under_a_new_name_of_the_same_person_starts_one_run(integrator: Reader) -> None:
    form = form_of(integrator.get("/runs/new", agent="buyer"), item="chairs")
    first = integrator.post("/runs/new", **form)
    User.objects.filter(username="integrator").update(username="renamed")
    assert integrator.post("/runs/new", **form)["Location"] == first["Location"] and Run.objects.count() == 1


def test_a_corrected_form_starts_the_run_that_the_refused_one_did_not(integrator: Reader) -> None:
    form = form_of(integrator.get("/runs/new", agent="buyer"), item="")
    refused = integrator.post("/runs/new", **form)
    assert refused.status_code == 422
    again = integrator.post("/runs/new", **form_of(refused, item="chairs"))
    assert again.status_code == 302 and Run.objects.count() == 1


def test_a_form_used_for_something_else_is_refused_with_a_fresh_one(integrator: Reader) -> None:
    form = form_of(integrator.get("/runs/new", agent="buyer"), item="chairs")
    integrator.post("/runs/new", **form)
    refused = integrator.post("/runs/new", **{**form, "item": "tables"})
    fresh = form_of(refused)
    assert refused.status_code == 422 and fresh["token"] != form["token"] and fresh["item"] == "tables"
    assert integrator.post("/runs/new", **fresh).status_code == 302 and Run.objects.count() == 2


@pytest.mark.parametrize(
    "damaged",
    [None, "", " ", "\x00", "x" * 9000, str(uuid4()), f"{uuid4()}:{'A' * 43}", "cut", "other", "another's"],
    ids=["none", "empty", "blank", "NUL", "huge", "a fresh one", "forged", "cut", "other", "another's"],
)
def test_a_form_without_the_mark_that_it_was_given_starts_nothing(
    integrator: Reader, reader: Callable[..., Reader], damaged: str | None
) -> None:
    page = integrator.get("/runs/new", agent="buyer")
    form = form_of(page, item="chairs", tags="spring")
    token = form.pop("token")
    if damaged == "another's":
        damaged = form_of(reader("operator").get("/runs/new", agent="buyer"))["token"]
    sent = {"cut": token[:-1], "other": token.swapcase()}.get(str(damaged), damaged)
    refused = integrator.post("/runs/new", **form, **({} if sent is None else {"token": sent}))
    assert refused.status_code == 422 and Run.objects.count() == 0
    assert "Not started. The form came without the mark" in text_of(refused) and "\x00" not in refused.content.decode()
    again = form_of(refused)
    assert again["item"] == "chairs" and 'value="spring"' in refused.content.decode()
    assert again["token"] not in (token, sent)
    assert [integrator.post("/runs/new", **again).status_code for _ in range(2)] == [302, 302]
    assert Run.objects.count() == 1


@pytest.mark.parametrize("agent", ["nobody", "vendor-onboard@9.9.9", "", "\x00", "<b>x</b>"])
def test_an_unknown_agent_is_a_precise_answer(integrator: Reader, agent: str) -> None:
    answer = integrator.post("/runs/new", agent=agent)
    assert answer.status_code == 422 and b"<b>x" not in answer.content


@pytest.mark.parametrize(
    "value",
    [
        "\x00",
        "\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "replace"),
        "9" * 5000,
        "NaN",
        "1e400",
        "-0",
        "٣",
    ],
)
def test_odd_input_is_answered_not_stumbled_over(integrator: Reader, value: str) -> None:
    form = form_of(integrator.get("/runs/new", agent="buyer"), item=value, amount=value, extra=value)
    assert integrator.post("/runs/new", **form).status_code in (302, 422)


def test_an_agent_without_samples_gives_an_empty_form(integrator: Reader) -> None:
    class Nothing(BaseModel):
        pass

    agent = Agent("bare", "1.0.0", input=Nothing, state=Nothing, samples=[Sample(label="<i>odd</i>", input={})])

    @agent.node(start=True)
    async def only(state: Nothing, ctx: Context) -> End:
        return End()

    try:
        page = integrator.get("/runs/new", agent="bare").content
        assert b"<i>odd" not in page
        assert integrator.post("/runs/new", **form_of(integrator.get("/runs/new", agent="bare"))).status_code == 302
    finally:
        registry.remove(agent.graph_id)
