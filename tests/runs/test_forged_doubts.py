"""A question that no run asks: its row was written past us. Nobody settles or answers anything by it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from psycopg.errors import UniqueViolation

from durableagents import Context, End
from ledger.errors import IllegalTransition, RecordDamaged
from ledger.models import Event
from runs.engine.agents import Agent
from runs.models import Run, Wait
from runs.services import reconciling
from runs.services.questions import answer
from runs.services.settling import upstream
from runs.workers import failover, timers
from tests.halts.halting import calls
from tests.runs.aging import runs_out
from tests.runs.stage import Stage, fresh, kinds, now, output, problems
from tests.world import OLGA, Item, Notes, Outside, Toolbox, agent_of

pytestmark = pytest.mark.django_db


def left_behind(stage: Stage, tools: Toolbox, point: str, name: str) -> Run:
    """A run whose worker died at a point of its call."""
    run = stage.start(calls(tools, name))
    stage.kill_at.append((point, name))
    assert stage.drive() == "killed"
    failover.worker_died(stage.worker.id, "the test says so")
    return fresh(run)


def forged(run: Run, n: int = 0) -> Wait:
    (intent,) = Event.objects.filter(run_id=run.pk, kind="ToolInvoked")
    return Wait.objects.create(
        id=uuid4(),
        run=run,
        kind="reconcile",
        slot=intent.slot,
        attempt=0,
        n=n,
        opened_at=now(),
        deadline=now() + timedelta(days=1),
        detail={"tool": "mail"},
    )


@pytest.mark.parametrize("verdict", ["happened", "did_not", "fail"])
def test_a_question_that_is_not_on_record_is_settled_by_nobody(
    stage: Stage, tools: Toolbox, outside: Outside, verdict: str
) -> None:
    run = left_behind(stage, tools, "CP4", "mail")
    forged(run)
    with pytest.raises(IllegalTransition):
        stage.reconcile(run, verdict, {"ref": "x"} if verdict == "happened" else None)
    assert "ToolReconciled" not in kinds(run) and problems(run) != []
    # its own question finds its place taken, which its worker stops for an operator as any bug; nothing is sent again
    with pytest.raises(UniqueViolation):
        stage.settle(run)
    assert len(outside.executed("mail")) == 1


def test_nobody_is_asked_by_it_either(stage: Stage, tools: Toolbox) -> None:
    run = left_behind(stage, tools, "CP4", "hooked")
    wait = forged(run, n=7)
    Wait.objects.filter(pk=wait.pk).update(detail={"tool": "hooked"})
    with pytest.raises(IllegalTransition, match="asks no such question"):
        upstream.ask(run.id, wait.pk, justification="looked it up", by=OLGA)
    assert "UpstreamAsked" not in kinds(run)


def test_the_run_goes_on_beside_it_and_its_own_question_is_settled(
    stage: Stage, tools: Toolbox, outside: Outside
) -> None:
    run = left_behind(stage, tools, "CP4", "mail")
    wait = forged(run, n=7)
    assert stage.settle(run) == "parked"
    with pytest.raises(IllegalTransition, match="asks no such question"):
        reconciling.reconcile(
            run.id, verdict="did_not", receipt=None, justification="looked it up", by=OLGA, wait_id=wait.pk
        )
    (own,) = Wait.objects.filter(run=run, kind="reconcile", resolved_at=None).exclude(pk=wait.pk)
    reconciling.reconcile(
        run.id, verdict="happened", receipt={"ref": "x"}, justification="looked it up", by=OLGA, wait_id=own.pk
    )
    assert stage.settle(run) == "completed" and len(outside.executed("mail")) == 1


def test_what_is_not_asked_is_not_answered(stage: Stage) -> None:
    run = stage.start(asks())
    assert stage.drive() == "parked"
    asked = Wait.objects.get(run=run, kind="input")
    false = Wait.objects.get(pk=asked.pk)
    false.pk, false.n = uuid4(), 1
    false.detail |= {"title": "What is your password?"}
    false.save(force_insert=True)
    given = {"name": "x", "amount": 1}
    with pytest.raises(RecordDamaged, match="the event that asks this"):
        answer(run.id, false.pk, given, by=OLGA)
    assert "InputAnswered" not in kinds(run) and problems(run) != []
    answer(run.id, asked.pk, given, by=OLGA)
    assert stage.drive() == "completed"


def test_what_was_answered_is_not_asked_again(stage: Stage) -> None:
    run = stage.start(asks())
    assert stage.drive() == "parked"
    runs_out(run.id, "input")
    timers.sweep()
    assert stage.drive() == "completed" and output(run) == "nobody"
    wait = Wait.objects.get(run=run, kind="input")
    Wait.objects.filter(pk=wait.pk).update(
        resolution=None, resolved_by=None, resolved_at=None, deadline=now() + timedelta(days=1)
    )
    with pytest.raises(RecordDamaged, match="the event that asks this"):
        answer(run.id, wait.pk, {"name": "x", "amount": 1}, by=OLGA)
    assert "InputAnswered" not in kinds(run)


@pytest.mark.parametrize("changed", [{"of": "auditor"}, {"title": "Your password?"}, {"schema": {}}])
def test_what_says_otherwise_than_its_event_is_not_answered(stage: Stage, changed: dict[str, Any]) -> None:
    run = stage.start(asks())
    assert stage.drive() == "parked"
    wait = Wait.objects.get(run=run, kind="input")
    Wait.objects.filter(pk=wait.pk).update(detail=wait.detail | changed)
    with pytest.raises(RecordDamaged, match="the event that asks this"):
        answer(run.id, wait.pk, {"name": "x", "amount": 1}, by=OLGA)
    assert "InputAnswered" not in kinds(run)


def asks() -> Agent:
    """One that asks an operator, and goes on where nobody answers."""

    async def node(state: Notes, ctx: Context) -> End:
        found = await ctx.ask("operator", title="Which one?", schema=Item, or_else=None)
        return End("nobody" if found is None else found.name)

    return agent_of(node)
