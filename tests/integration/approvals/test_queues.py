"""Queues and limits are data: what an administrator sets counts at once, for everybody, and is on record."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection, transaction

from approvals.genuine import genuine
from approvals.models import Approval, Decision
from approvals.queue_models import Queue
from approvals.queues import acts, deputies
from approvals.queues.along import FACTS, is_ours
from approvals.queues.bodies import LiftBody, QueueBody, QueueChangeBody
from approvals.queues.seeding import seed
from durableagents import Context, End
from durableagents.databases import RUNTIME_ROLE
from ledger.actors import Actor
from ledger.errors import Forbidden, InvalidInput, JustificationRequired, NotFound
from ledger.models import ActRecord
from ledger.verification.runs import verify
from runs.journal import wait_hooks
from runs.journal.asked.queues import Asked, Queues
from tests.integration.approvals.setup import WHY, asked, away, boss, buying, limited, say, somebody
from tests.integration.runs.stage import Stage, dump, in_turn
from tests.world import FIONA, Notes, Toolbox, agent_of

pytestmark = pytest.mark.django_db


def added(by: Actor, **more: Any) -> Queue:
    Group.objects.get_or_create(name="approver_refunds")
    given = {"name": "refunds", "title": "Refunds", "role": "approver_refunds", "justification": WHY}
    return acts.create(QueueBody(**(given | more)), by=by)


def changed(act: Callable[[], object], words: str, error: type[Exception] = InvalidInput) -> None:
    """It is refused with these words, and nothing is changed."""
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
    assert "legal" not in wait_hooks.queues


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
    from approvals.services import decide

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
    assert [row.action for row in rows] == [
        "queue",
        "queue_limit",
        "queue_limit",
        "queue_limit_lift",
        "queue_close",
        "queue_open",
        "queue_remove",
    ]
    assert {(row.by, row.role, row.queue, row.justification) for row in rows} == {
        ("user:boss", "admin", "refunds", WHY)
    }
    assert (rows[2].before["most"], rows[2].after["most"]) == ("50000.000000", "60000")
    assert (rows[4].before["state"], rows[4].after["state"]) == ("open", "closed") and all(genuine(rows))


def test_every_act_is_within_what_the_applications_own_role_may_do(stage: Stage) -> None:
    """It owns nothing; what it may not change of a row, no act may write."""
    admin, ann = boss(), somebody("ann", "approver_finance")
    somebody("bob", "operator")
    Group.objects.get_or_create(name="approver_refunds")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {RUNTIME_ROLE}")
        added(admin)
        acts.change("refunds", QueueChangeBody(title="Pay back", needs_amount=True, justification=WHY), by=admin)
        limited(admin, "50000", queue="refunds")
        limited(admin, "60000", queue="refunds")
        acts.lift("refunds", LiftBody(justification=WHY), by=admin)
        acts.close("refunds", by=admin, justification=WHY)
        acts.open_again("refunds", by=admin, justification=WHY)
        acts.remove("refunds", by=admin, justification=WHY)
        deputies.revoke(away(ann, "bob").pk, by=ann, justification=WHY)
        cursor.execute("RESET ROLE")
    assert Queue.objects.get(name="refunds").is_genuine and all(genuine(list(ActRecord.objects.all())))


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


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"name": "LEGAL"}, "name is that of the queue legal"),
        ({"name": "Refunds"}, "small letters"),
        ({"name": "a:b"}, "small letters"),
        ({"name": "approver_finance"}, "the name of a role"),
        ({"name": "operator"}, "the name of a role"),
        ({"role": "approver_nobody"}, "no group that there is"),
        ({"role": "operator"}, "decides nothing"),
        ({"role": "boss"}, "decides nothing"),
        ({"title": "two\nlines"}, "can't be seen"),
        ({"title": "right\u202eleft"}, "can't be seen"),
        ({"title": " "}, "is empty"),
        ({"title": "x" * 101}, "101 characters"),
        ({"currency": "usd"}, "no currency"),
    ],
)
def test_what_can_not_be_a_queue_is_refused_by_name(stage: Stage, given: dict[str, Any], words: str) -> None:
    admin = boss()
    Group.objects.get_or_create(name="approver_refunds")
    changed(lambda: added(admin, **given), words)
    changed(lambda: added(admin, justification=" "), "justification", JustificationRequired)
    changed(lambda: acts.close("nowhere", by=admin, justification=WHY), "nowhere", NotFound)


def test_whoever_is_above_their_limit_may_only_say_no(stage: Stage, tools: Toolbox) -> None:
    admin, finn = boss(), somebody("finn", "approver_finance")
    approval = asked(stage, tools)
    limited(admin, "4999.99")
    changed(lambda: say(approval, finn), r"about \$5,000, above your limit of \$4,999.99", Forbidden)
    limited(admin, "5000", person="finn")
    say(approval, finn)
    (decision,) = Decision.objects.all()
    assert decision.standing == {
        "limits": [{"of": "person", "most": "5000.000000", "currency": "USD"}],
        "amount": {"value": "5000", "currency": "USD"},
    }
    assert genuine([decision]) == [True] and stage.drive() == "completed"
    assert verify(approval.run_id).problems == []


def test_a_closed_queue_asks_nobody_and_decides_nothing_and_says_who_must_act(stage: Stage, tools: Toolbox) -> None:
    admin = boss()
    approval = asked(stage, tools)
    acts.close("finance_po", by=admin, justification=WHY)
    changed(lambda: say(approval, FIONA), "closed to decisions: an administrator has to open it", Forbidden)
    stage.start(buying(tools, 7000))
    wait_hooks.queues.forget()
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
    changed(lambda: acts.remove("finance_po", by=admin, justification=WHY), "asks there: close it", acts.QueueInUse)


def test_a_question_at_a_removed_queue_says_who_must_act(stage: Stage, tools: Toolbox) -> None:
    """As where it was opened while the queue was being removed."""
    boss()
    approval = asked(stage, tools)
    row = Queue.objects.get(name="finance_po")
    row.state = Queue.State.REMOVED
    row.seal()
    row.save()
    changed(lambda: say(approval, FIONA), "was removed; an administrator has to add it again", Forbidden)


def forged(statement: str) -> None:
    """As somebody with the application's rights in the database does it."""
    with connection.cursor() as cursor:
        cursor.execute(statement)


def test_a_forged_row_lets_nobody_decide(stage: Stage, tools: Toolbox) -> None:
    admin, lena = boss(), somebody("lena", "approver_legal")
    approval = asked(stage, tools)
    limited(admin, "1")
    finn = somebody("finn", "approver_finance")
    forged(
        "INSERT INTO approvals_limit (queue_id, person, most, currency, set_by, set_at, ended_by) SELECT id, "
        f"{finn.person}, NULL, 'USD', 'user:boss', clock_timestamp(), '' FROM approvals_queue WHERE name = 'finance_po'"
    )
    changed(lambda: say(approval, finn), "not put on record by this installation", Forbidden)
    forged("UPDATE approvals_queue SET role = 'approver_legal' WHERE name = 'finance_po'")
    for by in (lena, finn):
        changed(lambda by=by: say(approval, by), "changed past this installation", Forbidden)
    acts.change("finance_po", QueueChangeBody(role="approver_finance", justification="set right"), by=admin)
    say(approval, finn, "reject")


def test_a_role_that_is_taken_one_moment_before_counts(stage: Stage, tools: Toolbox) -> None:
    """Sixty-four deciders at once, while the role is taken from all: whoever is on record had it."""
    approval = asked(stage, tools)
    people = [somebody(f"p{n}", "approver_finance") for n in range(64)]
    group = Group.objects.get(name="approver_finance")

    def attempt(n: int) -> str:
        try:
            if n == 20:
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
        found = list(threads.map(attempt, range(64)))
    assert found.count("decided") <= 1 and set(found) <= {"decided", "taken", "AlreadyDecided", "Forbidden"}
    assert Decision.objects.count() == found.count("decided")
    changed(lambda: say(approval, people[63]), "Only approver_finance decides", Forbidden)
    assert verify(approval.run_id).problems == []


def test_the_role_is_read_where_it_is_decided(stage: Stage, tools: Toolbox) -> None:
    approval, finn = asked(stage, tools), somebody("finn", "approver_finance")
    User.objects.get(username="finn").groups.clear()
    changed(lambda: say(approval, finn), "Only approver_finance decides", Forbidden)


def test_a_worker_learns_of_a_queue_before_it_refuses_it_and_does_not_ask_at_each_step(stage: Stage) -> None:
    known = Queues()
    known.statement, known.is_ours = FACTS, is_ours
    worker = Asked(known, has_roles=False, pool=stage.wait(stage.connected()))
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
