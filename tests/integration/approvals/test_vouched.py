"""Rights of a queue's people other than deciding follow the queue's current row, and never a forged one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from django.conf import settings
from django.contrib.auth.models import Group

from approvals.queues import acts
from approvals.queues.acts import QueueChangeBody
from durableagents import Context, End
from ledger.actors import Actor
from ledger.errors import Forbidden
from ledger.verification.runs import verify
from runs.engine.agents import Agent
from runs.engine.budget import Budget
from runs.journal.asked.queues import QUEUES
from runs.models import Run, Wait
from runs.services import lifecycle, questions
from runs.services.budgets.raising import set_budget
from tests.integration.approvals.setup import WHY, boss, known_as, somebody
from tests.integration.approvals.test_queues import changed
from tests.integration.runs.stage import Stage
from tests.tampering import run_sql
from tests.world import FIONA, OLGA, SHOP, Item, Notes, Toolbox, agent_of

pytestmark = pytest.mark.django_db
ANSWER = {"name": "chairs", "amount": 3}
TO_LENA = "UPDATE approvals_queue SET role = 'approver_legal' WHERE name = 'finance_po'"
WORDS = "finance_po was changed outside the application"


def asking(of: str = "finance_po") -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.ask(of, title="How many?", schema=Item)).name)

    return agent_of(node)


def waiting(stage: Stage, of: str = "finance_po") -> Run:
    run = stage.start(asking(of))
    assert stage.drive() == "parked"
    return run


def answer(run: Run, by: Actor) -> Run:
    return questions.answer(run.pk, Wait.objects.get(run=run, kind="input").pk, ANSWER, by=by)


def raise_budget(run: Run, by: Actor) -> Run:
    return set_budget(run.pk, Budget(steps=500), by=by, justification=WHY)


ACTS: dict[str, Callable[[Run, Actor], object]] = {
    "answer": answer,
    "budget": raise_budget,
    **{
        name: lambda run, by, name=name: getattr(lifecycle, name)(run.pk, by=by, justification=WHY)
        for name in ("pause", "cancel")
    },
}


@pytest.fixture(autouse=True)
def _finance_has_the_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        settings, "DURABLEAGENTS", settings.DURABLEAGENTS.model_copy(update={"budget_queue": "finance_po"})
    )


@pytest.mark.parametrize("act", ACTS)
def test_a_forged_row_gives_nobody_the_right(stage: Stage, act: str) -> None:
    """Neither its new owner nor the old one: an operator acts, and an administrator sets it again."""
    run, admin, lena = waiting(stage), boss(), somebody("lena", "approver_legal")
    run_sql(TO_LENA)
    QUEUES.forget()
    changed(lambda: ACTS[act](run, lena), WORDS, Forbidden)
    known_as("finance_po", "approver_finance")
    changed(lambda: ACTS[act](run, FIONA), WORDS, Forbidden)
    QUEUES.forget()
    acts.change("finance_po", QueueChangeBody(role="approver_finance", justification="set right"), by=admin)
    QUEUES.forget()
    ACTS[act](run, FIONA)
    assert verify(run.pk).problems == []


@pytest.mark.parametrize("act", ACTS)
def test_an_operator_needs_no_queue(stage: Stage, act: str) -> None:
    run = waiting(stage)
    run_sql(TO_LENA)
    ACTS[act](run, OLGA)
    assert verify(run.pk).problems == []


@pytest.mark.parametrize("act", ["pause", "cancel"])
def test_someone_who_started_a_run_stops_it_whatever_its_queues_say(stage: Stage, act: str) -> None:
    owner = replace(SHOP, person=somebody("owner", "integrator").person)
    run = lifecycle.start(asking().graph_id, {}, by=owner)
    assert stage.drive() == "parked"
    run_sql(TO_LENA)
    ACTS[act](run, owner)
    assert Run.objects.get(pk=run.pk).state == {"pause": "paused", "cancel": "cancelled"}[act]


@pytest.mark.parametrize("act", ["pause", "cancel"])
def test_a_row_that_names_every_integrator_lets_none_stop_others_runs(stage: Stage, act: str) -> None:
    run = waiting(stage)
    run_sql("UPDATE approvals_queue SET role = 'integrator' WHERE name = 'finance_po'")
    QUEUES.forget()
    other = replace(SHOP, name="other", person=somebody("other", "integrator").person)
    changed(lambda: ACTS[act](run, other), WORDS, Forbidden)


@pytest.mark.parametrize("act", ACTS)
def test_a_queue_that_was_given_to_others_in_this_moment_is_theirs(stage: Stage, act: str) -> None:
    """The cache may be seconds old; the action checks the current row."""
    run, admin = waiting(stage), boss()
    acts.change("finance_po", QueueChangeBody(role="approver_legal", justification=WHY), by=admin)
    known_as("finance_po", "approver_finance")
    changed(lambda: ACTS[act](run, FIONA), "Only approver_legal", Forbidden)


def test_a_question_to_a_role_by_its_name_needs_no_queue(stage: Stage, tools: Toolbox) -> None:
    Group.objects.get_or_create(name="approver_refunds")
    run = waiting(stage, "approver_refunds")
    answer(run, somebody("rita", "approver_refunds"))
    assert stage.drive() == "completed"
