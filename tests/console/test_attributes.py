"""Attributes on pages: typed into the start form, shown with the run, looked for and sorted by in the list."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html import unescape
from typing import Any

import pytest
from pydantic import BaseModel

from durableagents import Agent, Context, Date, End, Flag, Keyword, Keywords, Money, Number
from ledger.verification.runs import verify
from runs.engine.agents import registry
from runs.models import Attribute, Run
from runs.queries.attributes import search as searching
from runs.queries.run_list import PAGE
from runs.services import lifecycle
from tests.console.conftest import SHOP, Reader, text_of
from tests.console.test_lists import ids
from tests.console.test_start import form_of, opened

pytestmark = pytest.mark.django_db


class Wanted(BaseModel):
    item: str = ""
    attributes: dict[str, str] = {}  # the name that the start form's own fields have


@pytest.fixture(autouse=True)
def sale() -> Iterator[Agent]:
    declared = {
        "customer": Keyword("Customer"),
        "labels": Keywords(),
        "score": Number(),
        "amount": Money(),
        "due": Date(),
        "urgent": Flag(),
    }
    agent = Agent("sale", "1.0.0", input=Wanted, state=Wanted, attributes=declared)

    @agent.node(start=True)
    async def sell(state: Wanted, ctx: Context) -> End:
        return End()

    agent.validate()
    yield agent
    registry.remove(agent.graph_id)


def sold(**attributes: Any) -> str:
    return str(lifecycle.start("sale", {}, by=SHOP, attributes=attributes).id)


def test_what_is_typed_into_the_start_form_is_set(reader: Callable[..., Reader]) -> None:
    somebody = reader("integrator")
    typed = {
        "attributes.customer": "ACME & Co",
        "attributes.labels": "late,  new ,",
        "attributes.score": "2.50",
        "attributes.amount": "$1200",
        "attributes.due": "2026-03-31",
        "attributes.urgent": "false",
    }
    form = form_of(opened(somebody, agent="sale"), **typed)
    answer = somebody.client.post("/runs/new", form, follow=True)
    run = Run.objects.get()
    assert answer.redirect_chain == [(f"/runs/{run.id}", 302)]
    text = text_of(answer)
    plain = re.sub(r"[“”]", "", re.sub(r"\s+(?=[,”])|(?<=“)\s+", "", text))
    for told in (
        "Customer ACME & Co",
        "labels late, new",
        "score 2.5",
        "amount $1200.00",
        "due 2026-03-31",
        "urgent no",
    ):
        assert told in plain, (told, plain[:4000])
    assert verify(run.id).problems == []
    again = somebody.client.post("/runs/new", form, follow=True)
    assert "already started a run" in text_of(again) and Run.objects.count() == 1


def test_what_does_not_fit_is_said_at_its_field_and_nothing_is_lost(reader: Callable[..., Reader]) -> None:
    somebody = reader("integrator")
    typed = {"attributes.customer": "ACME", "attributes.amount": "lots", "attributes.due": "31.3.", "tags": "spring"}
    answer = somebody.client.post("/runs/new", form_of(opened(somebody, agent="sale"), **typed))
    assert answer.status_code == 422 and not Run.objects.exists()
    page = answer.content.decode()
    assert re.search(r'id="f-attributes-amount_error">\s*is no number', page)
    assert re.search(r'id="f-attributes-due_error">\s*is no day', page)
    assert 'id="found-by" open' in page and 'href="#f-attributes-due"' in page
    for kept in ("ACME", "lots", "31.3.", "spring"):
        assert f'value="{kept}"' in page, kept
    stray = form_of(opened(somebody, agent="sale"), **{"attributes.nobody": "x"})
    assert somebody.client.post("/runs/new", stray).status_code == 422 and not Run.objects.exists()


def test_another_like_it_has_the_same_attributes(reader: Callable[..., Reader]) -> None:
    somebody = reader("integrator")
    page = opened(somebody, agent="sale")
    typed = {"attributes.customer": "ACME", "attributes.urgent": "true", "attributes.labels": "a, b"}
    somebody.client.post("/runs/new", form_of(page, **typed))
    used = somebody.client.get(page.redirect_chain[-1][0]).content.decode()
    link = unescape(re.search(r'href="([^"]*like=[^"]*)"', used).group(1))  # type: ignore[union-attr]
    form = form_of(somebody.client.get(link, follow=True))
    assert {name: form[name] for name in typed} == typed


def test_the_list_is_searched_sorted_and_paged(operator: Reader) -> None:
    made = [sold(score=n, customer="ACME" if n % 2 else "Beta") for n in range(PAGE + 5)]
    assert ids(operator.get("/runs", where="score >= 50")) == made[:49:-1]
    both = {"where": "customer = ACME and score < 5", "sort": "score"}
    assert ids(operator.get("/runs", **both)) == [made[1], made[3]]
    assert "all 2" in operator.read("/runs", **both) and "score 3" in operator.read("/runs", **both)
    first = operator.get("/runs", sort="-score")
    more = re.search(r'href="(/runs\?[^"]*before=[^"]+)"', first.content.decode())
    assert more is not None
    assert ids(first) + ids(operator.get(unescape(more.group(1)))) == made[::-1]
    assert ids(operator.get("/runs", sort="-score", before="rubbish")) == ids(first)
    assert ids(operator.get("/runs", where="score = 1", state="paused")) == []


def test_what_can_not_be_read_is_said_and_nothing_is_listed(operator: Reader) -> None:
    sold(score=1)
    for query, says in [
        ({"where": "scoer = 1"}, "names 'scoer', which is no attribute"),
        ({"where": "score = <b>"}, "at character 9"),
        ({"sort": "labels"}, "which is a list"),
        ({"where": '"<script>alert(1)</script>" = 1'}, "where it doesn't belong"),
        ({"where": "<script>alert(1)</script>"}, "< where it doesn't belong"),
    ]:
        answer = operator.get("/runs", **query)
        assert answer.status_code == 200 and ids(answer) == [] and says in text_of(answer), query
        assert "<script>alert" not in answer.content.decode() and 'aria-invalid="true"' in answer.content.decode()


def test_a_page_that_ends_before_it_is_full_says_so(operator: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = sold(score=1)
    for _ in range(5):
        sold(score=2)
    monkeypatch.setattr(searching, "FEW", -1)
    monkeypatch.setattr(searching, "MOST", 3)
    answer = operator.get("/runs", where="not score = 2")
    assert ids(answer) == [] and "None of the runs looked at so far fits" in text_of(answer)
    more = re.search(r'href="(/runs\?[^"]*before=[^"]+)"', answer.content.decode())
    assert more is not None and ids(operator.get(unescape(more.group(1)))) == [wanted]


def test_what_was_not_looked_at_is_counted_by_no_tab(operator: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed run further down is not said not to be."""
    failed = sold(score=1)
    Run.objects.filter(id=failed).update(state="cancelled")
    for _ in range(5):
        sold(score=2)
    text = operator.read("/runs", where="not score = 3")
    assert "all 6" in text and "cancelled 1" in text and "failed 0" in text and "+" not in text.partition("Search")[0]
    monkeypatch.setattr(searching, "FEW", -1)
    monkeypatch.setattr(searching, "MOST", 3)
    text = operator.read("/runs", where="not score = 3")
    assert "all 3+" in text and "running 3+" in text and "cancelled 0+" in text and "failed 0+" in text


def test_hostile_text_is_shown_as_text(operator: Reader) -> None:
    run = sold(customer="<img src=x onerror=alert(1)>", labels=["<script>alert(2)</script>", "a"])
    for answer in (operator.get(f"/runs/{run}"), operator.get("/runs", where="customer is set")):
        page = answer.content.decode()
        assert (
            "<img src=x" not in page
            and "<script>alert(2)" not in page
            and ("&lt;img" in page or "img src=x" in text_of(answer))
        )


def test_a_row_that_was_damaged_hides_neither_the_run_nor_the_list(operator: Reader) -> None:
    run = sold(score=1, amount=2)
    Attribute.objects.filter(name="score").update(kind="who knows", number=None)
    Attribute.objects.filter(name="amount").update(number="0.5")
    assert operator.get(f"/runs/{run}").status_code == 200
    assert ids(operator.get("/runs", sort="amount")) == [run]
    assert [line for line in verify(Run.objects.get().id).problems if "attribute" not in line] == []
    assert len(verify(Run.objects.get().id).problems) == 3


def test_without_any_attribute_the_list_is_as_it_was(operator: Reader, sale: Agent) -> None:
    registry.remove(sale.graph_id)
    others = [agent for agent in registry.agents() if agent.attributes]
    assert others or 'name="where"' not in operator.get("/runs").content.decode()
    registry.add(sale)
