"""Runs found and sorted by attributes over HTTP: validation, the query language, paging."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from durableagents import Date, Flag, Keyword, Keywords, Money, Number
from durableagents.contrib.search import queries
from durableagents.contrib.search.models import Attribute
from runs.api.schemas import AgentPage, RunPage, RunRow
from runs.engine.agents import Agent, End, registry
from runs.models import Run
from tests.cases import each_case
from tests.integration.api.conftest import Api, Order, Seen, is_problem

pytestmark = [pytest.mark.django_db, pytest.mark.every(3)]
DECLARED = {
    "customer": Keyword("Customer"),
    "labels": Keywords(),
    "score": Number(),
    "amount": Money(),
    "due": Date(),
    "urgent": Flag(),
}


def made(name: str, attributes: dict[str, Any], version: str = "1.0.0") -> Agent:
    agent = Agent(
        name, version, input=Order, state=Seen, initial=lambda order: Seen(order=order), attributes=attributes
    )

    @agent.node(start=True)
    async def echo(state: Seen, ctx: Any) -> End:
        return End()

    agent.validate()
    return agent


@pytest.fixture(autouse=True)
def found_agent() -> Iterator[None]:
    agents = [made("sale", DECLARED), made("other", {"score": Keyword(), "place": Keyword()})]
    yield
    for agent in agents:
        registry.remove(agent.graph_id)


Sell = Callable[..., str]


@pytest.fixture
def sell(integrator: Api) -> Sell:
    def go(agent: str = "sale", **attributes: Any) -> str:
        body = {"agent": agent, "input": {"item": "chair", "amount": 1}, "attributes": attributes}
        answer = integrator.post("runs", body)
        assert answer.status_code == 201, answer.content
        return str(answer.json()["id"])

    return go


def found(api: Api, where: str = "", **more: Any) -> list[str]:
    fields = {"where": where} if where else {}
    answer = api.get("runs", **fields, **more)
    rows: list[str] = []
    for _ in range(100):
        assert answer.status_code == 200, answer.content
        page = answer.json()
        assert RunPage.model_validate(page)
        rows += [row["id"] for row in page["results"]]
        if page["next"] is None:
            return rows
        answer = api.client.get(page["next"], headers=api.headers)
    raise AssertionError("the pages go on forever")


def test_a_start_sets_them_and_the_run_tells_them(integrator: Api, auditor: Api) -> None:
    given = {
        "customer": "ACME & Söhne",
        "labels": ["b", "a", "b"],
        "score": 2.5,
        "amount": "12.5",
        "due": "2026-03-31",
        "urgent": True,
    }
    body = {"agent": "sale", "input": {"item": "chair", "amount": 1}, "attributes": given}
    first = integrator.post("runs", body, headers={"Idempotency-Key": "one"}).json()
    again = integrator.post("runs", body, headers={"Idempotency-Key": "one"}).json()
    fields = given | {"labels": ["b", "a"], "amount": "12.50"}
    assert first == again and RunRow.model_validate(first) and first["attributes"] == fields
    assert auditor.get(f"runs/{first['id']}").json()["attributes"] == fields
    assert integrator.post("runs", body | {"attributes": {}}).json()["attributes"] == {}
    (row,) = [row for row in auditor.get("agents").json()["results"] if row["name"] == "sale"]
    assert AgentPage.model_validate({"results": [row], "next": None})
    assert row["attributes"][0] == {"name": "customer", "kind": "keyword", "title": "Customer"}


@each_case(
    ("given", "fields"),
    [
        ({"custmer": "ACME"}, ["attributes.custmer"]),
        ({"score": "many", "due": "soon", "customer": "fine"}, ["attributes.due", "attributes.score"]),
        ({"customer": {"name": "ACME"}}, ["attributes.customer"]),
        ([], ["attributes"]),
        ({f"n{i}": 1 for i in range(17)}, ["attributes"]),
    ],
)
def test_what_does_not_fit_is_refused_by_name_at_a_start(integrator: Api, given: Any, fields: list[str]) -> None:
    before = Run.objects.count()
    body = {"agent": "sale", "input": {"item": "chair", "amount": 1}, "attributes": given}
    answer = integrator.post("runs", body)
    assert is_problem(answer, 422) and [one["field"] for one in answer.json()["errors"]] == fields
    assert all(one["problem"] and one["fix"] for one in answer.json()["errors"])
    assert Run.objects.count() == before and not Attribute.objects.exists()


EXPRESSIONS = {
    'customer = "ACME & Co"': "a",
    "customer = Beta": "bd",
    "customer != Beta": "ace",
    "not customer = Beta": "ace",
    'customer in (Beta, "ACME & Co")': "abd",
    "customer >= Beta": "bd",
    "customer is set": "abd",
    "not customer is set": "ce",
    "labels has late": "ac",
    "labels in (late, new)": "abc",
    "labels has late and labels has new": "a",
    "score > 2": "bc",
    "score >= 2": "abc",
    "score < 2.0001 and score > -5": "a",
    "score = 2.0": "a",
    "score < 0": "d",
    "amount > 99.99 and amount <= $1000": "ab",
    "due >= 2026-01-01 and due < 2026-07-01": "a",
    "urgent = true": "ae",
    "URGENT = true": None,
    "urgent = TRUE or score = 10": "ace",
    "urgent = false or (labels has late and not score < 5)": "bc",
    "not (urgent = true or customer = Beta)": "c",
    "not not urgent = true": "ae",
    "score = 10 or not customer is set": "ce",
    'customer = "no such"': "",
    'customer = "\' OR 1=1 --"': "",
    'customer = "%"': "",
}


@pytest.fixture
def five(sell: Sell) -> dict[str, str]:
    return {
        "a": sell(customer="ACME & Co", labels=["late", "new"], score=2, amount="100", due="2026-03-31", urgent=True),
        "b": sell(customer="Beta", labels=["new"], score=7.5, amount=1000, due="2026-12-31", urgent=False),
        "c": sell(labels=["late"], score=10),
        "d": sell(customer="Beta", score=-7),
        "e": sell(urgent=True),
        "-": sell("other", score="2", place="here"),
    }


@pytest.mark.parametrize("is_walked", [False, True])
def test_expressions_match(
    five: dict[str, str], auditor: Api, is_walked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_walked:  # as with many rows
        monkeypatch.setattr(queries, "FEW", -1)
    for expression, letters in EXPRESSIONS.items():
        if letters is None:
            assert is_problem(auditor.get("runs", where=expression, agent="sale"), 400)
            continue
        wanted = [five[letter] for letter in reversed(letters)]
        assert found(auditor, expression, agent="sale") == wanted, expression
        assert found(auditor, expression, agent="sale", limit=1) == wanted, expression


@each_case(
    ("where", "at", "says"),
    [
        ("custmer = ACME", 1, "'custmer', which isn't an attribute"),
        ("urgent = true and custmer = ACME", 19, "isn't an attribute"),
        ("score = 1", 1, "a keyword and a number of different agents"),
        ("urgent = yes", 10, "neither true nor false"),
        ("urgent > true", 8, "with < or >"),
        ("amount > lots", 10, "not a number"),
        ("due = 31.3.2026", 7, "not a day"),
        ("labels = late", 8, "compares the list"),
        ("customer has ACME", 10, "isn't a list"),
        ("customer ~ ACME", 10, "can't have '~'"),
        ('customer = "ACME', 12, "unclosed quotation mark"),
        ("customer = ", 12, "ends too early"),
        ("customer", 9, "ends too early"),
        ("(urgent = true", 15, "ends too early"),
        ("urgent = true)", 14, "can't have )"),
        ("urgent = true urgent = true", 15, "can't have urgent"),
        ("customer in ()", 14, "can't have )"),
        ("customer in (a b)", 16, "can't have b"),
        ("customer is ACME", 13, "can't have ACME"),
        ("and", 1, "can't have and"),
        ("customer = and", 12, "can't have and"),
        ("urgent = true; DROP TABLE runs_run", 14, "can't have ';'"),
        ("(" * 30 + "urgent = true" + ")" * 30, 12, "levels deep"),
        ("not " * 30 + "urgent = true", 45, "levels deep"),
        (" or ".join(["urgent = true"] * 21), 341, "more than 20"),
        (f"customer in ({','.join('a' * 51)})", 114, "more than 50"),
    ],
)
def test_what_can_not_be_read_is_refused_with_its_place(auditor: Api, where: str, at: int, says: str) -> None:
    answer = auditor.get("runs", where=where)
    assert is_problem(answer, 400, "bad-search"), answer.content
    body = answer.json()
    assert (body["at"], body["errors"][0]["field"]) == (at, "where"), body
    assert says in body["errors"][0]["problem"] and body["errors"][0]["fix"], body


@pytest.mark.parametrize("is_walked", [False, True])
@pytest.mark.parametrize("name", ["customer", "score", "amount", "due", "urgent"])
def test_pages_in_an_attributes_order_have_every_run_once(
    sell: Sell, auditor: Api, name: str, is_walked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_walked:
        monkeypatch.setattr(queries, "FEW", -1)
        monkeypatch.setattr(queries, "_FIRST", 2)
    dice = random.Random(name)
    values = {
        "customer": ["ä", "Z", "a", "b"],
        "score": [-1.5, 10, 9, 100],
        "amount": ["9.99", 10, 100, -3],
        "due": ["2026-01-01", "2026-10-01", "1999-12-31"],
        "urgent": [True, False],
    }
    made = [(value, sell(**{name: value})) for value in (dice.choice(values[name]) for _ in range(13))]
    sell(labels=["without"])

    def key(pair: tuple[Any, str]) -> Any:
        value = pair[0]
        number = float(value) if name in ("score", "amount") else value
        return (number.encode() if isinstance(number, str) else number), pair[1]

    wanted = [run for _, run in sorted(made, key=key)]
    for limit in (1, 2, 5, 100):
        assert found(auditor, sort=name, limit=limit, agent="sale") == wanted, limit
        assert found(auditor, sort=f"-{name}", limit=limit, agent="sale") == wanted[::-1], limit


@pytest.mark.parametrize("few", [0, 3, 2000])
@pytest.mark.parametrize("sort", ["", "score", "-score"])
def test_only_runs_that_are_seen_are_found_and_no_cursor_names_another(
    sell: Sell, operator: Api, integrator: Api, monkeypatch: pytest.MonkeyPatch, few: int, sort: str
) -> None:
    own = []
    body = {"agent": "sale", "input": {"item": "chair", "amount": 1}}
    for n in range(12):
        own.append(sell(customer="ACME", score=n))
        for _ in range(3):
            operator.post("runs", body | {"attributes": {"customer": "ACME", "score": n}})
    monkeypatch.setattr(queries, "FEW", few)
    monkeypatch.setattr(queries, "MAX_EXAMINED", 5)
    monkeypatch.setattr(queries, "_FIRST", 2)
    for where in ('customer = "ACME"', "score > 2", 'customer != "X"', "score > 2 AND NOT urgent = true"):
        seen_, answer = [], integrator.get("runs", agent="sale", where=where, sort=sort, limit=2)
        for _ in range(100):
            assert answer.status_code == 200, answer.content
            page = answer.json()
            seen_ += [row["id"] for row in page["results"]]
            if page["next"] is None:
                break
            cursor = parse_qs(urlsplit(page["next"]).query)["cursor"][0]
            raw = base64.urlsafe_b64decode(cursor).hex()
            hidden = set(Run.objects.exclude(id__in=own).values_list("id", flat=True))
            assert not [one for one in hidden if one.hex in raw or str(one) in cursor]
            answer = integrator.get(page["next"])
        assert len(seen_) == len(set(seen_)) and set(seen_) == {*own[3:]} if "> 2" in where else {*own}, where
