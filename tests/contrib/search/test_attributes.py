"""Attributes on the real database: rows and journal agree for every writer, and despite crashes and tampering."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.db import DataError, connection, transaction

from durableagents import Agent, Budget, BusinessFailure, Context, Date, End, Flag, Keyword, Keywords, Money, Number
from durableagents.contrib.search.models import Attribute
from durableagents.contrib.search.queries import attributes_of
from durableagents.contrib.search.reindexing import reindex
from ledger import events as e
from ledger.actors import Actor
from ledger.append import append
from ledger.errors import StaleLease
from ledger.verification.runs import verify
from runs.engine.journal import Batch
from runs.models import Run
from runs.services import lifecycle
from runs.workers import failover
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.stage import Stage, events, fresh
from tests.integration.runs.test_children import everything
from tests.tampering import tamper
from tests.world import OLGA, Asked, Item, Notes, Toolbox, agent_of

ALL = {"customer": Keyword(), "tags": Keywords(), "score": Number(), "amount": Money(), "due": Date(), "urgent": Flag()}
PERSON = Actor("user", "multi", role="integrator", auth="session", person=4711)


def told(run: Run) -> dict[str, Any]:
    return {each.name: each.value for each in attributes_of([run.id]).get(run.id, ())}


@pytest.fixture
def sells(tools: Toolbox) -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.set_attributes(customer="ACME", tags=["a", "b"], score=Decimal("2.5"), amount="12.50")
        await ctx.call(tools.order, Item(name="desk"))
        await ctx.set_attributes(score=3, tags=["b"], amount=None, due="2026-03-31", urgent=False)
        await ctx.signal("go")
        return End()

    return agent_of(node, tools=tools.all(), attributes=ALL)


def test_rows_are_what_the_journal_set_last(stage: Stage, sells: Agent) -> None:
    budget = Budget(tool_calls=5, wall_seconds=600)
    run = lifecycle.start(
        sells.graph_id, {"text": "x"}, by=PERSON, budget=budget, attributes={"customer": "First", "urgent": True}
    )
    assert told(run) == {"customer": "First", "urgent": True} and verify(run.id).problems == []
    assert stage.drive() == "parked"
    assert told(run) == {"customer": "ACME", "tags": ["b"], "score": 3, "due": "2026-03-31", "urgent": False}
    assert [event.by for event in events(run, e.AttributesSet)] == [PERSON.ref, "agent", "agent"]
    assert {row.created_at for row in Attribute.objects.filter(run_id=run.id)} == {fresh(run).created_at}
    check_against_journal(run)


def test_a_worker_that_has_lost_the_run_sets_nothing(stage: Stage, sells: Agent) -> None:
    run = stage.start(sells)
    dead = stage.hire(is_dead=True)
    journal = stage.take(run, dead)
    assert failover.worker_died(dead.id, "gone") == 1
    assert stage.drive() == "parked"
    before, count = told(run), len(events(run, e.AttributesSet))
    late = e.AttributesSet(
        slot="0.1/9", by="agent", named=["customer"], names=["customer"], kinds=["keyword"], values=["late"]
    )
    with pytest.raises(StaleLease):
        stage.wait(journal.commit(Batch([late])))
    assert told(run) == before and len(events(run, e.AttributesSet)) == count


def test_a_retried_run_sets_nothing_again(stage: Stage, tools: Toolbox) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.set_attributes(score=1)
        await ctx.call(tools.order, Item(name="desk"))
        await ctx.set_attributes(score=2)
        return End()

    tools.outside.trouble("order", BusinessFailure("closed", code="closed"))
    run = stage.start(agent_of(node, tools=tools.all(), attributes=ALL))
    assert stage.drive() == "failed" and told(run) == {"score": 1}
    lifecycle.retry(run.id, by=OLGA, justification="open again")
    assert stage.drive() == "completed" and told(run) == {"score": 2}
    assert len(events(run, e.AttributesSet)) == 2
    check_against_journal(run)


def test_a_child_is_found_by_what_its_parent_gave_it_from_its_start(stage: Stage, sells: Agent) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.child(
            sells, Asked(text="x"), attributes={"due": "2026-01-01", "urgent": True}, budget=Budget(steps=9)
        )
        return End()

    run = stage.start(agent_of(node))
    assert stage.drive() == "parked"
    child = Run.objects.get(parent=run.pk)
    assert told(child) == {"due": "2026-01-01", "urgent": True} and told(run) == {}
    assert events(child, e.AttributesSet)[0].by == f"run:{run.id}"
    everything(stage)
    assert told(child)["customer"] == "ACME"
    check_against_journal(run)
    check_against_journal(child)


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("DELETE FROM runs_attribute WHERE name = 'score'", "attribute score, value 0, has no row"),
        ("DELETE FROM runs_attribute", "has no row"),
        ("UPDATE runs_attribute SET number = 4 WHERE name = 'score'", "attribute score, value 0: number says"),
        ("UPDATE runs_attribute SET word = 'Other' WHERE name = 'customer'", "attribute customer, value 0: word says"),
        ("UPDATE runs_attribute SET kind = 'money' WHERE name = 'score'", "attribute score, value 0: kind says money"),
        (
            "UPDATE runs_attribute SET name = 'amount' WHERE name = 'score'",
            "amount, value 0 is not in the journal",
        ),
        ("UPDATE runs_attribute SET n = 1 WHERE name = 'tags'", "attribute tags, value 1 is not in the journal"),
        (
            "UPDATE runs_attribute SET created_at = created_at + interval '1 second'",
            "which differs from the run's start",
        ),
        (
            "INSERT INTO runs_attribute SELECT run_id, 'tags', 1, kind, 'x', NULL, created_at FROM runs_attribute "
            "WHERE name = 'tags'",
            "attribute tags, value 1 is not in the journal",
        ),
    ],
)
def test_a_row_that_says_something_else_is_found(stage: Stage, sells: Agent, change: str, says: str) -> None:
    run = stage.start(sells)
    assert stage.drive() == "parked" and verify(run.id).problems == []
    tamper(change)
    assert any(says in problem for problem in verify(run.id).problems), verify(run.id).problems


def test_rows_of_events_without_the_trigger_are_made_when_the_app_is_put_back(stage: Stage, sells: Agent) -> None:
    run = stage.start(sells)
    assert stage.drive() == "parked"
    known = told(run)
    reindex(using="default")
    assert told(run) == known, "with the trigger, it does nothing"
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER runs_attributes_set ON ledger_event")
        cursor.execute("DELETE FROM runs_attribute WHERE name = 'score'")
        cursor.execute("UPDATE runs_attribute SET word = 'old' WHERE name = 'customer'")
        append(run.id, e.AttributesSet(by="agent", named=["urgent"], names=[], kinds=[], values=[]), by=OLGA)
        reindex(using="default")
        assert told(run) == {name: value for name, value in known.items() if name != "urgent"}
        assert verify(run.id).problems == []
        transaction.set_rollback(True)


def test_an_event_is_nothing_without_its_rows(stage: Stage, sells: Agent) -> None:
    run = stage.start(sells)
    wrong = e.AttributesSet(by="agent", named=["score"], names=["score"], kinds=["number"], values=["no number"])
    with pytest.raises(DataError), transaction.atomic():
        append(run.id, wrong, by=OLGA)
    assert events(run, e.AttributesSet) == [] and not Attribute.objects.exists()


def test_an_event_of_another_kind_costs_no_trigger(stage: Stage, sells: Agent) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgname = 'runs_attributes_set'")
        assert "WHEN ((new.kind = 'AttributesSet'::text))" in cursor.fetchone()[0]
