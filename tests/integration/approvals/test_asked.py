"""A question goes to a queue that is open at that moment, or an operator is told at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from django.contrib.auth.models import Group
from django.db import connection

from approvals.models import Approval
from approvals.queue_models import Queue
from approvals.queues import acts
from approvals.queues.acts import QueueBody
from durableagents import Context, End
from ledger.actors import Actor
from ledger.models import Event
from ledger.verification.runs import verify
from runs.engine.agents import Agent
from runs.journal.asked.queues import QUEUES
from runs.models import Run, Wait
from runs.services import lifecycle, questions
from tests.integration.approvals.setup import WHY, boss, known_as, one_after_the_other, somebody
from tests.integration.runs.stage import Stage, at_once
from tests.tiers import many
from tests.world import OLGA, Item, Notes, agent_of

pytestmark = pytest.mark.django_db
KINDS = ["approve", "ask"]
WAYS: dict[str, Callable[..., Queue]] = {"closed": acts.close, "removed": acts.remove}


def asking(kind: str) -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        if kind == "ask":
            return End((await ctx.ask("refunds", title="How many?", schema=Item)).name)
        return End((await ctx.approve("refunds", title="Pay back?")).by)

    return agent_of(node)


def added(admin: Actor) -> None:
    Group.objects.get_or_create(name="approver_refunds")
    body = QueueBody(name="refunds", title="Refunds", role="approver_refunds", justification=WHY)
    acts.create(body, by=admin)


def known_as_open() -> None:
    """Let the process cache the queue as open, like a worker that read it a moment ago."""
    known_as("refunds", "approver_refunds")


def must_have_asked_nobody(run: Run) -> None:
    (wait,) = Wait.objects.filter(run=run)
    assert wait.kind == "operator" and wait.detail["reason"] == "unknown_queue"
    assert not Approval.objects.exists() and verify(run.pk).problems == []
    assert "ApprovalRequested" not in set(Event.objects.filter(run_id=run.pk).values_list("kind", flat=True))


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_worker_knew_a_moment_ago_opens_no_question(stage: Stage, kind: str, how: str) -> None:
    admin = boss()
    added(admin)
    run = stage.start(asking(kind))
    WAYS[how]("refunds", by=admin, justification=WHY)
    known_as_open()
    assert stage.drive() == "operator"
    must_have_asked_nobody(run)
    QUEUES.forget()
    if how == "removed":
        added(admin)
    else:
        acts.open_again("refunds", by=admin, justification=WHY)
    lifecycle.retry(run.pk, by=OLGA, justification="it is there again")
    assert stage.drive() == "parked" and Wait.objects.filter(run=run, kind__in=("approval", "input")).exists()


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_question_waits_for_a_removal_under_way_and_is_refused(stage: Stage, kind: str, how: str) -> None:
    admin = boss()
    added(admin)
    run = stage.start(asking(kind))
    known_as_open()
    removed = partial(WAYS[how], "refunds", by=admin, justification=WHY)
    assert one_after_the_other(removed, stage.drive) == "operator"
    must_have_asked_nobody(run)


@pytest.mark.parametrize("kind", KINDS)
def test_a_question_and_a_removal_at_once_come_one_after_the_other(stage: Stage, kind: str) -> None:
    """Many times: either it is asked and the queue stays, or the queue is gone and nobody was asked."""
    admin, seen = boss(), set[str]()
    for _ in range(many(12, 4)):
        added(admin)
        run = stage.start(asking(kind))
        known_as_open()
        how, removed = at_once(stage.drive, lambda: acts.remove("refunds", by=admin, justification=WHY))
        QUEUES.forget()
        seen.add(how)
        if how == "parked":
            assert isinstance(removed, acts.QueueInUse), removed
            lifecycle.cancel(run.pk, by=OLGA, justification=WHY)
            assert stage.drive() in ("cancelled", "idle")
            acts.remove("refunds", by=admin, justification=WHY)
        else:
            assert how == "operator" and isinstance(removed, Queue), (how, removed)
            assert not Wait.objects.filter(run=run, kind__in=("approval", "input")).exists()
        assert verify(run.pk).problems == []
    assert seen <= {"parked", "operator"}


def test_who_answers_may_do_so_once_the_queue_is_theirs_by_its_row(stage: Stage) -> None:
    admin = boss()
    added(admin)
    run = stage.start(asking("ask"))
    assert stage.drive() == "parked"
    rita, wait = somebody("rita", "approver_refunds"), Wait.objects.get(run=run)
    questions.answer(run.pk, wait.pk, {"name": "chairs", "amount": 3}, by=rita)
    assert stage.drive() == "completed" and verify(run.pk).problems == []
    with connection.cursor() as cursor:
        cursor.execute("SELECT approvals_may_ask('approver_refunds'), approvals_may_ask('refunds')")
        assert cursor.fetchone() == (True, True)
