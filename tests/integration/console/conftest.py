"""Readers of the console: one signed-in browser per role, and an agent that asks people."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import unescape
from html.parser import HTMLParser
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from pydantic import BaseModel, Field, JsonValue

from approvals.models import Approval
from durableagents import Agent, Context, End, Evidence, Gate, Rejected, ReplayClass, ToolCall, TransportError, tool
from ledger.actors import Actor
from ledger.web.roles import ROLES
from runs.engine.agents import registry
from runs.engine.tools import Tool
from runs.models import Run
from runs.services import lifecycle
from tests.integration.console.stage import question, settled, working

PASSWORD = "correct horse battery"
SHOP = Actor("key", "shop", role="integrator", auth="api_key", address="192.0.2.1")
OLGA = Actor("user", "olga", role="operator", auth="session", address="192.0.2.2")


class Reader:
    """A user with a browser. `read` returns a page's text as people see it."""

    def __init__(self, user: User | None, *, checks_csrf: bool = False) -> None:
        self.client = Client(raise_request_exception=True, enforce_csrf_checks=checks_csrf)
        self.user = user
        if user is not None:
            self.client.force_login(user)

    def get(self, path: str, **query: Any) -> Any:
        return self.client.get(path, query)

    def post(self, path: str, **form: Any) -> Any:
        return self.client.post(path, form)

    def read(self, path: str, **query: Any) -> str:
        answer = self.get(path, **query)
        assert answer.status_code == 200, (answer.status_code, answer.content[:300])
        return text_of(answer)


def text_of(answer: Any) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", answer.content.decode()))).strip()


class _Fields(HTMLParser):
    """The values a browser sends of untouched schema fields, by the HTML standard."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.values: dict[str, str] = {}
        self._at = self._text = ""
        self.feed(_BREAK.sub("\n", page))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = {name: value or "" for name, value in attrs}
        is_ours = known.get("id", "").startswith("f-")
        if tag in ("select", "textarea") and is_ours:
            self._at, self._text = known["name"], ""
        elif tag == "option" and self._at and ("selected" in known or self._at not in self.values):
            self.values[self._at] = known["value"]
        elif tag == "input" and is_ours and (known.get("type") != "checkbox" or "checked" in known):
            line = _BREAK.sub("", known.get("value", "on" if known.get("type") == "checkbox" else ""))
            self.values[known["name"]] = line.strip() if known.get("type") == "email" else line

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea" and self._at:
            self.values[self._at] = _BREAK.sub("\r\n", self._text.removeprefix("\n"))
        self._at = "" if tag in ("select", "textarea") else self._at

    def handle_data(self, data: str) -> None:
        self._text += data


_BREAK = re.compile(r"\r\n|\r|\n")


def filled_in(page: str) -> dict[str, str]:
    return _Fields(page).values


class Forms(HTMLParser):
    """The values a browser sends of each untouched form of a page, by its action."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.sent: dict[str, dict[str, str]] = {}
        self._form: dict[str, str] = {}
        self._at, self._chosen = "", False
        self.feed(answer.content.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = {name: value or "" for name, value in attrs}
        name = known.get("name", "")
        if tag == "form":
            self._form = self.sent.setdefault(known.get("action", ""), {})
        elif tag in ("select", "textarea"):
            self._at, self._form[name] = name, ""
        elif tag == "option":
            self._chosen = "selected" in known and "value" not in known
            if "selected" in known:
                self._form[self._at] = known.get("value", "")
        elif (
            tag == "input" and name != "csrfmiddlewaretoken" and (known.get("type") != "checkbox" or "checked" in known)
        ):
            self._form[name] = known.get("value", "on" if known.get("type") == "checkbox" else "")

    def handle_endtag(self, tag: str) -> None:
        self._at = "" if tag in ("select", "textarea") else self._at
        self._form = {} if tag == "form" else self._form

    def handle_data(self, data: str) -> None:
        if self._at and (self.lasttag == "textarea" or (self.lasttag == "option" and self._chosen)):
            self._form[self._at] += data.removeprefix("\n").strip()
            self._chosen = False


@pytest.fixture
def reader(db: None) -> Callable[..., Reader]:
    def of(*roles: str | None, name: str = "", **more: Any) -> Reader:
        if roles == (None,):
            return Reader(None, **more)
        held = [role for role in roles if role in ROLES]
        user, is_new = User.objects.get_or_create(username=name or "-".join(map(str, held)) or "nobody")
        if is_new:
            user.groups.set([Group.objects.get_or_create(name=role)[0] for role in held])
        return Reader(user, **more)

    return of


@pytest.fixture
def operator(reader: Callable[..., Reader]) -> Reader:
    return reader("operator")


@pytest.fixture
def finance(reader: Callable[..., Reader]) -> Reader:
    return reader("approver_finance")


class Request(BaseModel):
    item: str = Field(min_length=1, max_length=20_000)
    amount: int = Field(default=5, ge=1, le=1_000_000, description="In dollars.")
    extra: dict[str, JsonValue] = {}
    ending: str = ""
    why: str = "It is needed."


class Wanted(BaseModel):
    item: str
    amount: int
    extra: dict[str, JsonValue] = {}


class Bought(BaseModel):
    po: str


class State(BaseModel):
    request: Request
    cut: int = 0


@tool(
    replay_class=ReplayClass.IDEMPOTENT_WITH_KEY,
    title="Buy it",
    system="shop",
    effect="Spends money.",
    external_id="po",
    gate=Gate("finance_po", "Everything", headline=lambda args: f"${args.amount:,}.00", editable=["amount", "item"]),
)
async def buy(args: Wanted, call: ToolCall) -> Bought:
    """Buys."""
    return Bought(po="PO-77")


@tool(replay_class=ReplayClass.UNSAFE_ON_REPLAY, title="Send a letter", system="post")
async def write(args: Wanted, call: ToolCall) -> Bought:
    """Nobody knows whether it left."""
    raise TransportError("the line went dead")


@contextmanager
def buyer(buy: Tool = buy) -> Iterator[Agent]:
    """Register an agent that asks finance to buy; a rejection halves the amount once and asks again."""
    agent = Agent(
        "buyer",
        "1.0.0",
        input=Request,
        state=State,
        output=Bought,
        initial=lambda r: State(request=r),
        title="Buyer",
        tools=[buy, write],
    )

    @agent.node(start=True, to=["order"], title="Think")
    async def think(state: State, ctx: Context) -> str:
        if state.request.ending == "unknown":
            await ctx.call(write, Wanted(item=state.request.item, amount=1))
        if state.request.ending == "bug":
            raise RuntimeError(state.request.item)
        return "order"

    @agent.node(to=["order"], title="Order")
    async def order(state: State, ctx: Context) -> str | End:
        wanted = Wanted(item=state.request.item, amount=state.request.amount - state.cut, extra=state.request.extra)
        evidence = [Evidence("Quote", "supplier", {"price": state.request.amount})]
        try:
            return End(await ctx.call(buy, wanted, evidence=evidence, why=state.request.why))
        except Rejected:
            if state.cut:
                raise
            state.cut = state.request.amount // 2
            return "order"

    agent.validate()
    try:
        yield agent
    finally:
        registry.remove(agent.graph_id)


@pytest.fixture(autouse=True)
def agent() -> Iterator[Agent]:
    with buyer() as made:
        yield made


def start(**given: Any) -> Run:
    return lifecycle.start("buyer", {"item": "chairs", **given}, by=SHOP)


@pytest.fixture
def asked() -> Callable[..., Approval]:
    def of(**given: object) -> Approval:
        run = start(**given)
        with working():
            settled(run, "waiting_human")
        return question(run)

    return of


@pytest.fixture
def ada(reader: Callable[..., Reader]) -> Reader:
    found = reader("auditor", name="ada")
    assert found.user is not None
    found.user.set_password(PASSWORD)
    found.user.save()
    found.client.force_login(found.user)
    return found
