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
from runs.models import Run
from runs.queries.run_list import PAGE
from runs.services import lifecycle
from tests.integration.console.conftest import SHOP, Reader, text_of
from tests.integration.console.test_lists import ids
from tests.integration.console.test_start import form_of, opened

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


def test_hostile_text_is_shown_as_text(operator: Reader) -> None:
    run = sold(customer="<img src=x onerror=alert(1)>", labels=["<script>alert(2)</script>", "a"])
    for answer in (operator.get(f"/runs/{run}"), operator.get("/runs", where="customer is set")):
        page = answer.content.decode()
        assert (
            "<img src=x" not in page
            and "<script>alert(2)" not in page
            and ("&lt;img" in page or "img src=x" in text_of(answer))
        )
