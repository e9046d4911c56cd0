"""Queues and limits as data: an administrator's setting counts at once, for everybody, and is recorded."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest
import rfc8785
from django.contrib.auth.models import Group
from django.db import connection, transaction

from approvals.api.present import approval_row
from approvals.authentic import authentic
from approvals.brief import plan_of
from approvals.inbox import is_above, within
from approvals.models import Approval, Decision
from approvals.queue_models import Queue
from approvals.queues import acts
from approvals.queues.acts import LiftBody, QueueBody, QueueChangeBody
from approvals.queues.labels import seed
from approvals.sameness import amount_of
from approvals.services import decide
from approvals.votes import stages_of
from durableagents import Context, End, Evidence, Rejected
from ledger import events as e
from ledger.actors import Actor
from ledger.errors import Forbidden, InvalidInput, JustificationRequired, NotFound
from ledger.models import ActRecord
from ledger.verification.runs import verify
from ledger.web.roles import OwnLimit
from runs.engine.agents import Agent
from runs.engine.canonical import canonical
from runs.journal.asked.queues import QUEUES, QueueNames, Queues
from runs.journal.digests import hasher
from tests.cases import each_case
from tests.integration.approvals.setup import WHY, asked, boss, buying, limited, say, somebody
from tests.integration.runs.stage import Stage, dump, events, in_turn
from tests.tampering import run_sql
from tests.tiers import many
from tests.world import FIONA, Item, Notes, Outside, Toolbox, agent_of

pytestmark = pytest.mark.django_db
MANY = many(64, 16)


ODD: list[Any] = [
    {"note": "line\nbreak \u2028 <script>alert(1)</script> \u202egnp.exe"},
    {"amount": 84_000, "share": 0.1, "big": 2**53 - 1, "small": -1e-7, "none": None},
    {"ключ": "значение", "🧾": ["日本", "é", "e\u0301"]},
    ["deep", [[[[["deeper"]]]]]],
    "",
]


def added(by: Actor, **more: Any) -> Queue:
    Group.objects.get_or_create(name="approver_refunds")
    given = {"name": "refunds", "title": "Refunds", "role": "approver_refunds", "justification": WHY}
    return acts.create(QueueBody(**(given | more)), by=by)


def changed(act: Callable[[], object], words: str, error: type[Exception] = InvalidInput) -> None:
    before = dump()
    with pytest.raises(error, match=words):
        act()
    assert dump() == before


def test_an_upgraded_installation_has_the_queues_it_had_and_keeps_what_was_changed(stage: Stage) -> None:
    assert {q.name: q.role for q in Queue.objects.all()} == {
        "finance_po": "approver_finance",
        "legal": "approver_legal",
        "customer_refunds": "approver_finance",
    }
    admin = boss()
    acts.change("legal", QueueChangeBody(title="Law", justification=WHY), by=admin)
    acts.close("finance_po", by=admin, justification=WHY)
    before = dump()
    seed()
    assert dump() == before
    acts.remove("legal", by=admin, justification=WHY)
    seed()
    assert "legal" not in QUEUES


def test_an_added_queue_is_asked_without_a_restart_and_decided_by_its_role(stage: Stage, tools: Toolbox) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.approve("refunds", title="Pay back?")).by)

    agent = agent_of(node)
    added(boss())
    run = stage.start(agent)
    assert stage.drive() == "parked"
    approval = Approval.objects.get(run=run)
    with pytest.raises(Forbidden, match="Only approver_refunds decides in refunds"):
        say(approval, FIONA)
    rita = somebody("rita", "approver_refunds")

    decide(approval.id, verdict="approve", plan_hash=approval.plan_hash, justification="fine by me", by=rita)
    assert stage.drive() == "completed" and verify(run.id).problems == []


def test_each_act_is_on_record_with_who_and_why_before_and_after(stage: Stage) -> None:
    admin = boss()
    added(admin)
    limited(admin, "50000", queue="refunds")
    limited(admin, "60000", queue="refunds")
    acts.lift("refunds", LiftBody(justification=WHY), by=admin)
    acts.close("refunds", by=admin, justification=WHY)
    acts.open_again("refunds", by=admin, justification=WHY)
    acts.remove("refunds", by=admin, justification=WHY)
    rows = list(ActRecord.objects.order_by("id"))
    actions = " ".join(row.action for row in rows)
    assert actions == "queue queue_limit queue_limit queue_limit_lift queue_close queue_open queue_remove"
    assert {(row.by, row.role, row.queue, row.justification) for row in rows} == {
        ("user:boss", "admin", "refunds", WHY)
    }
    assert (rows[2].before["most"], rows[2].after["most"]) == ("50000.000000", "60000")
    assert (rows[4].before["state"], rows[4].after["state"]) == ("open", "closed") and all(authentic(rows))


@pytest.mark.parametrize("who", ["operator", "approver_finance", "staff", "former"])
def test_nobody_but_an_administrator_sets_anything_up(stage: Stage, who: str) -> None:
    by = {
        "operator": lambda: somebody("olga", "operator"),
        "approver_finance": lambda: somebody("fiona", "approver_finance"),
        "staff": lambda: somebody("staff", is_staff=True),
        "former": lambda: somebody("former", is_staff=True, is_superuser=True, is_active=False),
    }[who]()
    Group.objects.create(name="approver_refunds")
    changed(lambda: added(by), "Only an administrator", Forbidden)
    changed(lambda: limited(by, "5"), "Only an administrator", Forbidden)
    changed(lambda: acts.close("legal", by=by, justification=WHY), "Only an administrator", Forbidden)
    changed(lambda: acts.remove("legal", by=by, justification=WHY), "Only an administrator", Forbidden)


@pytest.fixture
def admin(stage: Stage) -> Actor:
    return boss()


@each_case(
    ("given", "words"),
    [
        ({"name": "LEGAL"}, "name is that of the queue legal"),
        ({"name": "Refunds"}, "lower-case letters"),
        ({"name": "a:b"}, "lower-case letters"),
        ({"name": "approver_finance"}, "the name of a role"),
        ({"name": "operator"}, "the name of a role"),
        ({"role": "approver_nobody"}, "not an existing group"),
        ({"role": "operator"}, "decides nothing"),
        ({"role": "boss"}, "decides nothing"),
        ({"title": "two\nlines"}, "invisible characters"),
        ({"title": "right\u202eleft"}, "invisible characters"),
        ({"title": " "}, "is empty"),
        ({"title": "x" * 101}, "101 characters"),
        ({"currency": "usd"}, "not a currency"),
    ],
)
def test_what_can_not_be_a_queue_is_refused_by_name(admin: Actor, given: dict[str, Any], words: str) -> None:
    Group.objects.get_or_create(name="approver_refunds")
    changed(lambda: added(admin, **given), words)
    changed(lambda: added(admin, justification=" "), "needs a reason", JustificationRequired)
    changed(lambda: acts.close("nowhere", by=admin, justification=WHY), "nowhere", NotFound)


def test_someone_who_is_above_their_limit_may_only_say_no(stage: Stage, tools: Toolbox) -> None:
    admin, finn = boss(), somebody("finn", "approver_finance")
    approval = asked(stage, tools)
    limited(admin, "4999.99")
    changed(lambda: say(approval, finn), r"\$5,000 is above your limit of \$4,999.99", Forbidden)
    limited(admin, "5000", person="finn")
    say(approval, finn)
    (decision,) = Decision.objects.all()
    assert decision.standing == {
        "limits": [{"of": "person", "most": "5000.000000", "currency": "USD"}],
        "amount": {"value": "5000", "currency": "USD"},
    }
    assert authentic([decision]) == [True] and stage.drive() == "completed"
    assert verify(approval.run_id).problems == []


def test_a_closed_queue_asks_nobody_and_decides_nothing_and_says_who_must_act(stage: Stage, tools: Toolbox) -> None:
    admin = boss()
    approval = asked(stage, tools)
    acts.close("finance_po", by=admin, justification=WHY)
    changed(lambda: say(approval, FIONA), "closed to decisions: an administrator has to open it", Forbidden)
    stage.start(buying(tools, 7000))
    QUEUES.forget()
    assert stage.drive() == "operator"
    acts.open_again("finance_po", by=admin, justification=WHY)
    say(approval, FIONA)
    assert stage.drive() == "completed"


def test_a_queue_with_an_open_question_is_not_removed(stage: Stage, tools: Toolbox) -> None:
    admin = boss()
    approval = asked(stage, tools)
    changed(
        lambda: acts.remove("finance_po", by=admin, justification=WHY),
        f"can't be removed: .* is open there .approval {approval.id}",
        acts.QueueInUse,
    )
    say(approval, FIONA, "reject")
    changed(lambda: acts.remove("finance_po", by=admin, justification=WHY), "uses it: close it", acts.QueueInUse)


def test_a_question_at_a_removed_queue_says_who_must_act(stage: Stage, tools: Toolbox) -> None:
    """The question was opened while the queue was being removed."""
    boss()
    approval = asked(stage, tools)
    row = Queue.objects.get(name="finance_po")
    row.state = Queue.State.REMOVED
    row.seal()
    row.save()
    changed(lambda: say(approval, FIONA), "was removed. An administrator has to add it again", Forbidden)


def test_a_forged_row_lets_nobody_decide(stage: Stage, tools: Toolbox) -> None:
    admin, lena = boss(), somebody("lena", "approver_legal")
    approval = asked(stage, tools)
    limited(admin, "1")
    finn = somebody("finn", "approver_finance")
    run_sql(
        "INSERT INTO approvals_limit (queue_id, person, most, currency, set_by, set_at, ended_by) SELECT id, "
        f"{finn.person}, NULL, 'USD', 'user:boss', clock_timestamp(), '' FROM approvals_queue WHERE name = 'finance_po'"
    )
    changed(lambda: say(approval, finn), "not authentic", Forbidden)
    run_sql("UPDATE approvals_queue SET role = 'approver_legal' WHERE name = 'finance_po'")
    for by in (lena, finn):
        changed(lambda by=by: say(approval, by), "changed outside the application", Forbidden)
    acts.change("finance_po", QueueChangeBody(role="approver_finance", justification="set right"), by=admin)
    say(approval, finn, "reject")


def test_a_role_that_is_taken_one_moment_before_counts(stage: Stage, tools: Toolbox) -> None:
    """Many deciders while the role is revoked from all: the recorded one had it."""
    approval = asked(stage, tools)
    people = [somebody(f"p{n}", "approver_finance") for n in range(MANY)]
    group = Group.objects.get(name="approver_finance")

    def attempt(n: int) -> str:
        try:
            if n == 10:
                with transaction.atomic():
                    group.user_set.clear()
                return "taken"
            in_turn(lambda: say(approval, people[n]))
            return "decided"
        except Exception as refusal:
            return type(refusal).__name__
        finally:
            connection.close()

    with ThreadPoolExecutor(16) as threads:
        found = list(threads.map(attempt, range(MANY)))
    assert found.count("decided") <= 1 and set(found) <= {"decided", "taken", "AlreadyDecided", "Forbidden"}
    assert Decision.objects.count() == found.count("decided")
    changed(lambda: say(approval, people[-1]), "Only approver_finance decides", Forbidden)
    assert verify(approval.run_id).problems == []


def test_a_worker_learns_of_a_queue_before_it_refuses_it_and_does_not_ask_at_each_step(stage: Stage) -> None:
    known = Queues()
    worker = QueueNames(known, has_roles=False, pool=stage.wait(stage.connected()))
    stage.wait(worker.learn("legal"))
    assert "legal" in worker and "refunds" not in worker
    admin, read = boss(), known.last
    added(admin)
    stage.wait(worker.learn("legal"))
    assert known.last is read, "what it knows is fresh, so nobody is asked"
    stage.wait(worker.learn("refunds"))
    assert "refunds" in worker
    acts.close("refunds", by=admin, justification=WHY)
    known.forget()
    stage.wait(worker.learn("refunds"))
    assert "refunds" not in worker and known["refunds"] == "approver_refunds"


def revising(tools: Toolbox, evidence: Any = None) -> Agent:
    async def node(state: Notes, ctx: Context) -> str | End:
        amount = 5000 - 1000 * len(state.seen)
        items = [Evidence("quote", "vendor", evidence)]
        try:
            done = await ctx.call(
                tools.pay, Item(name="po", amount=amount), evidence=items, why="the vendor's best price"
            )
        except Rejected as no:
            state.seen.append(no.reason)
            return "node"
        return End([done.amount, *state.seen])

    return agent_of(node, tools=tools.all())


def asked_with(stage: Stage, tools: Toolbox, evidence: Any = None) -> Approval:
    stage.start(revising(tools, evidence))
    assert stage.drive() == "parked"
    return Approval.objects.get(state="open")


@pytest.mark.parametrize("evidence", ODD, ids=range(len(ODD)))
def test_the_bytes_that_are_hashed_are_the_bytes_that_are_shown(stage: Stage, tools: Toolbox, evidence: Any) -> None:
    approval = asked_with(stage, tools, evidence)
    raw = bytes(approval.plan)
    plan = json.loads(raw)
    assert raw == rfc8785.dumps(plan), "the one canonical form"
    assert hasher()(plan) == approval.plan_hash
    (event,) = events(approval.run, e.ApprovalRequested)
    assert event.payload == plan and event.plan_hash == approval.plan_hash
    assert plan_of(approval) == plan, "the console reads it from the very bytes"
    public = approval_row(approval, stages_of([approval], [])[approval.id], None).shown()
    assert public["arguments"] == plan["arguments"] == {"name": "po", "amount": 5000}
    assert public["evidence"] == plan["evidence"] == [{"label": "quote", "source": "vendor", "content": evidence}]
    assert public["plan_hash"] == approval.plan_hash


def test_the_plan_names_who_does_what_where_by_which_rule(stage: Stage, tools: Toolbox) -> None:
    approval = asked_with(stage, tools)
    plan = json.loads(bytes(approval.plan))
    assert (plan["agent"], plan["run_id"], plan["slot"]) == (approval.run.graph_id, str(approval.run_id), "0.1/1")
    assert (plan["queue"], plan["rule"], plan["tool"]) == ("finance_po", "orders from 1000", "pay")
    assert (plan["effect"], plan["headline"]) == ("pays something", "$5000")
    for name in ("queue", "rule", "tool", "effect", "title"):
        assert getattr(approval, name) == plan[name], "the columns beside it say the same"


def test_the_agents_own_words_are_shown_and_bind_nothing(stage: Stage, tools: Toolbox) -> None:
    approval = asked_with(stage, tools)
    assert approval.why == "the vendor's best price" and "why" not in json.loads(bytes(approval.plan))


def test_revisions_form_one_chain_from_first_to_last(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    approval = asked_with(stage, tools)
    run = approval.run
    for n in (1, 2, 3):
        assert (approval.revision, approval.previous_id is None) == (n, n == 1)
        assert json.loads(bytes(approval.plan))["arguments"]["amount"] == 6000 - 1000 * n
        if n < 3:
            stage.decide(run, "reject", why=f"no. {n}")
            assert stage.drive() == "parked"
            following = Approval.objects.get(run=run, state="open")
            assert following.previous_id == approval.id and approval.next == following
            assert following.plan_hash != approval.plan_hash
            approval = following
    stage.decide(run)
    assert stage.drive() == "completed"
    assert [json.loads(r.body)["amount"] for r in outside.requests] == [3000]
    assert [a.state for a in run.approvals.order_by("revision")] == ["rejected", "rejected", "approved"]


def test_a_question_about_something_else_is_no_revision(stage: Stage, tools: Toolbox) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        for tool in (tools.pay, tools.wire):
            try:
                await ctx.call(tool, Item(name="po", amount=5000))
            except Rejected:
                continue
        return End()

    run = stage.start(agent_of(node, tools=tools.all()))
    stage.drive()
    stage.decide(run, "reject")
    assert stage.drive() == "parked"
    second = Approval.objects.get(run=run, state="open")
    assert (second.tool, second.revision, second.previous) == ("wire", 1, None)


def test_exactly_what_was_approved_is_executed(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    """Two gates open in one run, one after the other: approving the first doesn't approve the second."""

    async def node(state: Notes, ctx: Context) -> End:
        first = await ctx.call(tools.pay, Item(name="one", amount=1000))
        second = await ctx.call(tools.pay, Item(name="two", amount=1000))
        return End([first.ref, second.ref])

    run = stage.start(agent_of(node, tools=tools.all()))
    stage.drive()
    first = stage.decide(run)
    assert stage.drive() == "parked" and [json.loads(r.body)["name"] for r in outside.requests] == ["one"]
    second = Approval.objects.get(run=run, state="open")
    assert second.plan_hash != first.plan_hash
    from approvals.services import StalePlan

    with pytest.raises(StalePlan):
        decide(second.id, verdict="approve", plan_hash=first.plan_hash, justification="as seen", by=FIONA)
    stage.decide(run)
    assert stage.drive() == "completed"
    intents = events(run, e.ToolInvoked)
    assert [(x.slot, x.grant) for x in intents] == [("0.1/1", "0.1/1"), ("0.1/2", "0.1/2")]


def test_python_and_sql_agree_on_what_is_above_a_limit(db: None) -> None:
    limit = OwnLimit("finance_po", Decimal(1000), "USD", needs_amount=True)
    wrong = []
    for amount, is_beyond in (
        ({"currency": "USD", "value": "1000.00"}, False),
        ({"currency": "USD", "value": "-1000.01"}, True),
        ({"currency": "EUR", "value": "1.00"}, True),
        ({"problem": "no number"}, True),
        (None, True),
    ):
        plan = {"agent": "a@1", **({} if amount is None else {"amount": amount}), "arguments": {"amount": 1}}
        ((condition, values),) = within("finance_po", limit, []).items()
        with connection.cursor() as cursor:
            row = "(SELECT %s::bytea AS plan, %s::text AS amount, NULL::text[] AS escalated_to) AS row"
            encrypted = [b"\x02...", amount_of(canonical(plan))]
            for stored in (encrypted, [canonical(plan), None]):
                cursor.execute(f"SELECT {condition} FROM {row}", [*values, *stored])
                found = is_above(plan, limit), cursor.fetchone() == (False,)
                wrong += [] if found == (is_beyond, is_beyond) else [(amount, found)]
    assert wrong == []
