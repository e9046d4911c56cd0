"""Starting a run from the form: nothing typed is lost, and one form starts one run."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from runs.models import Run
from tests.cases import each_case
from tests.integration.console.conftest import Reader, filled_in, text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def integrator(reader: Callable[..., Reader]) -> Reader:
    return reader("integrator")


def opened(somebody: Reader, **query: str) -> Any:
    """Return the page after redirects, at the address that Back leads to."""
    return somebody.client.get("/runs/new", query, follow=True)


def address_of(page: Any) -> str:
    return str(page.redirect_chain[-1][0])


def form_of(answer: Any, **typed: str) -> dict[str, str]:
    page = answer.content.decode()
    hidden = dict(re.findall(r'<input type="hidden" name="(agent|token|sample|like)" value="([^"]*)"', page))
    return {**filled_in(page), **hidden, **typed}


def test_the_sample_fills_the_form_and_starts_a_run(integrator: Reader) -> None:
    form = form_of(opened(integrator, agent="vendor-onboard"))
    assert (form["legal_name"], form["first_order.amount_usd"]) == ("Nordlicht Antriebe GmbH", "84000.00")
    answer = integrator.client.post("/runs/new", {**form, "country": "DE", "tags": "spring, q2"}, follow=True)
    run = Run.objects.get()
    assert answer.redirect_chain == [(f"/runs/{run.id}", 302)] and "Run started." in text_of(answer)
    assert (run.graph_id, run.tags, run.created_by) == ("vendor-onboard@1.0.0", ["spring", "q2"], "user:integrator")


def test_errors_stand_at_their_fields_and_nothing_typed_is_lost(integrator: Reader) -> None:
    form = form_of(opened(integrator, agent="vendor-onboard"), country="DE")
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


def test_the_same_form_sent_twice_starts_one_run(integrator: Reader) -> None:
    form = form_of(opened(integrator, agent="buyer"), item="chairs")
    first, second = integrator.post("/runs/new", **form), integrator.post("/runs/new", **form)
    assert first["Location"] == second["Location"] and Run.objects.count() == 1
    assert "has already started this run" in integrator.read(second["Location"])


def test_a_corrected_form_starts_the_run_that_the_refused_one_did_not(integrator: Reader) -> None:
    form = form_of(opened(integrator, agent="buyer"), item="")
    refused = integrator.post("/runs/new", **form)
    assert refused.status_code == 422
    again = integrator.post("/runs/new", **form_of(refused, item="chairs"))
    assert again.status_code == 302 and Run.objects.count() == 1


def test_a_used_form_says_what_it_has_started_and_starts_another_on_purpose(integrator: Reader) -> None:
    form = form_of(opened(integrator, agent="buyer"), item="chairs", tags="spring")
    first = integrator.post("/runs/new", **form)["Location"]
    refused = integrator.post("/runs/new", **{**form, "item": "tables"})
    page, words = refused.content.decode(), text_of(refused)
    assert refused.status_code == 409 and Run.objects.count() == 1
    assert "Idempotency" not in page and "Not started. This form has already started a run with other values" in words
    started = page[page.index('id="started"') : page.index("<h3>Start another")]
    assert f'href="{first}"' in started and re.search(r"<dt>item</dt>\s*<dd>chairs</dd>", started)
    assert "tables" not in started and "spring" in started
    assert "Start another run" in page and "Start the run" not in page
    further = form_of(refused)
    assert further["token"] != form["token"] and further["item"] == "tables"
    second = integrator.post("/runs/new", **further)
    assert second.status_code == 302 and second["Location"] != first and Run.objects.count() == 2


def test_back_and_send_starts_no_second_run(integrator: Reader) -> None:
    page = opened(integrator, agent="buyer")
    assert form_of(integrator.get(address_of(page))) == form_of(page), "a reload before it was sent"
    form = form_of(page, item="chairs", tags="spring")
    first = integrator.post("/runs/new", **form)["Location"]
    back = integrator.get(address_of(page))
    assert back.status_code == 200 and "no-store" in back["Cache-Control"]
    content = back.content.decode()
    assert "This form has already started a run." in text_of(back) and "<title>Already started" in content
    assert f'href="{first}"' in content and 'name="token"' not in content and 'id="start-form"' not in content
    assert re.search(r"<dt>item</dt>\s*<dd>chairs</dd>", content) and Run.objects.count() == 1


@each_case(
    "damaged", [None, "", " ", "\x00", "x" * 9000, str(uuid4()), f"{uuid4()}:{'A' * 43}", "cut", "other", "another's"]
)
def test_a_form_without_the_mark_that_it_was_given_starts_nothing(
    integrator: Reader, reader: Callable[..., Reader], damaged: str | None
) -> None:
    page = opened(integrator, agent="buyer")
    form = form_of(page, item="chairs", tags="spring")
    token = form.pop("token")
    if damaged == "another's":
        damaged = form_of(opened(reader("operator"), agent="buyer"))["token"]
    sent = {"cut": token[:-1], "other": token.swapcase()}.get(str(damaged), damaged)
    refused = integrator.post("/runs/new", **form, **({} if sent is None else {"token": sent}))
    assert refused.status_code == 422 and Run.objects.count() == 0
    assert (
        "Not started. The form's hidden identifier is missing" in text_of(refused)
        and "\x00" not in refused.content.decode()
    )
    again = form_of(refused)
    assert again["item"] == "chairs" and 'value="spring"' in refused.content.decode()
    assert again["token"] not in (token, sent)
    assert [integrator.post("/runs/new", **again).status_code for _ in range(2)] == [302, 302]
    assert Run.objects.count() == 1


@each_case("agent", ["nobody", "vendor-onboard@9.9.9", "", "\x00", "<b>x</b>"])
def test_an_unknown_agent_is_a_precise_answer(integrator: Reader, agent: str) -> None:
    answer = integrator.post("/runs/new", agent=agent)
    assert answer.status_code == 422 and b"<b>x" not in answer.content


@each_case(
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
    form = form_of(opened(integrator, agent="buyer"), item=value, amount=value, extra=value)
    assert integrator.post("/runs/new", **form).status_code in (302, 422)


def sent(somebody: Reader, **typed: str) -> Any:
    form = form_of(opened(somebody, agent="vendor-onboard"), country="DE", **typed)
    return somebody.client.post("/runs/new", form, follow=True)
