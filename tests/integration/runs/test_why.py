from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from approvals.models import Approval
from durableagents import Context, End, NotSent
from durableagents.identity.auth import issue_key
from ledger.models import Event, Head
from runs.api.present import run_rows
from runs.console.run_page import gather
from runs.engine.agents import registry
from runs.engine.budget import Budget
from runs.management.why import lines
from runs.models import Run, State, Wait
from runs.queries import run_list
from runs.queries.actions import Reader
from runs.queries.run_facts import RunFacts, read_facts
from runs.queries.status import NOBODY, REASONS, reason_of
from runs.queries.why import why
from runs.services import lifecycle
from runs.services.starts import keys
from tests.apps import offered
from tests.cases import each_case
from tests.integration.api.conftest import Api, person
from tests.integration.messages.desk import Desk, desk
from tests.integration.runs import stage as stages
from tests.integration.runs.families import with_child
from tests.integration.runs.situations import ALL, Situations
from tests.integration.runs.stage import Stage, fresh
from tests.integration.runs.test_budgets import ordering
from tests.world import OLGA, SHOP, Item, Notes, Toolbox, agent_of

pytestmark = pytest.mark.every(4)

OPERATOR = Reader(replace(OLGA, person=1), frozenset({"operator"}))
STEERED = ["pause", "resume", "cancel", "retry", "reconcile", "budget", "priority"]


class Lives(Situations):
    def question(self) -> Run:
        async def node(state: Notes, ctx: Context) -> End:
            return End((await ctx.ask("legal", title="How many?", schema=Item)).name)

        return self.parked(agent_of(node, tools=self.tools.all()))

    def signal(self) -> Run:
        async def node(state: Notes, ctx: Context) -> End:
            return End(await ctx.signal("go"))

        return self.parked(agent_of(node, tools=self.tools.all()))

    def message(self) -> Run:
        async def wait(state: Desk, ctx: Context) -> End:
            return End((await ctx.message("add")).name)

        return self.parked(desk(self.tools, wait))

    def child(self) -> Run:
        async def helper(state: Notes, ctx: Context) -> End:
            return End(state.asked.text)

        run, child = with_child(self.stage, agent_of(helper, tools=self.tools.all()))
        Run.objects.filter(pk=child.pk).update(ready_at=None)  # nobody takes it meanwhile
        return run

    def budget(self) -> Run:
        run = lifecycle.start(
            ordering(self.tools, "order", "order").graph_id, {}, by=stages.SHOP, budget=Budget(tool_calls=1)
        )
        assert self.stage.drive() == "paused"
        return run

    def budget_held(self) -> Run:
        return lifecycle.pause(self.budget().pk, by=OLGA, justification="hold on")

    def in_trouble(self) -> Run:
        self.tools.outside.trouble("order", NotSent("away"))
        self.stage.retry = replace(self.stage.retry, timer_first=3600, timer_longest=3600)
        return self._driven("away", "parked")

    def not_due(self) -> Run:
        return self._keyed(start_at=datetime.now(UTC) + timedelta(hours=1))

    def behind(self) -> Run:
        self._keyed()
        return self._keyed()

    def elsewhere(self) -> Run:
        """No running worker has its version."""
        run = self.pending()
        with connection.cursor() as cursor:
            cursor.execute("UPDATE runs_served SET graph_id = 'other@1.0.0'")
        return run

    def _keyed(self, **more: Any) -> Run:
        wanted = keys.Wanted(self.agent.graph_id, {}, business_key="po-1", on_conflict="queue", **more)
        with transaction.atomic():
            return keys.start(wanted, by=stages.SHOP).run

    def parked(self, agent: Any) -> Run:
        run = self.stage.start(agent)
        assert self.stage.drive() == "parked"
        return run


MORE = [
    "question",
    "signal",
    "message",
    "child",
    "budget",
    "budget_held",
    "in_trouble",
    "not_due",
    "behind",
    "elsewhere",
]
EXPECTED = {
    "pending": "queued",
    "queued": "queued",
    "at_gate": "approval",
    "unknown": "unknown_outcome",
    "stopped": "stopped",
    "at_callback": "callback",
    "asleep": "timer",
    "in_outage": "retry_timer",
    "owned": "driven",
    "asked_to_pause": "pausing",
    "asked_to_cancel": "cancelling",
    "doomed_unknown": "unknown_outcome",
    "paused_pending": "paused",
    "paused_queued": "paused",
    "paused_at_gate": "paused",
    "paused_unknown": "paused",
    "paused_stopped": "paused",
    "paused_at_callback": "paused",
    "paused_asleep": "paused",
    "paused_woken": "paused",
    "completed": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
    "question": "question",
    "signal": "signal",
    "message": "message",
    "child": "child",
    "budget": "budget",
    "budget_held": "budget",
    "in_trouble": "retry_timer",
    "not_due": "not_due",
    "behind": "behind_key",
    "elsewhere": "no_version",
}


for situation, make, reason in offered("situations", "MORE"):
    setattr(Lives, situation, make)
    MORE.append(situation)
    EXPECTED[situation] = reason


@pytest.fixture
def lives(stage: Stage, tools: Toolbox) -> Lives:
    made = Lives(stage, tools)
    serve(stage, made.agent.graph_id)
    return made


def serve(stage: Stage, graph_id: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO runs_served (worker, graph_id, is_quarantined, is_draining) VALUES (%s, %s, false, false)",
            [stage.worker.id, graph_id],
        )


def test_the_situations_are_all_told_apart() -> None:
    assert EXPECTED.keys() == {*ALL, *MORE}


@pytest.mark.parametrize("name", [*ALL, *MORE])
def test_every_situation_has_one_status_with_evidence_and_the_same_everywhere(lives: Lives, name: str) -> None:
    run = lives.make(name)
    found = why(read_facts(run.pk), OPERATOR)
    assert found.status.reason == EXPECTED[name]
    assert found.status.sentence.endswith(".") and "  " not in found.status.sentence and found.evidence
    for one in found.evidence:
        assert one.seq is None or Event.objects.filter(run_id=run.pk, seq=one.seq).exists()
    for wait in Wait.objects.filter(run=run, resolved_at__isnull=True):
        (text,) = [one for one in found.evidence if one.wait == wait.pk]
        assert text.seq is not None and text.until == wait.deadline, "by the event that opened it"
    if fresh(run).state in ("completed", "cancelled"):
        assert found.status.who == NOBODY
    if found.status.reason == "approval":
        assert found.status.who.queue == "finance_po" and found.status.who.roles == ["approver_finance"]
    if found.status.reason == "question":
        assert found.status.who.roles == ["approver_legal", "operator"]
    allowed = {one.act for one in found.acts if one.allowed} - {"decide"}
    assert allowed <= set(found.status.actions), "an operator may take no action that the state refuses"
    api = Api(issue_key(person("operator", "operator"), "test"))
    status = api.get(f"runs/{run.pk}").json()["status"]
    (listed,) = [one["status"] for one in api.get("runs").json()["results"] if one["id"] == str(run.pk)]
    (card,) = [card for card in run_list.page(run_list.Filters())[0] if card.run.pk == run.pk]
    assert status == listed == api.get(f"runs/{run.pk}/why").json()["status"]
    text = "\n".join(lines(run.pk, {}))
    assert status["reason"] == card.reason == gather(run.pk).reason and f"reason    {card.reason}\n" in text
    assert status["sentence"] == found.status.sentence


def test_the_statuses_of_more_runs_take_no_more_statements(lives: Lives) -> None:
    names = ["paused_at_gate", "unknown", "failed"]
    runs = [fresh(lives.make(name)) for name in names]
    with CaptureQueriesContext(connection) as few:
        run_rows(runs)
    runs += [lives.make(name) for name in names]
    runs = [fresh(run) for run in runs]
    with CaptureQueriesContext(connection) as many:
        rows = run_rows(runs)
    assert len(many) == len(few)
    assert [row.status.reason for row in rows] == [EXPECTED[name] for name in names] * 2


# --- available actions ------------------------------------------------------------------------------------------------


def bodies(run: Run, offer: dict[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {"justification": "because I say so"}
    match offer["act"]:
        case "cancel" if "effects" in offer["body"]["required"]:
            body["effects"] = "leave"
        case "reconcile":
            wait = Wait.objects.filter(run=run, kind="reconcile", resolved_at__isnull=True).first()
            body |= {"verdict": "fail", "wait_id": str(wait.pk) if wait else None}
        case "budget":
            body["budget"] = {"tool_calls": 50}
        case "priority":
            body["priority"] = 7
        case "models":
            body["models"] = ["openai:gpt-5"]
        case "answer":
            body["answer"] = {"name": "three", "amount": 3}
        case "signal":
            return {"payload": {"yes": True}}
        case "message":
            return {"body": {"name": "a contract"}}
        case "decide":
            row = Approval.objects.get(pk=offer["subject"])
            body |= {"verdict": "approve", "plan_hash": row.plan_hash}
    return body


@contextmanager
def undone() -> Iterator[None]:
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


@pytest.mark.parametrize("name", [*ALL, *MORE])
def test_offered_acts_work_and_others_are_refused(lives: Lives, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    owner = person("shop", "integrator")
    monkeypatch.setattr(stages, "SHOP", replace(SHOP, person=owner.pk))
    people = {
        "integrator": owner,
        "operator": person("olga", "operator"),
        "finance": person("fiona", "approver_finance"),
        "legal": person("lena", "approver_legal"),
        "auditor": person("ada", "auditor"),
        "both": person("ina", "integrator", "approver_finance"),
    }
    run, tried, wrong = lives.make(name), set(), []
    for who, user in people.items():
        api = Api(issue_key(user, "test"))
        answer = api.get(f"runs/{run.pk}/why")
        assert answer.status_code == 200, answer.content
        for offer in answer.json()["acts"]:
            with undone():
                done = api.post(offer["path"], bodies(run, offer))
            body = done.json()
            if offer["allowed"]:
                is_so = done.status_code in (200, 201, 202)
            elif offer["code"] == "forbidden":
                is_so = done.status_code == 403 and body["code"] == "forbidden"
            elif offer["act"] in ("pause", "cancel") and done.status_code == 200:
                is_so = body["state"] == run.state  # a repeat changes nothing
            else:
                is_so = (body.get("code"), body.get("detail")) == (offer["code"], offer["why_not"])
            tried.add((offer["act"], offer["allowed"]))
            if not is_so:
                wrong.append((who, offer["act"], offer["allowed"], offer["why_not"], done.status_code, body))
    assert wrong == []
    assert {act for act, _ in tried} >= set(STEERED) and ("pause", False) in tried, "an auditor may nothing"


def test_an_integrator_is_told_nothing_of_anothers_run(lives: Lives) -> None:
    run = lives.make("at_gate")
    api = Api(issue_key(person("other", "integrator"), "test"))
    assert api.get(f"runs/{run.pk}/why").status_code == 404 == api.get(f"runs/{uuid4()}/why").status_code


def test_a_message_that_is_waited_for_is_offered_by_its_name(lives: Lives) -> None:
    run = lives.make("message")
    offers = [o for o in why(read_facts(run.pk), OPERATOR).acts if o.act == "message"]
    assert offers and {o.subject for o in offers} <= set(registry.find(run.graph_id).messages)
    assert all(o.allowed and o.path.endswith(f"/messages/{o.subject}") for o in offers)


# --- special cases ----------------------------------------------------------------------------------------------------


def test_a_run_without_its_head_is_damaged_and_nothing_is_offered(lives: Lives) -> None:
    run = lives.make("at_gate")
    facts = read_facts(run.pk)
    found = why(replace(facts, head=None), OPERATOR)
    assert found.status.reason == "damaged" and not any(o.allowed for o in found.acts if o.act in ("pause", "cancel"))


def test_nobody_drives_where_no_worker_runs_or_all_of_them_drain(lives: Lives) -> None:
    run = lives.make("pending")
    facts = read_facts(run.pk)
    assert reason_of(replace(facts, served=frozenset())) == "no_worker"
    assert reason_of(replace(facts, served=frozenset([run.graph_id, f"drained:{run.graph_id}"]))) == "draining"


def test_every_reason_is_reached() -> None:
    reached = {*EXPECTED.values(), "limit", "breaker", "damaged", "halted", "no_worker", "draining", "no_key"}
    unreached = {"renewed", "handed_off", "undoing", *({"pool"} - reached)}  # pool: by the app limits
    assert set(REASONS) - reached == unreached, "told by tests of their own"


@each_case("how", ["renewal", "handoff"])
def test_a_run_that_went_on_names_the_one_that_it_goes_on_as(how: str) -> None:
    run = Run(state=State.COMPLETED, goes_on_as=uuid4(), goes_on_by=how, ended_at=datetime.now(UTC))
    assert reason_of(RunFacts(run, Head(), [], frozenset())) == ("renewed" if how == "renewal" else "handed_off")
