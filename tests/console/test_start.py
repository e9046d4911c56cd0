"""Starting a run from the form: what was typed is never lost, and one form starts one run."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from pydantic import BaseModel

from durableagents import Agent, Context, End, Sample
from runs.console.run_page import gather
from runs.engine.agents import registry
from runs.models import Run
from tests.api.test_idempotency import held
from tests.console.conftest import Reader, filled_in, text_of
from tests.console.test_damage import other_hands

pytestmark = pytest.mark.django_db


@pytest.fixture
def integrator(reader: Callable[..., Reader]) -> Reader:
    return reader("integrator")


def opened(somebody: Reader, **query: str) -> Any:
    """The page as a browser comes to it: the last address is the one that Back leads to."""
    return somebody.client.get("/runs/new", query, follow=True)


def address_of(page: Any) -> str:
    return str(page.redirect_chain[-1][0])


def form_of(answer: Any, **typed: str) -> dict[str, str]:
    """The page's form as a browser would send it, with some fields typed over."""
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


@pytest.mark.parametrize(
    ("agent", "sample", "about"),
    [
        ("mail-before-gate", "0", "Acme Pallets Ltd"),
        ("literature-review", "0", "How do transactions and locks behave when a database connection is lost?"),
        ("literature-review", "1", "How do transactions and locks behave when a database connection is lost?"),
    ],
)
def test_a_sample_of_each_demo_agent_starts_a_run(integrator: Reader, agent: str, sample: str, about: str) -> None:
    form = form_of(opened(integrator, agent=agent, sample=sample))
    country = {"country": "GB"} if agent == "mail-before-gate" else {}
    integrator.client.post("/runs/new", {**form, **country})
    run = Run.objects.get()
    assert (run.graph_id, run.about) == (f"{agent}@1.0.0", about)


def test_what_the_form_was_filled_with_is_what_the_run_gets(integrator: Reader) -> None:
    class Place(BaseModel):
        city: str = "Berlin"
        is_open: bool = True

    class Asked(BaseModel):
        note: str = "by itself"
        place: Place | None = None
        other: Place | None = None
        is_paid: bool | None = True
        ref: str | None = "none"
        amount: int = 1

    sample = {
        "note": "two\nlines",
        "place": {"city": "Rome", "is_open": False},
        "other": None,
        "is_paid": None,
        "ref": None,
        "amount": 1234567890123456,
    }
    agent = Agent("filled", "1.0.0", input=Asked, state=Asked, samples=[Sample("One", sample), Sample("Two", {})])
    agent.node(start=True)(close)
    agent.validate()
    try:
        refused = integrator.client.post("/runs/new", form_of(opened(integrator, agent="filled"), amount="much"))
        assert refused.status_code == 422
        for form in (form_of(opened(integrator, agent="filled")), form_of(refused, amount="1234567890123456")):
            integrator.client.post("/runs/new", form)
            run = Run.objects.latest("created_at")
            assert Asked.model_validate(gather(run.id).story.input).model_dump() == sample
        used = text_of(opened(integrator, agent="filled", form=form["token"]))
        assert "has started a run" in used
        again = form_of(opened(integrator, agent="filled", like=form["token"]), note="another")
        assert integrator.client.post("/runs/new", again).status_code == 302
        run = Run.objects.latest("created_at")
        assert Asked.model_validate(gather(run.id).story.input).model_dump() == {**sample, "note": "another"}
    finally:
        registry.remove(agent.graph_id)


async def close(state: BaseModel, ctx: Context) -> End:
    return End({})


def test_another_sample_is_a_link_away_and_so_is_an_empty_form(integrator: Reader) -> None:
    assert form_of(opened(integrator, agent="vendor-onboard", sample="1"))["legal_name"] == "Volga Heavy Industries"
    assert form_of(opened(integrator, agent="vendor-onboard", sample="none"))["legal_name"] == ""
    for odd in ("9" * 40, "0000009", "0" * 5000, "١", "1\n", "-1"):
        assert opened(integrator, agent="vendor-onboard", sample=odd).status_code == 200


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
    form = form_of(opened(integrator, agent="buyer"), item="chairs", tags=tags)
    answer = integrator.client.post("/runs/new", form)
    page = answer.content.decode()
    assert answer.status_code == status and Run.objects.count() == 0 and re.search(r">\s*chairs</textarea>", page)
    assert re.search(r'aria-invalid="true"\s+aria-describedby="tags_error"', page)
    assert words in page[page.index('id="tags_error"') :][:300] and '<a href="#tags">Tags</a>: ' in page
    assert tags[:50].replace("\x00", "\ufffd") in page


def test_the_same_form_sent_twice_starts_one_run(integrator: Reader) -> None:
    form = form_of(opened(integrator, agent="buyer"), item="chairs")
    first, second = integrator.post("/runs/new", **form), integrator.post("/runs/new", **form)
    assert first["Location"] == second["Location"] and Run.objects.count() == 1
    assert "had already started a run" in integrator.read(second["Location"])


def test_a_form_sent_again_under_a_new_name_of_the_same_person_starts_one_run(integrator: Reader) -> None:
    form = form_of(opened(integrator, agent="buyer"), item="chairs")
    first = integrator.post("/runs/new", **form)
    User.objects.filter(username="integrator").update(username="renamed")
    assert integrator.post("/runs/new", **form)["Location"] == first["Location"] and Run.objects.count() == 1


def test_a_corrected_form_starts_the_run_that_the_refused_one_did_not(integrator: Reader) -> None:
    form = form_of(opened(integrator, agent="buyer"), item="")
    refused = integrator.post("/runs/new", **form)
    assert refused.status_code == 422
    again = integrator.post("/runs/new", **form_of(refused, item="chairs"))
    assert again.status_code == 302 and Run.objects.count() == 1


def test_a_used_form_sent_with_other_values_says_what_it_has_started_and_starts_another_on_purpose(
    integrator: Reader,
) -> None:
    form = form_of(opened(integrator, agent="buyer"), item="chairs", tags="spring")
    first = integrator.post("/runs/new", **form)["Location"]
    refused = integrator.post("/runs/new", **{**form, "item": "tables"})
    page, words = refused.content.decode(), text_of(refused)
    assert refused.status_code == 409 and Run.objects.count() == 1
    assert "Idempotency" not in page and "Not started. This form has started a run before, with other values" in words
    started = page[page.index('id="started"') : page.index("<h3>To start another")]
    assert f'href="{first}"' in started and re.search(r"<dt>item</dt>\s*<dd>chairs</dd>", started)
    assert "tables" not in started and "spring" in started
    assert "Start another run" in page and "Start the run" not in page
    further = form_of(refused)
    assert further["token"] != form["token"] and further["item"] == "tables"
    second = integrator.post("/runs/new", **further)
    assert second.status_code == 302 and second["Location"] != first and Run.objects.count() == 2


def test_going_back_to_the_page_that_refused_a_used_form_starts_no_third_run(integrator: Reader) -> None:
    """The browser sends the edited form once more to show that page again."""
    form = form_of(opened(integrator, agent="buyer"), item="chairs")
    integrator.post("/runs/new", **form)
    edited = {**form, "item": "tables"}
    second = integrator.post("/runs/new", **form_of(integrator.post("/runs/new", **edited)))
    again = integrator.post("/runs/new", **edited)
    assert again["Location"] == second["Location"] and Run.objects.count() == 2
    other = integrator.post("/runs/new", **{**form, "item": "desks"})
    assert other.status_code == 409 and form_of(other)["token"] != form["token"] and Run.objects.count() == 2


@pytest.mark.parametrize(("wrong", "status"), [({"item": ""}, 409), ({"tags": "x" * 201}, 422), ({"more": "x"}, 422)])
def test_a_used_form_that_no_longer_fits_says_what_it_has_started_too(
    integrator: Reader, wrong: dict[str, str], status: int
) -> None:
    form = form_of(opened(integrator, agent="buyer"), item="chairs")
    first = integrator.post("/runs/new", **form)["Location"]
    refused = integrator.post("/runs/new", **{**form, **wrong})
    assert refused.status_code == status and f'href="{first}"' in refused.content.decode()
    assert integrator.post("/runs/new", **form_of(refused, item="tables")).status_code == 302
    assert Run.objects.count() == 2


def test_back_and_send_starts_no_second_run(integrator: Reader) -> None:
    page = opened(integrator, agent="buyer")
    assert form_of(integrator.get(address_of(page))) == form_of(page), "a reload before it was sent"
    form = form_of(page, item="chairs", tags="spring")
    first = integrator.post("/runs/new", **form)["Location"]
    back = integrator.get(address_of(page))
    assert back.status_code == 200 and "no-store" in back["Cache-Control"]
    content = back.content.decode()
    assert (
        "This form has started a run. One form starts one run." in text_of(back) and "<title>Already started" in content
    )
    assert f'href="{first}"' in content and 'name="token"' not in content and 'id="start-form"' not in content
    assert re.search(r"<dt>item</dt>\s*<dd>chairs</dd>", content) and Run.objects.count() == 1


def test_another_run_like_it_is_started_on_purpose(integrator: Reader) -> None:
    page = opened(integrator, agent="buyer")
    first = integrator.post("/runs/new", **form_of(page, item="chairs", tags="spring, q2"))["Location"]
    back = integrator.get(address_of(page)).content.decode()
    (another,) = re.findall(r'href="(/runs/new[^"]*like=[^"]*)"', back)
    fresh = integrator.client.get(unescape(another), follow=True)
    form = form_of(fresh)
    assert form["item"] == "chairs" and 'value="spring, q2"' in fresh.content.decode()
    second = integrator.post("/runs/new", **form, tags="spring, q2")
    assert second.status_code == 302 and second["Location"] != first and Run.objects.count() == 2
    assert second["Location"] in integrator.get(address_of(fresh)).content.decode(), "and Back tells of the second"


@pytest.mark.parametrize("damaged", ["", "x", "\x00", "x" * 9000, str(uuid4()), "cut", "another's"])
def test_an_address_with_a_mark_that_is_none_is_given_one(
    integrator: Reader, reader: Callable[..., Reader], damaged: str
) -> None:
    """Nor is anything told of what somebody else has started."""
    page = opened(reader("operator"), agent="buyer")
    theirs = form_of(page, item="secret chairs")
    reader("operator").post("/runs/new", **theirs)
    shown = {"cut": theirs["token"][:-1], "another's": theirs["token"]}.get(damaged, damaged)
    for name in ("form", "like"):
        found = opened(integrator, agent="buyer", **{name: shown})
        form = form_of(found, item="chairs")
        assert form["token"] not in ("", shown) and "secret chairs" not in found.content.decode()
        assert integrator.post("/runs/new", **form).status_code == 302
    assert Run.objects.count() == 3


@pytest.mark.parametrize(
    ("damage", "status"),
    [
        ("UPDATE runs_run SET tags = '7'", 200),
        ("UPDATE runs_run SET tags = 'null', graph_id = 'gone@1', about = ''", 200),
        ("DELETE FROM ledger_event", 200),
        ("DELETE FROM ledger_head", 200),
        ("DELETE FROM runs_run", 404),
    ],
)
def test_a_used_form_of_a_damaged_run_is_answered_and_unused_for_nothing(
    integrator: Reader, damage: str, status: int
) -> None:
    page = opened(integrator, agent="buyer")
    form = form_of(page, item="chairs", tags="spring")
    integrator.post("/runs/new", **form)
    with other_hands() as cursor:
        cursor.execute(damage)
    back = integrator.get(address_of(page))
    assert back.status_code == status and 'name="token"' not in back.content.decode()
    assert opened(integrator, agent="buyer", like=form["token"]).status_code == status
    before = Run.objects.count()
    assert integrator.post("/runs/new", **form).status_code == 302
    assert integrator.post("/runs/new", **{**form, "item": "tables"}).status_code in (404, 409)
    assert Run.objects.count() == before


def test_a_run_is_liked_by_forms_of_its_own_agent_only(integrator: Reader) -> None:
    form = form_of(opened(integrator, agent="buyer"), item="chairs")
    integrator.post("/runs/new", **form)
    other = form_of(opened(integrator, agent="vendor-onboard", like=form["token"]))
    assert other["legal_name"] == "Nordlicht Antriebe GmbH"


@pytest.mark.django_db(transaction=True)
def test_a_form_that_is_still_at_work_says_so_in_the_consoles_words(integrator: Reader) -> None:
    form = form_of(opened(integrator, agent="buyer"), item="chairs")
    assert integrator.user is not None
    with held(form["token"].partition(":")[0], f"console {integrator.user.pk}"):
        busy = integrator.post("/runs/new", **form)
    assert busy.status_code == 409 and "Idempotency" not in busy.content.decode() and Run.objects.count() == 0
    assert "still at work" in text_of(busy) and form_of(busy)["token"] == form["token"]
    assert integrator.post("/runs/new", **form).status_code == 302 and Run.objects.count() == 1


@pytest.mark.parametrize(
    "damaged",
    [None, "", " ", "\x00", "x" * 9000, str(uuid4()), f"{uuid4()}:{'A' * 43}", "cut", "other", "another's"],
    ids=["none", "empty", "blank", "NUL", "huge", "a fresh one", "forged", "cut", "other", "another's"],
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
    form = form_of(opened(integrator, agent="buyer"), item=value, amount=value, extra=value)
    assert integrator.post("/runs/new", **form).status_code in (302, 422)


def test_an_agent_without_samples_gives_an_empty_form(integrator: Reader) -> None:
    class Nothing(BaseModel):
        pass

    agent = Agent("bare", "1.0.0", input=Nothing, state=Nothing, samples=[Sample(label="<i>odd</i>", input={})])

    @agent.node(start=True)
    async def only(state: Nothing, ctx: Context) -> End:
        return End()

    try:
        page = opened(integrator, agent="bare").content
        assert b"<i>odd" not in page
        assert integrator.post("/runs/new", **form_of(opened(integrator, agent="bare"))).status_code == 302
    finally:
        registry.remove(agent.graph_id)


# --- a key and times --------------------------------------------------------------------------------------------------


def sent(somebody: Reader, **typed: str) -> Any:
    form = form_of(opened(somebody, agent="vendor-onboard"), country="DE", **typed)
    return somebody.client.post("/runs/new", form, follow=True)


def test_a_key_and_times_are_taken_shown_and_found(integrator: Reader) -> None:
    sent(integrator, business_key="invoice 0815", start_at="", start_before="")
    first = Run.objects.get()
    assert first.business_key == "invoice 0815"
    answer = sent(integrator, business_key="invoice 0815", on_conflict="queue")
    second = Run.objects.exclude(pk=first.pk).get()
    page = text_of(answer)
    assert second.is_queued and "Queued behind the other runs of invoice 0815" in page and "queued behind" in page
    assert "invoice 0815" in integrator.read("/runs") and "invoice 0815" in integrator.read("/runs?q=0815")
    joined = text_of(sent(integrator, business_key="invoice 0815", on_conflict="join"))
    assert "A run of this key lives; here it is." in joined and Run.objects.count() == 2


def test_a_time_to_begin_is_taken_as_utc_and_shown(integrator: Reader) -> None:
    at = (datetime.now(UTC) + timedelta(days=2)).replace(second=0, microsecond=0)
    page = text_of(sent(integrator, start_at=f"{at:%Y-%m-%d %H:%M}"))
    run = Run.objects.get()
    assert run.start_at == at == run.ready_at and "not to be begun before" in page and "not due" in page


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ({"business_key": "k"}, "has not ended"),
        ({"on_conflict": "queue"}, "there is no key"),
        ({"start_at": "soon"}, "Not before"),
        ({"start_before": "2020-01-01 10:00"}, "has passed"),
        ({"business_key": "schedule:x"}, "of the schedules"),
    ],
)
def test_a_key_or_a_time_that_can_not_be_is_refused_and_kept(
    integrator: Reader, typed: dict[str, str], words: str
) -> None:
    sent(integrator, business_key="k")
    answer = sent(integrator, **typed)
    page = text_of(answer)
    assert "Not started." in page and words in page and Run.objects.count() == 1
    assert all(value in answer.content.decode() for value in typed.values())
