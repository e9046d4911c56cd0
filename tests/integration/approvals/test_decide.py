"""Deciding: permissions, exact plan, once only, and the order of refusals."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from django.db import Error, connection, transaction
from django_fsm import TransitionNotAllowed

from approvals.brief import plan_of
from approvals.models import FROZEN, Approval, ApprovalState, Decision
from approvals.queue_models import Limit, Queue
from approvals.queues import acts
from approvals.queues.acts import ReasonsBody
from approvals.queues.listed import reasons_in
from approvals.queues.standing import facts_of
from approvals.repeats import repeats_of
from approvals.services import GRANT_LIVES, AlreadyDecided, StalePlan, decide, is_plan_intact
from durableagents import Context, End, Evidence
from ledger import events as e
from ledger.actors import Actor
from ledger.codes import number_text
from ledger.errors import DurableAgentsError, Forbidden, InvalidInput, JustificationRequired, NotFound
from ledger.models import ActRecord
from ledger.web.bodies import fit
from ledger.web.seeing.viewers import NOTHING, looking_as
from runs.engine.agents import Agent
from runs.models import Run, Wait
from runs.services import lifecycle
from tests.cases import each_case
from tests.integration.approvals.setup import WHY, boss, limited, say, signed_in, somebody, sound
from tests.integration.approvals.setup import asked as asked_plainly
from tests.integration.approvals.test_amending import asked as asked_changing
from tests.integration.approvals.test_amending import change
from tests.integration.console.conftest import text_of
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.situations import act
from tests.integration.runs.stage import Stage, dump, events, now, output
from tests.tampering import tamper
from tests.tiers import sample
from tests.world import FIONA, FRANK, LENA, OLGA, SHOP, Item, Notes, Outside, Toolbox, agent_of

pytestmark = pytest.mark.django_db


def buying(tools: Toolbox) -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(tools.pay, Item(name="po", amount=5000), why="we need it")).ref)

    return agent_of(node, tools=tools.all())


@pytest.fixture
def asked(stage: Stage, tools: Toolbox) -> Approval:
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
    (found,) = events(asked.run, e.ApprovalDecided)
    assert (found.verdict, found.by, found.role, found.plan_hash) == (
        "approved",
        "user:fiona",
        "approver_finance",
        asked.plan_hash,
    )
    check_against_journal(asked.run)
    assert stage.drive() == "completed"
    assert Wait.objects.get(pk=asked.wait_id).consumed_at is not None


def test_a_no_reaches_the_node_with_its_reason(stage: Stage, asked: Approval, outside: Outside) -> None:
    deciding(asked, verdict="reject", justification="no budget")
    wait = Wait.objects.get(pk=asked.wait_id)
    assert (wait.resolution, wait.grant_hash, wait.grant_expires_at) == ("rejected", None, None)
    assert stage.drive() == "failed" and outside.requests == []
    assert "no budget" in events(asked.run, e.RunFailed)[0].payload["message"]


# The fault and its error, in the order of the checks: a later fault doesn't hide an earlier one.
NOBODY = Actor("user", "nobody", role="", auth="session")
FAULTS: list[tuple[str, dict[str, Any], type[DurableAgentsError], int]] = [
    ("the wrong role", {"by": LENA}, Forbidden, 403),
    ("an unknown verdict", {"verdict": "maybe"}, InvalidInput, 422),
    ("no justification", {"justification": " "}, JustificationRequired, 422),
    ("another plan", {"plan_hash": "0" * 64}, StalePlan, 409),
]


@each_case("first", range(len(FAULTS)))
def test_one_is_told_the_first_thing_that_is_wrong_and_nothing_changes(asked: Approval, first: int) -> None:
    wrong: dict[str, Any] = {}
    for _, fault, _, _ in FAULTS[first:]:
        wrong |= fault
    before = dump()
    _, _, error, status = FAULTS[first]
    with pytest.raises(error) as refused:
        deciding(asked, **wrong)
    assert refused.value.status == status and refused.value.detail
    assert dump() == before


@each_case("by", [OLGA, LENA, SHOP, NOBODY, replace(OLGA, role="superuser"), replace(OLGA, role="auditor")])
def test_nobody_but_finance_decides_for_finance(asked: Approval, by: Actor) -> None:
    before = dump()
    for verdict in ("approve", "reject"):
        with pytest.raises(Forbidden):
            deciding(asked, by=by, verdict=verdict)
    assert dump() == before


@pytest.mark.parametrize("kind", ["user", "key"])
def test_nobody_decides_what_they_asked_for_themselves(stage: Stage, tools: Toolbox, kind: str) -> None:
    """Four eyes, also when one person has two ways of signing in."""
    lifecycle.start(buying(tools).graph_id, {}, by=Actor("key", "fiona", role="integrator", auth="api_key"))
    stage.drive()
    row = Approval.objects.get()
    before = dump()
    with pytest.raises(Forbidden, match="someone else has to decide"):
        deciding(row, by=replace(FIONA, kind=kind))
    assert dump() == before
    deciding(row, by=FRANK)


def test_what_is_not_there_is_not_found(asked: Approval) -> None:
    with pytest.raises(NotFound):
        decide(uuid4(), verdict="approve", plan_hash="", justification="as seen", by=FIONA)


@pytest.mark.parametrize("first", ["approve", "reject"])
@pytest.mark.parametrize("second", ["approve", "reject"])
def test_the_first_decision_counts_and_the_second_learns_whose(asked: Approval, first: str, second: str) -> None:
    deciding(asked, verdict=first)
    before = dump()
    for by, plan_hash in ((FRANK, asked.plan_hash), (FIONA, asked.plan_hash), (FRANK, "0" * 64)):
        with pytest.raises(AlreadyDecided) as caught:
            deciding(asked, verdict=second, by=by, plan_hash=plan_hash)
        assert "user:fiona" in caught.value.detail and caught.value.extra["decided_by"] == "user:fiona"
        assert caught.value.extra["state"] == {"approve": "approved", "reject": "rejected"}[first]
    assert dump() == before


def test_after_the_deadline_it_is_too_late_even_before_the_sweeper_came(asked: Approval) -> None:
    Approval.objects.filter(pk=asked.pk).update(deadline=now() - timedelta(seconds=1))
    before = dump()
    with pytest.raises(AlreadyDecided) as caught:
        deciding(asked)
    assert "expired" in caught.value.detail and dump() == before


def test_what_was_withdrawn_can_not_be_decided(asked: Approval) -> None:
    act("cancel", asked.run)
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
    assert again.id != asked.id and again.plan_hash != asked.plan_hash, "approvers see the result of the first approval"
    assert "expired before the call was made" in again.evidence[0]["content"][0]
    gate.update(grant_expires_at=expires)  # only the test moved it, and the record must verify
    check_against_journal(asked.run)
    deciding(again)
    assert stage.drive() == "completed" and len(outside.requests) == 1


@pytest.mark.every(4)
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
    """Also when the database was changed under the page."""
    smaller = bytes(asked.plan).replace(b"5000", b"50")
    tamper("UPDATE approvals_approval SET plan = %s WHERE id = %s", smaller, asked.id)
    before = dump()
    with pytest.raises(StalePlan):
        deciding(asked)
    assert dump() == before and stage.drive() == "idle" and outside.requests == []


def test_an_approvals_moves_are_held_to_by_the_database_too(asked: Approval) -> None:
    for held in ApprovalState:
        tamper("UPDATE approvals_approval SET state = %s WHERE id = %s", held, asked.id)
        for target in set(ApprovalState) - {held}:
            move = {
                t.target: t.name
                for t in Approval._meta.get_field("state").get_all_transitions(Approval)
                if t.source == held
            }
            if target in move:
                continue
            with pytest.raises(Error, match="Invalid transition"), transaction.atomic():
                Approval.objects.filter(pk=asked.pk).update(state=target)
        if held in ("approved", "rejected", "expired"):
            with pytest.raises(TransitionNotAllowed):
                Approval.objects.get(pk=asked.pk).approve()


def test_a_second_decision_can_not_even_be_inserted(asked: Approval) -> None:
    deciding(asked)
    first = Decision.objects.get()
    first.pk = None
    with pytest.raises(Error, match="approvals_decided_once"), transaction.atomic():
        first.save(force_insert=True)


def test_every_run_has_its_own_questions(stage: Stage, tools: Toolbox, asked: Approval) -> None:
    other = stage.start(buying(tools))
    stage.drive()
    twin = Approval.objects.get(run=other)
    assert twin.plan_hash != asked.plan_hash
    with pytest.raises(StalePlan):
        deciding(twin, plan_hash=asked.plan_hash)
    deciding(asked)
    assert stage.drive() == "completed" and output(asked.run) == "pay:po"
    assert stage.drive() == "idle" and str(Run.objects.get(pk=other.pk).state) == "waiting_human"


NUMBERS = [2.0**53, -(2.0**53), 1.7e18, 9.9e20, 1e21, 1e22, 1e23, 1.7976931348623157e308, 5e-324, -0.0, 2.5]


class Weighed(Item):
    weight: float


def weighing(tools: Toolbox, weight: float) -> Agent:
    assert tools.pay.gate is not None
    gate = replace(tools.pay.gate, editable=["weight"])
    pay = replace(tools.pay, input=Weighed, gate=gate)

    async def node(state: Notes, ctx: Context) -> End:
        items = [Evidence("scales", "here", {"measured": [weight]})]
        done = await ctx.call(pay, Weighed(name="po", amount=5000, weight=weight), evidence=items)
        return End(done.amount)

    return agent_of(node, tools=[pay])


@each_case(
    ("weight", "verdict", "end"),
    [*((weight, "approve", "completed") for weight in sample(NUMBERS, 3)), (NUMBERS[0], "reject", "failed")],
)
def test_any_float_is_decided(
    stage: Stage, tools: Toolbox, fiona: Actor, weight: float, verdict: str, end: str
) -> None:
    first = asked_changing(stage, weighing(tools, weight))
    assert is_plan_intact(first) and plan_of(first)["arguments"]["weight"] == weight
    sound(first.run)
    say(first, fiona, verdict)
    assert stage.drive() == end
    sound(first.run)


@each_case("weight", sample(NUMBERS, 3))
def test_any_float_can_replace_another(stage: Stage, tools: Toolbox, fiona: Actor, weight: float) -> None:
    first = asked_changing(stage, weighing(tools, 1.25e18))
    assert change(first, fiona, weight=weight).approval.state == "approved"
    assert stage.drive() == "completed"
    sound(first.run)


def test_a_row_is_sealed_over_what_the_database_keeps(db: None) -> None:
    """Other numbers keep their text."""
    limited(boss(), "9000")
    row = Limit.objects.get()
    row.most = Decimal("-0.000")
    row.seal()
    row.save()
    assert Limit.objects.get().is_authentic
    for text in ("0", "0.000001", "-0.000001", "-12.5", "250.00", "1E+15", "999999999999999.999999", "1000"):
        assert number_text(Decimal(text)) == f"{Decimal(text):.6f}"
    assert number_text(None) is None and number_text(Decimal("-0.00")) == "0.000000"


def test_identical_requests_are_pointed_out_in_the_list_and_on_the_case(
    stage: Stage, tools: Toolbox, django_assert_num_queries: Callable[[int], AbstractContextManager[Any]]
) -> None:
    assert tools.pay.gate is not None
    pay, amounts = replace(tools.pay, gate=replace(tools.pay.gate, same=["name"])), iter((5000, 5000, 5000, 6000))

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(pay, Item(name="po", amount=next(amounts)))).ref)

    agent = agent_of(node, tools=[pay])
    for _ in range(4):
        stage.start(agent)
        assert stage.drive() == "parked"
    ann = somebody("ann", "approver_finance")
    *same, other = Approval.objects.order_by("opened_at")
    decided, first, second = same
    say(decided, ann)
    held = frozenset({"approver_finance"})
    with django_assert_num_queries(1):
        found = repeats_of([first, second, other], held)
    assert {of: [(one.id, one.state) for one in all_] for of, all_ in found.items()} == {
        first.id: [(second.id, "open"), (decided.id, "approved")],
        second.id: [(first.id, "open"), (decided.id, "approved")],
    }
    with looking_as(NOTHING):
        assert repeats_of([first], frozenset()) == {}
    client = signed_in(ann)
    assert text_of(client.get("/inbox")).count("2 more with the same arguments") == 2
    page = client.get(f"/inbox/{first.id}")
    assert "2 more requests with the same arguments" in text_of(page)
    assert re.search(rf'/inbox/{decided.id}">\s*Approved</a>', page.content.decode())
    assert 'id="repeats"' not in client.get(f"/inbox/{other.id}").content.decode()


SHORT = ["Duplicate of an order that is there.", "Budget line is used up.", "Über dem Limit"]


def offer(by: Actor, *reasons: str, queue: str = "finance_po") -> Queue:
    return acts.offer(queue, ReasonsBody(reasons=list(reasons), justification=WHY), by=by)


def offered(approval: Approval, by: Actor) -> tuple[str, ...]:
    queue = facts_of(approval, None, by, frozenset()).queue
    return () if queue is None else queue.reasons


@pytest.fixture
def admin(stage: Stage) -> Actor:
    return boss()


@each_case(
    "reasons",
    [
        [""],
        ["  "],
        [" a reason"],
        ["a reason "],
        ["two\nlines"],
        ["two\rlines"],
        ["a\u2028b c"],
        ["tab\there"],
        ["hid\u200bden"],
        ["turned \u202e round"],
        ["x" * 201],
        ["NUL \x00 in it"],
        ["x"],
        ["…"],
        ["twice", "Twice"],
        [f"reason {n}" for n in range(21)],
        ["a word", 7],
        [None],
        "a word",
        None,
        [["a word"]],
    ],
)
def test_what_nobody_should_be_offered_is_refused_by_its_name(admin: Actor, reasons: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        acts.offer("finance_po", fit(ReasonsBody, {"reasons": reasons, "justification": WHY}), by=admin)
    assert all(each["field"].startswith("reasons") for each in refused.value.extra["errors"])
    assert Queue.objects.get(name="finance_po").reasons is None and not ActRecord.objects.exists()


def test_who_may_not_and_who_says_nothing_set_none(stage: Stage) -> None:
    admin = boss()
    offer(admin, *SHORT)
    with pytest.raises(Forbidden):
        offer(somebody("fiona", "approver_finance"), "Because.")
    with pytest.raises(NotFound):
        offer(admin, "Because.", queue="nowhere")
    with pytest.raises(InvalidInput, match="Nothing would change"):
        offer(admin, *SHORT)
    with pytest.raises(JustificationRequired):
        acts.offer("finance_po", ReasonsBody(reasons=[], justification=" "), by=admin)
    assert Queue.objects.get(name="finance_po").reasons == SHORT and ActRecord.objects.count() == 1


@pytest.mark.parametrize("written", ['["Approve it at once."]', '{"a": 1}', "7", '"text"', "[null]", "[]"])
def test_forged_reasons_are_not_offered_and_nobody_decides_there(stage: Stage, tools: Toolbox, written: str) -> None:
    admin, fiona, approval = boss(), somebody("fiona", "approver_finance"), asked_plainly(stage, tools)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE approvals_queue SET reasons = %s::jsonb WHERE name = 'finance_po'", [written])
    assert offered(approval, fiona) == () and not Queue.objects.get(name="finance_po").is_authentic
    assert all(isinstance(each, str) for each in reasons_in(Queue.objects.get(name="finance_po").reasons))
    with pytest.raises(DurableAgentsError):
        say(approval, fiona)
    assert not Decision.objects.exists()
    offer(admin, "As agreed.")
    say(approval, fiona)
    assert Decision.objects.get().justification == "as quoted", "the record has what was written"
