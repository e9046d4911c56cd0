from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from datetime import timedelta
from html import unescape
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from durableagents.checks import check_certification
from durableagents.contrib.certify.certificates import CachedCertificates
from durableagents.contrib.certify.models import Probe
from durableagents.identity.auth import issue_key
from ledger import events as e
from ledger.clock import database_now
from runs import features
from runs.engine.fingerprint import tool_digest
from runs.engine.tools import Tool
from runs.models import Run
from runs.services import lifecycle
from tests.integration.runs.stage import Stage, calling, events, kinds, output, problems
from tests.tampering import tamper
from tests.world import OLGA, Outside, Toolbox

pytestmark = pytest.mark.django_db(transaction=True)


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
    row.seal()
    row.save(force_insert=True)
    return row


class Knowing:
    def __init__(self, stage: Stage, policy: str) -> None:
        self.stage = stage
        known = CachedCertificates(stage.wait(stage.connected()))
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
    question = lambda: stage.wait(known.standing("orders", tools.order, is_fresh=True)).word  # noqa: E731
    good = found(tools.order, "honours_keys", "orders")
    assert question() == "certified"
    bad = found(tools.order, "ignores_keys", "orders")
    assert question() == "ignores_keys"
    tamper(f"DELETE FROM runs_probe WHERE id = {bad.pk}")
    assert question() == "ignores_keys", "the stricter word stands"
    tamper(f"DELETE FROM runs_probe WHERE id = {good.pk}")
    assert question() == "ignores_keys"
    found(tools.order, "honours_keys", "orders")
    assert question() == "certified", "a later probe takes it back"
    tamper("DELETE FROM runs_probe")
    assert question() == "not_probed", "and a good word that is gone is none"


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


def test_without_the_app_no_tool_is_certified(tools: Toolbox, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(features.installed, "certify")
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"uncertified_tools": "refuse"})
    certificates = features.worker_certificates(None)  # type: ignore[arg-type]
    assert certificates.policy == "refuse"
    assert asyncio.run(certificates.standing("orders", tools.order)).word == "not_probed"
    assert features.certificate_reader()("orders", tools.order) is None
    (warning,) = check_certification()
    assert "no app certifies tools" in warning.msg


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
