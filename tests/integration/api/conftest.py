"""API callers: one key per role, and some without rights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.test import Client
from pydantic import BaseModel, Field

from durableagents.identity.auth import issue_key
from ledger.web.roles import ROLES
from runs.engine.agents import Agent, End, Sample, registry
from tests.integration.api.served import misfits
from tests.roles import SUPERUSER

API = "/api/v1"


class Api:
    """A caller with a key: `get` and `post` below /api/v1, JSON in and out. Each answer to a POST has to be as the
    served OpenAPI document describes it."""

    def __init__(self, key: str | None) -> None:
        self.client = Client(raise_request_exception=False)
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}

    def get(self, path: str, **query: Any) -> Any:
        return self.client.get(_address(path), query, headers=self.headers)

    def post(self, path: str, body: Any = None, *, headers: dict[str, str] | None = None, **more: Any) -> Any:
        answer = self.client.post(
            _address(path), body, content_type="application/json", headers=self.headers | (headers or {}), **more
        )
        assert misfits("POST", _address(path), answer) == []
        return answer

    def send(self, path: str, raw: bytes, *, content_type: str = "application/json", method: str = "POST") -> Any:
        return self.client.generic(method, _address(path), raw, content_type=content_type, headers=self.headers)


def _address(path: str) -> str:
    return path if path.startswith(("/", "http:")) else f"{API}/{path}"


def person(name: str, *roles: str, **fields: Any) -> Any:
    user = get_user_model().objects.create_user(name, password="a long enough one", **fields)
    user.groups.set([Group.objects.get_or_create(name=role)[0] for role in roles])
    return user


@pytest.fixture
def caller(db: None) -> Callable[[str | None], Api]:
    """Return the caller with a role, with none (`nobody`), a superuser without roles, or without a key (None)."""
    known: dict[str | None, Api] = {None: Api(None)}

    def of(role: str | None) -> Api:
        if role not in known:
            roles = [role] if role in ROLES else []
            user = person(str(role), *roles, is_superuser=role == SUPERUSER, is_staff=role == SUPERUSER)
            known[role] = Api(issue_key(user, "test"))
        return known[role]

    return of


@pytest.fixture
def integrator(caller: Callable[[str | None], Api]) -> Api:
    return caller("integrator")


@pytest.fixture
def operator(caller: Callable[[str | None], Api]) -> Api:
    return caller("operator")


@pytest.fixture
def auditor(caller: Callable[[str | None], Api]) -> Api:
    return caller("auditor")


class Order(BaseModel):
    model_config = {"extra": "forbid"}

    item: str = Field(min_length=1, max_length=100)
    amount: int = Field(ge=1, le=1000)


class Seen(BaseModel):
    order: Order


@pytest.fixture(autouse=True)
def order_agent() -> Iterator[Agent]:
    made = []
    for version in ("1.0.0", "1.1.0"):
        agent = Agent(
            "order",
            version,
            input=Order,
            state=Seen,
            output=Order,
            initial=lambda order: Seen(order=order),
            title="Order",
            samples=[Sample(label="One", input={"item": "chair", "amount": 1})],
        )

        @agent.node(start=True)
        async def echo(state: Seen, ctx: Any) -> End:
            return End(state.order)

        agent.validate()
        made.append(agent)
    yield made[0]
    for agent in made:
        registry.remove(agent.graph_id)


START = {"agent": "order@1.0.0", "input": {"item": "chair", "amount": 2}}


@pytest.fixture
def start(integrator: Api) -> Callable[..., dict[str, Any]]:
    def go(**changed: Any) -> dict[str, Any]:
        answer = integrator.post("runs", START | changed)
        assert answer.status_code == 201, answer.content
        return answer.json()

    return go


def is_problem(answer: Any, status: int, code: str | None = None) -> bool:
    """Assert that an answer is a consistent problem document of this status; return True."""
    assert answer.status_code == status, (answer.status_code, answer.content[:500])
    assert answer["Content-Type"] == "application/problem+json", answer["Content-Type"]
    body = answer.json()
    assert body["status"] == status and body["title"] and body["detail"], body
    assert body["type"] == f"urn:durableagents:problem:{body['code']}"
    assert code is None or body["code"] == code, body
    return True
