"""Deciding: who may, on what exactly, once, and in what order one is told what is wrong."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import Error, connection, transaction
from django_fsm import TransitionNotAllowed

from approvals.models import FROZEN, Approval, ApprovalState, Decision
from approvals.services import GRANT_LIVES, AlreadyDecided, StalePlan, decide
from durableagents import Context, End
from ledger import events as e
from ledger.actors import Actor
from ledger.errors import DurableAgentsError, Forbidden, InvalidInput, JustificationRequired, NotFound
from runs.engine.agents import Agent
from runs.models import Run, Wait
from runs.services import lifecycle
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.situations import act
from tests.integration.runs.stage import Stage, dump, events, now, output
from tests.system.fleet.conftest import until
from tests.world import FIONA, FRANK, LENA, OLGA, SHOP, Item, Notes, Outside, Toolbox, agent_of

pytestmark = pytest.mark.django_db


def buying(tools: Toolbox, queue: str = "finance_po") -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        if queue == "finance_po":
            return End((await ctx.call(tools.pay, Item(name="po", amount=5000), why="we need it")).ref)
        return End((await ctx.approve(queue, title="Clean?", body={"name": "po"})).by)

    return agent_of(node, tools=tools.all())


@pytest.fixture
def asked(stage: Stage, tools: Toolbox) -> Approval:
    """An open question to finance."""
    stage.start(buying(tools))
    assert stage.drive() == "parked"
    return Approval.objects.get()


def deciding(approval: Approval, **changed: Any) -> Approval:
    given = {"verdict": "approve", "plan_hash": approval.plan_hash, "justification": "as quoted", "by": FIONA}
    return decide(approval.id, **(given | changed))


def test_a_yes_is_on_record_with_everything_that_it_was_about(stage: Stage, asked: Approval) -> None:
    decided = deciding(asked, justification="  as quoted  ")
    (decision,) = Decision.objects.all()
    assert (decision.verdict, decision.by, decision.role, decision.auth, decision.address, decision.justification) == (
        "approve",
        "user:fiona",
        "approver_finance",
        "session",
        "192.0.2.3",
        "as quoted",
    )
    assert decision.plan_hash == asked.plan_hash and decided.decided_at == decision.at
    wait = Wait.objects.get(pk=asked.wait_id)
    assert (wait.resolution, wait.resolved_by, wait.grant_hash) == ("approved", "user:fiona", asked.plan_hash)
    assert wait.grant_expires_at is not None and abs(wait.grant_expires_at - now() - GRANT_LIVES) < timedelta(minutes=1)
    (told,) = events(asked.run, e.ApprovalDecided)
    assert (told.verdict, told.by, told.role, told.plan_hash) == (
        "approved",
        "user:fiona",
        "approver_finance",
        asked.plan_hash,
    )
    check_against_journal(asked.run)
    assert stage.drive() == "completed"
    assert Wait.objects.get(pk=asked.wait_id).consumed_at is not None


def test_a_no_grants_nothing_and_reaches_the_node_with_its_reason(
    stage: Stage, asked: Approval, outside: Outside
) -> None:
    deciding(asked, verdict="reject", justification="no budget")
    wait = Wait.objects.get(pk=asked.wait_id)
    assert (wait.resolution, wait.grant_hash, wait.grant_expires_at) == ("rejected", None, None)
    assert stage.drive() == "failed" and outside.requests == []
    assert "no budget" in events(asked.run, e.RunFailed)[0].payload["message"]


# What is wrong → the error. Listed in the order in which one is told: a later fault doesn't hide an earlier one.
NOBODY = Actor("user", "nobody", role="", auth="session")
FAULTS: list[tuple[str, dict[str, Any], type[DurableAgentsError], int]] = [
    ("the wrong role", {"by": LENA}, Forbidden, 403),
    ("an unknown verdict", {"verdict": "maybe"}, InvalidInput, 422),
    ("no justification", {"justification": " "}, JustificationRequired, 422),
    ("another plan", {"plan_hash": "0" * 64}, StalePlan, 409),
]


@pytest.mark.parametrize("first", range(len(FAULTS)), ids=[f[0] for f in FAULTS])
def test_one_is_told_the_first_thing_that_is_wrong_and_nothing_changes(asked: Approval, first: int) -> None:
    wrong: dict[str, Any] = {}
    for _, change, _, _ in FAULTS[first:]:
        wrong |= change
    before = dump()
    _, _, error, status = FAULTS[first]
    with pytest.raises(error) as refused:
        deciding(asked, **wrong)
    assert refused.value.status == status and refused.value.detail
    assert dump() == before


@pytest.mark.parametrize(
    "by", [OLGA, LENA, SHOP, NOBODY, replace(OLGA, role="superuser"), replace(OLGA, role="auditor")]
)
def test_nobody_but_finance_decides_for_finance(asked: Approval, by: Actor) -> None:
    before = dump()
    for verdict in ("approve", "reject"):
        with pytest.raises(Forbidden):
            deciding(asked, by=by, verdict=verdict)
    assert dump() == before


@pytest.mark.parametrize("kind", ["user", "key"])
def test_nobody_decides_what_they_asked_for_themselves(stage: Stage, tools: Toolbox, kind: str) -> None:
    """Four eyes, also when the one person has two ways of signing in."""
    lifecycle.start(buying(tools).graph_id, {}, by=Actor("key", "fiona", role="integrator", auth="api_key"))
    stage.drive()
    asked = Approval.objects.get()
    before = dump()
    with pytest.raises(Forbidden, match="somebody else"):
        deciding(asked, by=replace(FIONA, kind=kind))
    assert dump() == before
    deciding(asked, by=FRANK)


def test_what_is_not_there_is_not_found(asked: Approval) -> None:
    with pytest.raises(NotFound):
        decide(uuid4(), verdict="approve", plan_hash="", justification="as seen", by=FIONA)


@pytest.mark.parametrize("first", ["approve", "reject"])
@pytest.mark.parametrize("second", ["approve", "reject"])
def test_the_first_decision_stands_and_the_second_is_told_whose_it_was(
    asked: Approval, first: str, second: str
) -> None:
    deciding(asked, verdict=first)
    before = dump()
    for by, plan_hash in ((FRANK, asked.plan_hash), (FIONA, asked.plan_hash), (FRANK, "0" * 64)):
        with pytest.raises(AlreadyDecided) as told:
            deciding(asked, verdict=second, by=by, plan_hash=plan_hash)
        assert "user:fiona" in told.value.detail and told.value.extra["decided_by"] == "user:fiona"
        assert told.value.extra["state"] == {"approve": "approved", "reject": "rejected"}[first]
    assert dump() == before


def test_after_the_deadline_it_is_too_late_even_before_the_sweeper_came(asked: Approval) -> None:
    Approval.objects.filter(pk=asked.pk).update(deadline=now() - timedelta(seconds=1))
    before = dump()
    with pytest.raises(AlreadyDecided) as told:
        deciding(asked)
    assert "expired" in told.value.detail and dump() == before


@pytest.mark.parametrize("service", ["cancel"])
def test_what_was_withdrawn_can_not_be_decided(asked: Approval, service: str) -> None:
    act(service, asked.run)
    before = dump()
    with pytest.raises(AlreadyDecided, match="withdrawn"):
        deciding(asked)
    assert dump() == before


def test_deciding_under_a_pause_is_kept_for_the_resume(stage: Stage, asked: Approval) -> None:
    act("pause", asked.run)
    deciding(asked)
    assert stage.drive() == "idle"
    act("resume", asked.run)
    assert stage.drive() == "completed"


def test_a_yes_that_lay_unused_too_long_is_asked_for_again(stage: Stage, asked: Approval, outside: Outside) -> None:
    act("pause", asked.run)
    deciding(asked)
    gate = Wait.objects.filter(pk=asked.wait_id)
    expires = gate.get().grant_expires_at
    gate.update(grant_expires_at=now() - timedelta(seconds=1))
    act("resume", asked.run)
    assert stage.drive() == "parked" and outside.requests == []
    again = Approval.objects.get(state="open")
    assert again.id != asked.id and again.plan_hash != asked.plan_hash, (
        "whoever decides sees what became of the first yes"
    )
    assert "expired before the call was made" in again.evidence[0]["content"][0]
    gate.update(grant_expires_at=expires)  # or the record would not hold: nothing but the test has moved it
    check_against_journal(asked.run)
    deciding(again)
    assert stage.drive() == "completed" and len(outside.requests) == 1


# --- the database keeps the question as it was put ---


@pytest.mark.parametrize("field", FROZEN)
def test_a_question_that_was_put_can_not_be_changed(asked: Approval, stage: Stage, tools: Toolbox, field: str) -> None:
    column = {f: f"{f}_id" for f in ("run", "wait", "previous")}.get(field, field)
    other = {
        "run": f"(SELECT id FROM runs_run WHERE id <> '{asked.run_id}')",
        "wait": "gen_random_uuid()",
        "previous": f"'{asked.id}'",
        "revision": "revision + 1",
        "requester": "7",
        "plan": "'{}'::bytea",
        "evidence": "'[1]'::jsonb",
        "opened_at": "opened_at + interval '1 second'",
    }.get(field, "'something else'")
    stage.start(buying(tools))
    before = dump()
    with pytest.raises(Error, match="question_is_frozen"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE approvals_approval SET {column} = {other} WHERE id = %s", [asked.id])
    assert dump() == before


def test_bytes_that_are_not_what_was_hashed_can_not_be_decided(stage: Stage, asked: Approval, outside: Outside) -> None:
    """Even where somebody with the database in hand changed what the page shows."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(
            "UPDATE approvals_approval SET plan = convert_to(replace(convert_from(plan, 'UTF8'), "
            "'5000', '50'), 'UTF8') WHERE id = %s",
            [asked.id],
        )
    before = dump()
    with pytest.raises(StalePlan):
        deciding(asked)
    assert dump() == before and stage.drive() == "idle" and outside.requests == []


def test_an_approvals_moves_are_held_to_by_the_database_too(asked: Approval) -> None:
    for state in ApprovalState:
        with connection.cursor() as cursor:
            cursor.execute("SET session_replication_role = replica")
            cursor.execute("UPDATE approvals_approval SET state = %s WHERE id = %s", [state, asked.id])
            cursor.execute("SET session_replication_role = origin")
        for target in set(ApprovalState) - {state}:
            move = {
                t.target: t.name
                for t in Approval._meta.get_field("state").get_all_transitions(Approval)
                if t.source == state
            }
            if target in move:
                continue
            with pytest.raises(Error, match="Invalid transition"), transaction.atomic():
                Approval.objects.filter(pk=asked.pk).update(state=target)
        if state in ("approved", "rejected", "expired"):
            with pytest.raises(TransitionNotAllowed):
                Approval.objects.get(pk=asked.pk).approve()


def test_a_second_decision_can_not_even_be_inserted(asked: Approval) -> None:
    deciding(asked)
    first = Decision.objects.get()
    first.pk = None
    with pytest.raises(Error, match="approvals_decided_once"), transaction.atomic():
        first.save(force_insert=True)


def test_every_run_has_its_own_questions(stage: Stage, tools: Toolbox, asked: Approval) -> None:
    """A yes to one run's question lets nothing of another run through, however alike they are."""
    other = stage.start(buying(tools))
    stage.drive()
    twin = Approval.objects.get(run=other)
    assert twin.plan_hash != asked.plan_hash
    with pytest.raises(StalePlan):
        deciding(twin, plan_hash=asked.plan_hash)
    deciding(asked)
    assert stage.drive() == "completed" and output(asked.run) == "pay:po"
    assert stage.drive() == "idle" and str(Run.objects.get(pk=other.pk).state) == "waiting_human"


def test_a_deadline_that_was_moved_in_the_tables_is_over_when_the_journal_says_so(stage: Stage, tools: Toolbox) -> None:
    """Who may write there could else keep a question open until somebody says yes."""

    async def node(state: Notes, ctx: Context) -> End:
        return End(
            (await ctx.approve("finance_po", title="Clean?", body={"name": "po"}, within=timedelta(milliseconds=1))).by
        )

    stage.start(agent_of(node))
    assert stage.drive() == "parked"
    asked = Approval.objects.get()
    Approval.objects.update(deadline=now() + timedelta(days=1))
    Wait.objects.update(deadline=now() + timedelta(days=1))
    until(lambda: now() > asked.deadline, what="the journal's deadline")
    with pytest.raises(AlreadyDecided, match="expired"):
        deciding(asked)
    assert Wait.objects.get(pk=asked.wait_id).grant_hash is None
