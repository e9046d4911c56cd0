"""Stopping runs: operators any, approvers those that reached their queues, integrators their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.db import Error, transaction
from hypothesis import given
from hypothesis import strategies as st

from approvals.models import Approval
from approvals.services import decide
from durableagents import Context, End
from ledger.actors import Actor
from ledger.errors import Forbidden
from ledger.models import OverrideRecord
from ledger.web.roles import ROLES
from runs.engine.agents import Agent
from runs.models import Run
from runs.services import lifecycle, reconciling
from runs.services.authority import SETTLING, STOPPING, SteeringAuthority, standings, steering_authority
from tests.cases import each_case
from tests.integration.approvals.setup import known_as
from tests.integration.runs.stage import Stage, dump
from tests.world import FIONA, FRANK, LENA, OLGA, SHOP, Item, Notes, Outside, Toolbox, agent_of

pytestmark = pytest.mark.django_db
OWNER = replace(SHOP, person=41)
OTHER_SHOP = Actor("key", "other", role="integrator", auth="api_key", person=42)
AUDITOR = Actor("user", "ada", role="auditor", auth="session", person=43)
SUPERUSER = Actor("user", "root", role="", auth="session", person=1)


def buying(tools: Toolbox) -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        paid = await ctx.call(tools.pay, Item(name="po", amount=5000))
        await ctx.sleep(3600)
        return End(paid.ref)

    return agent_of(node, tools=tools.all())


@pytest.fixture
def waiting(stage: Stage, tools: Toolbox) -> Run:
    run = lifecycle.start(buying(tools).graph_id, {}, by=OWNER)
    assert stage.drive() == "parked"
    return Run.objects.get(pk=run.pk)


MAY = [OLGA, FIONA, FRANK, OWNER]
MAY_NOT = [
    LENA,
    OTHER_SHOP,
    AUDITOR,
    SUPERUSER,
    replace(SHOP, person=None),
    replace(OWNER, role="auditor"),
    replace(FIONA, role="superuser"),
]


@pytest.mark.parametrize("by", MAY, ids=lambda by: by.ref)
def test_someone_who_may_stop_it_leaves_a_record_for_each_act(waiting: Run, by: Actor) -> None:
    for action in ("pause", "resume", "cancel"):
        getattr(lifecycle, action)(waiting.pk, by=by, justification="month end")
    records = list(OverrideRecord.objects.filter(run_id=waiting.pk).order_by("id"))
    assert [r.action for r in records] == ["pause", "resume", "cancel"]
    assert {(r.by, r.role, r.person, r.justification) for r in records} == {(by.ref, by.role, by.person, "month end")}


@each_case("by", MAY_NOT)
@each_case("action", STOPPING)
def test_nobody_else_stops_it_and_nothing_changes(waiting: Run, by: Actor, action: str) -> None:
    before = dump()
    with pytest.raises(Forbidden, match=rf"may {action} a run"):
        getattr(lifecycle, action)(waiting.pk, by=by, justification="month end")
    assert dump() == before


@each_case("by", [FIONA, LENA, OWNER, AUDITOR, SUPERUSER])
def test_retrying_and_settling_stay_an_operators(waiting: Run, by: Actor) -> None:
    before = dump()
    with pytest.raises(Forbidden, match="Only an operator may retry"):
        lifecycle.retry(waiting.pk, by=by, justification="once more")
    with pytest.raises(Forbidden, match="Only an operator may reconcile"):
        reconciling.reconcile(waiting.pk, verdict="did_not", by=by, justification="looked it up")
    assert dump() == before


def test_an_approver_may_stop_what_has_waited_at_their_queue(stage: Stage, waiting: Run, outside: Outside) -> None:
    row = Approval.objects.get()
    decide(row.id, verdict="approve", plan_hash=row.plan_hash, justification="as quoted", by=FIONA)
    assert stage.drive() == "parked" and len(outside.requests) == 1
    lifecycle.cancel(waiting.pk, by=FRANK, justification="the vendor is gone")
    assert str(Run.objects.get(pk=waiting.pk).state) == "cancelled"


def test_a_question_put_to_a_role_or_its_queue_is_waiting_at_it_too(stage: Stage, tools: Toolbox) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.ask("legal", title="How many?", schema=Item)
        return End("well")

    run = stage.start(agent_of(node, tools=tools.all()))
    assert stage.drive() == "parked"
    lifecycle.pause(run.pk, by=LENA, justification="let me see")
    with pytest.raises(Forbidden, match=r"never waited at your queue \(customer_refunds, finance_po\)"):
        lifecycle.cancel(run.pk, by=FIONA, justification="let me see")


def test_a_run_that_has_waited_at_no_queue_is_no_approvers(stage: Stage, tools: Toolbox) -> None:
    run = lifecycle.start(buying(tools).graph_id, {}, by=OWNER)
    with pytest.raises(Forbidden, match=r"never waited at your queue \(customer_refunds, finance_po\)"):
        lifecycle.pause(run.pk, by=FIONA, justification="let me see")
    with pytest.raises(Forbidden, match="you didn't start this run"):
        lifecycle.pause(run.pk, by=OTHER_SHOP, justification="let me see")


def test_many_runs_are_judged_in_one_query_as_each_alone(
    stage: Stage, tools: Toolbox, waiting: Run, django_assert_num_queries: Any
) -> None:
    fresh = lifecycle.start(buying(tools).graph_id, {}, by=OTHER_SHOP)
    with django_assert_num_queries(1):
        found = standings([waiting, fresh])
    assert found == {waiting.pk: steering_authority(waiting), fresh.pk: steering_authority(fresh)}
    assert (
        found[waiting.pk].allowed(["approver_finance"], 7) == set(STOPPING)
        and found[fresh.pk].allowed(["approver_finance"], 7) == set()
    )
    assert standings([]) == {}


@given(
    st.frozensets(st.sampled_from(ROLES)),
    st.frozensets(st.sampled_from(ROLES)),
    st.sampled_from([None, 1, 2]),
    st.sampled_from([None, 1, 2]),
)
def test_no_role_takes_a_right_away_and_auditors_have_none(
    held: frozenset[str], asked: frozenset[str], creator: int | None, person: int | None
) -> None:
    known_as("finance_po", "approver_finance", at=0)
    about = SteeringAuthority(asked, creator)
    may = about.allowed(held, person)
    assert may >= frozenset().union(*(about.allowed([role], person) for role in held))
    assert about.allowed(held - {"auditor"}, person) == may
    assert not (may & set(SETTLING)) or "operator" in held
    if held <= {"auditor"} or (held == {"integrator"} and (person is None or person != creator)):
        assert may == set()


def test_who_started_a_run_can_not_be_rewritten(waiting: Run) -> None:
    for change in ({"creator": 42}, {"created_by": "key:other"}, {"creator": None}):
        with pytest.raises(Error, match="who started a run never changes"), transaction.atomic():
            Run.objects.filter(pk=waiting.pk).update(**change)
