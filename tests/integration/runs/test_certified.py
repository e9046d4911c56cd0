from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from html import unescape
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from durableagents.identity.auth import issue_key
from ledger import events as e
from ledger.clock import database_now
from runs.certification import results
from runs.certification.known import KnownProbes
from runs.engine.fingerprint import tool_digest
from runs.engine.tools import Tool
from runs.models import Probe, Run
from runs.services import lifecycle
from tests.integration.runs.stage import Stage, calling, events, kinds, output, problems
from tests.tampering import tamper
from tests.world import OLGA, Outside, Toolbox


def found(tool: Tool, verdict: str, agent: str, *, days: float = 90, at: Any = None) -> Probe:
    now = at or database_now()
    row = Probe(
        tool=tool.name,
        agent=agent,
        version="1.0.0",
        made_of=tool_digest(tool),
        verdict=verdict,
        told="as a test says",
        evidence={},
        evidence_digest="sha256:0",
        by="os:olga",
        host="here",
        at=now,
        expires_at=now + timedelta(days=days),
    )
    results.keep(row)
    return row


class Knowing:
    def __init__(self, stage: Stage, policy: str) -> None:
        self.stage = stage
        known = KnownProbes(stage.wait(stage.connected()))
        known.policy = policy  # type: ignore[assignment]
        plain = type(stage).runtime.fget  # type: ignore[attr-defined]
        stage.__class__ = type(
            "KnowingStage", (type(stage),), {"runtime": property(lambda self: replace(plain(self), certificates=known))}
        )
        self.known = known

    def start(self, tools: Toolbox) -> Run:
        return self.stage.start(calling(tools, "order", name="orders"))


def test_refused_tool_stops_the_run_until_it_is_probed(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    knowing = Knowing(stage, "refuse")
    run = knowing.start(tools)
    assert stage.drive() == "operator"
    (stop,) = events(run, e.OperatorNeeded)
    assert stop.reason == "uncertified_tool" and stop.payload["standing"] == "not_probed"
    assert "ToolInvoked" not in kinds(run) and outside.requests == [] and problems(run) == []
    lifecycle.retry(run.id, by=OLGA, justification="Try it again.")
    assert stage.drive() == "operator", "nothing has changed"
    found(tools.order, "honours_keys", "orders")
    lifecycle.retry(run.id, by=OLGA, justification="It was probed.")
    assert stage.drive() == "completed" and output(run) == "order:a" and problems(run) == []


def test_restored_database_does_not_certify_a_tool(stage: Stage, tools: Toolbox) -> None:
    known = Knowing(stage, "allow").known
    asked = lambda: stage.wait(known.standing("orders", tools.order, is_fresh=True)).word  # noqa: E731
    good = found(tools.order, "honours_keys", "orders")
    assert asked() == "certified"
    bad = found(tools.order, "ignores_keys", "orders")
    assert asked() == "ignores_keys"
    tamper(f"DELETE FROM runs_probe WHERE id = {bad.pk}")
    assert asked() == "ignores_keys", "the stricter word stands"
    tamper(f"DELETE FROM runs_probe WHERE id = {good.pk}")
    assert asked() == "ignores_keys"
    found(tools.order, "honours_keys", "orders")
    assert asked() == "certified", "a later probe takes it back"
    tamper("DELETE FROM runs_probe")
    assert asked() == "not_probed", "and a good word that is gone is none"


def test_it_is_known_for_a_few_seconds_without_asking_and_ends_by_itself(stage: Stage, tools: Toolbox) -> None:
    known = Knowing(stage, "refuse").known
    found(tools.order, "honours_keys", "orders", days=1.5 / 86_400)
    ask = lambda: stage.wait(known.standing("orders", tools.order)).word  # noqa: E731
    assert ask() == "certified"
    read_at = known._read_at
    assert ask() == "certified" and known._read_at == read_at
    known._read_at -= 2.0  # as if two seconds had passed
    assert ask() == "expired" and known._read_at == read_at - 2.0, "by the time that has passed, unasked"


def test_while_the_database_is_away_nobody_guesses(stage: Stage, tools: Toolbox) -> None:
    class Away:
        def __init__(self, pool: Any) -> None:
            self.pool, self.times = pool, 0

        def connection(self) -> Any:
            self.times += 1
            if self.times < 3:
                raise psycopg.OperationalError("the server is away")
            return self.pool.connection()

    known = Knowing(stage, "refuse").known
    known._pool = Away(known._pool)  # type: ignore[assignment]
    found(tools.order, "honours_keys", "orders")
    assert stage.wait(known.standing("orders", tools.order)).word == "certified"


@pytest.fixture
def olga(stage: Stage) -> Client:
    user = User.objects.create_user("olga-reads")
    user.groups.add(Group.objects.get(name="operator"))
    client = Client()
    client.force_login(user)
    return client


@pytest.mark.parametrize(
    ("verdict", "words"),
    [("honours_keys", "certified until "), ("ignores_keys", "not certified: ignores keys"), (None, "not certified")],
)
def test_certification_is_shown(stage: Stage, tools: Toolbox, olga: Client, verdict: str | None, words: str) -> None:
    knowing = Knowing(stage, "allow")
    knowing.start(tools)
    if verdict:
        found(tools.order, verdict, "orders")
    page = olga.get("/agents/orders@1.0.0").content.decode()
    text = re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", page)))
    row = text[text.index(" Order ") :][:200]
    assert words in row and ("as a test says" in row) is bool(verdict)
    token = issue_key(User.objects.get(username="olga-reads"), "laptop")
    listed = Client().get("/api/v1/agents?limit=200", headers={"authorization": f"Bearer {token}"}).json()["results"]
    (orders,) = [each for each in listed if each["name"] == "orders"]
    by_name = {tool["name"]: tool["certificate"] for tool in orders["tools"]}
    assert by_name["look"] is None and by_name["mail"] is None
    expected = {"honours_keys": "certified", "ignores_keys": "ignores_keys", None: "not_probed"}[verdict]
    assert by_name["order"]["standing"] == expected and by_name["order"]["told"] == (
        "as a test says" if verdict else ""
    )
