"""Content outside the journal: a copy of all tables shows none of it, and a list costs one statement for its keys."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction
from django.db.models import Value
from django.test.utils import CaptureQueriesContext
from pydantic import BaseModel

from approvals.cases.amending import amend
from approvals.models import Approval, Decision, Inquiry
from durableagents import Context, Document, End, Evidence
from durableagents.contrib.casework.inquiries import answer, ask
from durableagents.contrib.encryption import master_keys
from durableagents.contrib.encryption.models import RunKey
from durableagents.contrib.schedules.models import Schedule
from durableagents.identity.auth import issue_key
from ledger.actors import Actor
from ledger.contents import UNREADABLE
from ledger.verification.runs import verify
from runs.models import LogLine, Run, Wait
from runs.services import lifecycle, questions
from tests.contrib.encryption.test_payloads import _own_keys, cold, keys_are
from tests.integration.api.conftest import Api, person
from tests.integration.approvals.setup import somebody
from tests.integration.runs.stage import Stage, fresh
from tests.world import SHOP, Item, Notes, Toolbox, agent_of

__all__ = ["_own_keys", "keys_are"]

# Each is one word, as long as a search word may be, in a form that none of our own texts has.
WORDS = {
    name: f"zeisig-{name}-7261"
    for name in (
        *("input", "argument", "evidence", "why", "headline", "document", "documentname", "title", "prefilled"),
        *("answer", "progress", "log", "inquiry", "reply", "reason", "pause", "schedule", "request", "amended"),
    )
}
# The external id of a receipt is readable, as the README says; the test's tool makes it of its argument.
READABLE = {("ledger_event", "amended"), ("ledger_ledgerentry", "amended")}


class Form(BaseModel):
    text: str


def copied() -> dict[str, bytes]:
    """Return a copy of all tables, each in the text form of COPY, by table."""
    found = {}
    with psycopg.connect(**connection.get_connection_params() | {"cursor_factory": psycopg.Cursor}) as link:
        tables = link.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        for (table,) in tables:
            text = io.BytesIO()
            with link.cursor().copy(f'COPY "{table}" TO STDOUT') as copy:
                for part in copy:
                    text.write(part)
            found[table] = text.getvalue()
    return found


def in_the_clear() -> dict[str, set[str]]:
    """Return the words that a thief finds, by table."""
    found: dict[str, set[str]] = {}
    for table, text in copied().items():
        for name, word in WORDS.items():
            is_there = word.encode() in text.lower() or word.encode().hex().encode() in text
            if is_there and (table, name) not in READABLE:
                found.setdefault(table, set()).add(word)
    return found


def story(tools: Toolbox) -> Any:
    """Return an agent that shows people content in each way there is."""
    assert tools.pay.gate is not None
    pay = replace(tools.pay, gate=replace(tools.pay.gate, editable=["name"]))
    w = WORDS

    async def node(state: Notes, ctx: Context) -> Any:
        ctx.progress(1, 2, w["progress"])
        ctx.log(w["log"])
        await ctx.ask("operator", title=w["title"], schema=Form, prefilled={"text": w["prefilled"]})
        done = await ctx.call(
            pay,
            Item(name=w["argument"], amount=5000),
            evidence=[Evidence("Offer", "inbox", {"text": w["evidence"]})],
            why=w["why"],
            documents=[Document(f"{w['documentname']}.txt", "text/plain", w["document"])],
        )
        return End(done.ref)

    return agent_of(node, tools=[pay])


def told(stage: Stage, tools: Toolbox) -> tuple[Run, Approval, Actor]:
    """Run the story up to the decision."""
    cold()  # the installation's key of an earlier test is gone with its rows
    agent = story(tools)
    fiona, ira = somebody("fiona", "approver_finance"), somebody("ira", "integrator")
    olga = somebody("olga", "operator")
    run = lifecycle.start(agent.graph_id, {"text": WORDS["input"]}, by=SHOP)
    assert stage.drive() == "parked"
    wait = Wait.objects.get(run_id=run.pk, kind="input")
    assert wait.detail["title"] == WORDS["title"]
    questions.answer(run.pk, wait.pk, {"text": WORDS["answer"]}, by=olga, justification=f"I know {WORDS['reason']}")
    assert stage.drive() == "parked"
    case = Approval.objects.get(state="open")
    row = ask(case.pk, to="ira", question=f"Is it {WORDS['inquiry']}?", by=fiona)
    answer(case.pk, row.n, answer=f"It is {WORDS['reply']}.", by=ira)
    lifecycle.pause(run.pk, by=olga, justification=f"because of {WORDS['pause']}")
    lifecycle.resume(run.pk, by=olga, justification=f"no more {WORDS['pause']}")
    return run, case, fiona


def test_a_copy_of_all_tables_shows_no_content(stage: Stage, tools: Toolbox) -> None:
    run, case, fiona = told(stage, tools)
    cold()
    case = Approval.objects.get(pk=case.pk)
    assert WORDS["evidence"] in str(case.evidence) and WORDS["argument"] in bytes(case.plan).decode()
    by = replace(fiona, role="approver_finance")
    changed, reason = {"name": WORDS["amended"]}, f"Fine: {WORDS['reason']}"
    amend(case.pk, plan_hash=case.plan_hash, arguments=changed, justification=reason, by=by)
    stage.settle(run)
    stage.send_told()
    assert fresh(run).state == "completed"
    api = Api(issue_key(person("sam", "integrator"), "test"))
    body = {"agent": run.graph_id, "input": {"text": WORDS["request"]}}
    first, again = (api.post("runs", body, headers={"Idempotency-Key": "k1"}) for _ in range(2))
    assert (first.status_code, first.content) == (201, again.content)
    planned = {
        "name": "nightly",
        "agent": run.graph_id,
        "cron": "1 1 1 1 *",
        "input": {"text": WORDS["schedule"]},
    }
    made = api.post("schedules", planned)
    assert made.status_code == 201, made.content
    assert in_the_clear() == {}
    cold()
    assert WORDS["schedule"] in str(Schedule.objects.get().input)
    assert Inquiry.objects.get().answer == f"It is {WORDS['reply']}." and Inquiry.objects.get().is_authentic
    for decision in Decision.objects.all():
        assert decision.is_authentic and WORDS["reason"] in decision.justification
    assert [line.text for line in LogLine.objects.all()] == [WORDS["log"]]
    assert verify(run.pk).problems == []


def fifty(stage: Stage, tools: Toolbox) -> list[Run]:
    """Return runs that each wait for an approval."""

    async def node(state: Notes, ctx: Context) -> Any:
        return End((await ctx.call(tools.pay, Item(name="po", amount=5000))).ref)

    agent = agent_of(node, tools=[tools.pay])
    runs = [lifecycle.start(agent.graph_id, {}, by=SHOP) for _ in range(50)]
    for _ in runs:
        assert stage.drive() == "parked"
    return runs


def statements(api: Api, path: str) -> tuple[int, Any]:
    with CaptureQueriesContext(connection) as made:
        answer = api.get(path, limit=50)
    assert answer.status_code == 200, answer.content
    return len(made), answer.json()["results"]


def test_a_list_reads_its_keys_in_one_statement_and_shows_a_damaged_row(stage: Stage, tools: Toolbox) -> None:
    runs = fifty(stage, tools)
    api = Api(issue_key(person("olga", "operator", "approver_finance"), "test"))
    for path in ("runs", "approvals"):
        statements(api, path)  # fills other caches
        warm, rows = statements(api, path)
        cold()
        assert len(rows) == 50 and statements(api, path)[0] <= warm + 1, path
    RunKey.objects.filter(run_id=runs[0].pk).update(wrapped=RunKey.objects.get(run_id=runs[1].pk).wrapped)
    cold()
    titles = [row["title"] for row in statements(api, "approvals")[1]]
    assert len(titles) == 50 and titles.count(UNREADABLE) == 1


def test_a_list_says_that_a_master_key_is_missing(stage: Stage, tools: Toolbox, keys_are: Any, tmp_path: Path) -> None:
    keys_are("own")
    fifty(stage, tools)
    (tmp_path / "own").unlink()
    master_keys.forget()
    cold()
    answer = Api(issue_key(person("olga", "operator", "approver_finance"), "test")).get("approvals")
    assert (answer.status_code, answer.json()["code"]) == (503, "key-unavailable")


def test_updates_of_query_sets_refuse_content(stage: Stage, tools: Toolbox) -> None:
    run, case, _ = told(stage, tools)
    before = copied()
    rows = Approval.objects.filter(pk=case.pk)
    case.title = "in the clear"
    for tried in (
        lambda: rows.update(title="in the clear"),
        lambda: rows.update(evidence=[{"text": "in the clear"}]),
        lambda: rows.update(title=Value("in the clear")),
        lambda: Approval.objects.bulk_update([case], ["title"]),
        lambda: Run.objects.filter(pk=run.pk).update(about="in the clear"),
    ):
        with pytest.raises(TypeError, match=r"holds content of runs.*set the attribute and save"), transaction.atomic():
            tried()
    assert copied() == before
