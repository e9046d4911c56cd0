"""Deputies decide in another's place, for a time, and within that person's rights."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone

from approvals.authentic import authentic
from approvals.models import Decision
from approvals.queue_models import Deputy
from approvals.services import actor_for_decision
from durableagents.contrib.calendars import deputies
from durableagents.contrib.calendars.services import DeputyBody
from ledger.errors import Forbidden, InvalidInput
from ledger.models import ActRecord
from ledger.verification.runs import verify
from runs.services import lifecycle, signals
from tests.contrib.calendars.timing import away
from tests.integration.approvals.setup import WHY, asked, boss, buying, limited, say, signed_in, somebody
from tests.integration.approvals.test_queues import changed
from tests.integration.runs.stage import Stage, in_turn
from tests.rewriting import rewrite
from tests.tampering import run_sql
from tests.world import Toolbox

pytestmark = pytest.mark.django_db


def test_a_deputy_decides_in_the_principals_place_and_the_record_tells_it(stage: Stage, tools: Toolbox) -> None:
    ann, bob = somebody("ann", "approver_finance"), somebody("bob", "integrator")
    approval = asked(stage, tools)
    changed(lambda: say(approval, bob), "Only approver_finance decides", Forbidden)
    row = away(ann, "bob")
    assert actor_for_decision(approval, bob, {"integrator"}).role == "approver_finance"
    say(approval, bob)
    decision = Decision.objects.get()
    assert (decision.by, decision.role) == ("user:bob", "approver_finance")
    assert decision.standing == {"deputy_of": {"name": "ann", "person": ann.person, "deputy": row.pk}}
    assert authentic([decision]) == [True] and stage.drive() == "completed"
    assert verify(approval.run_id).problems == []
    (act,) = ActRecord.objects.filter(action="deputy")
    assert (act.by, act.role, act.subject, act.justification) == ("user:ann", "approver_finance", "bob for ann", WHY)


def test_a_deputy_shows_the_second_factor_that_the_queues_role_needs(
    stage: Stage, tools: Toolbox, settings: Any
) -> None:
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"second_factor_roles": ("approver_*",)})
    ann, bob = somebody("ann", "approver_finance"), somebody("bob", "integrator")
    approval = asked(stage, tools)
    away(ann, "bob")
    changed(lambda: say(approval, bob), "requires a second factor", Forbidden)
    say(approval, replace(bob, auth="session+totp"))
    assert Decision.objects.get().auth == "session+totp"


def test_a_deputy_is_shown_the_question_and_no_other_run(stage: Stage, tools: Toolbox) -> None:
    ann, bob = somebody("ann", "approver_finance"), somebody("bob", "integrator")
    approval, client = asked(stage, tools), signed_in(bob)
    over_api = f"/api/v1/approvals/{approval.id}"
    assert client.get(over_api).status_code == client.get(f"/inbox/{approval.id}").status_code == 404
    away(ann, "bob")
    assert client.get(over_api).status_code == client.get(f"/inbox/{approval.id}").status_code == 200
    assert client.get(f"/api/v1/runs/{approval.run_id}").status_code == 404
    finance = signed_in(ann)
    assert finance.get(over_api).status_code == 200


def test_many_deputyships_to_come_do_not_hide_the_one_that_is_now(stage: Stage, tools: Toolbox) -> None:
    ann, bob = somebody("ann", "approver_finance"), somebody("bob", "operator")
    approval = asked(stage, tools)
    away(ann, "bob")
    now = timezone.now()
    for n in range(30):
        row = Deputy(
            principal=10_000 + n,
            deputy=bob.person,
            starts_at=now,
            ends_at=now + timedelta(days=300),
            reason=WHY,
            set_by="user:x",
            made_at=now,
        )
        row.seal()
        row.save(force_insert=True)
    say(approval, bob)
    assert Decision.objects.get().standing["deputy_of"]["name"] == "ann"


def test_a_deputy_decides_under_the_principals_limit(stage: Stage, tools: Toolbox) -> None:
    ann, bob, admin = somebody("ann", "approver_finance"), somebody("bob", "operator"), boss()
    approval = asked(stage, tools)
    away(ann, "bob", queue="finance_po")
    limited(admin, "4000", person="ann")
    changed(lambda: say(approval, bob), r"above the limit of ann of \$4,000", Forbidden)
    limited(admin, "6000", person="ann")
    limited(admin, "4500", person="bob")
    changed(lambda: say(approval, bob), r"above your own limit of \$4,500", Forbidden)
    say(approval, bob, "reject")


def test_a_deputy_of_a_deputy_is_none(stage: Stage, tools: Toolbox) -> None:
    ann, bob, cy = somebody("ann", "approver_finance"), somebody("bob", "operator"), somebody("cy", "operator")
    approval = asked(stage, tools)
    away(ann, "bob")
    changed(lambda: away(bob, "cy"), "bob may not decide at any queue", InvalidInput)
    changed(lambda: say(approval, cy), "Only approver_finance decides", Forbidden)


@pytest.mark.parametrize("whose", ["ann", "bob"])
def test_what_either_took_part_in_is_not_decided_by_the_deputy(stage: Stage, tools: Toolbox, whose: str) -> None:
    people = {"ann": somebody("ann", "approver_finance", "integrator"), "bob": somebody("bob", "integrator")}
    lifecycle.start(buying(tools).graph_id, {}, by=people[whose])
    stage.drive()
    from approvals.models import Approval

    approval = Approval.objects.get()
    away(people["ann"], "bob")
    words = "ann, whose deputy you are, started this run" if whose == "ann" else "You started this run"
    changed(lambda: say(approval, people["bob"]), words, Forbidden)


def test_taking_part_while_one_reads_counts(stage: Stage, tools: Toolbox) -> None:
    ann, bob = somebody("ann", "approver_finance"), somebody("bob", "operator")
    approval = asked(stage, tools)
    away(ann, "bob")
    signals.signal(approval.run_id, "price", 7, by=ann)
    changed(lambda: say(approval, bob), "ann, whose deputy you are, sent this run a signal", Forbidden)


def test_a_deputy_is_one_only_as_long_as_the_principal_decides(stage: Stage, tools: Toolbox) -> None:
    ann, bob = somebody("ann", "approver_finance"), somebody("bob", "operator")
    approval = asked(stage, tools)
    row = away(ann, "bob")
    rewrite(User.objects.filter(pk=ann.person), is_active=False)
    changed(lambda: say(approval, bob), "ann, whose deputy you are, can't decide", Forbidden)
    rewrite(User.objects.filter(pk=ann.person), is_active=True)
    deputies.end_deputyship(row.pk, by=ann, justification="back again")
    changed(lambda: say(approval, bob), "no longer a deputy of ann: it was revoked", Forbidden)
    changed(
        lambda: deputies.end_deputyship(row.pk, by=ann, justification=WHY), "already been revoked", deputies.DeputyOver
    )


def test_their_time_counts_by_the_databases_clock(stage: Stage, tools: Toolbox) -> None:
    ann, bob = somebody("ann", "approver_finance"), somebody("bob", "operator")
    approval = asked(stage, tools)
    row = away(ann, "bob", starts_at=timezone.now() + timedelta(days=1))
    changed(lambda: say(approval, bob), "Your deputyship for ann starts at", Forbidden)
    row.starts_at, row.ends_at = timezone.now() - timedelta(days=2), timezone.now() - timedelta(seconds=1)
    row.seal()
    row.save()
    changed(lambda: say(approval, bob), "Your deputyship for ann ended", Forbidden)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"deputy": "ann"}, "deputy is the absent person"),
        ({"deputy": "nobody"}, "deputy is not an account"),
        ({"deputy": "gone"}, "account that is closed"),
        ({"deputy": "audrey"}, "no role that may decide"),
        ({"deputy": "plain"}, "no role that may decide"),
        ({"queue": "nowhere"}, "queue does not exist"),
        ({"queue": "legal"}, "ann may not decide in legal"),
        ({"ends_at": timedelta(days=-1)}, "ends_at has passed"),
        ({"ends_at": timedelta(days=1), "starts_at": timedelta(days=2)}, "not after the start"),
        ({"ends_at": timedelta(days=400)}, "more than a year"),
        ({"ends_at": timedelta(days=500), "starts_at": timedelta(days=490)}, "more than a year"),
    ],
)
def test_what_can_not_be_a_deputy_is_refused_by_name(stage: Stage, given: dict[str, Any], words: str) -> None:
    ann = somebody("ann", "approver_finance")
    somebody("bob", "operator")
    somebody("gone", "operator", is_active=False)
    somebody("audrey", "auditor")
    somebody("plain")
    moments = {name: timezone.now() + value for name, value in given.items() if isinstance(value, timedelta)}
    body = {"deputy": "bob", "ends_at": timezone.now() + timedelta(days=1), "justification": WHY} | given | moments
    changed(lambda: deputies.name_deputy(DeputyBody(**body), by=ann), words)


def test_others_are_named_and_ended_by_administrators_alone(stage: Stage) -> None:
    ann, bob, cy = somebody("ann", "approver_finance"), somebody("bob", "operator"), somebody("cy", "operator")
    changed(lambda: away(cy, "bob", principal="ann"), "Only an administrator", Forbidden)
    row = away(boss(), "bob", principal="ann")
    changed(lambda: deputies.end_deputyship(row.pk, by=cy, justification=WHY), "Only an administrator", Forbidden)
    deputies.end_deputyship(row.pk, by=bob, justification="I am away as well")
    assert ActRecord.objects.get(action="deputy_revoke").by == "user:bob" and ann.person == row.principal


def test_a_forged_deputy_decides_nothing_and_one_that_ended_is_not_revived(stage: Stage, tools: Toolbox) -> None:
    ann, bob = somebody("ann", "approver_finance"), somebody("bob", "operator")
    approval = asked(stage, tools)
    run_sql(
        "INSERT INTO approvals_deputy (principal, deputy, starts_at, ends_at, reason, set_by, made_at,"
        " revoked_by) VALUES"
        f" ({ann.person}, {bob.person}, now() - interval '1 day', now() + interval '1 day', 'x', 'user:ann', now(), '')"
    )
    changed(lambda: say(approval, bob), "Your deputyship for ann is not authentic", Forbidden)
    row = away(ann, "bob")
    deputies.end_deputyship(row.pk, by=ann, justification="back again")
    with pytest.raises(Exception, match="Cannot update rows"):
        Deputy.objects.filter(pk=row.pk).update(revoked_at=None)


def test_a_deputy_who_is_revoked_at_that_moment_decides_before_or_not_at_all(stage: Stage, tools: Toolbox) -> None:
    ann = somebody("ann", "approver_finance")
    people = [somebody(f"d{n}", "operator") for n in range(15)]
    approval = asked(stage, tools)
    rows = [away(ann, f"d{n}") for n in range(15)]

    def attempt(n: int) -> str:
        try:
            if n % 2:
                in_turn(lambda: deputies.end_deputyship(rows[n // 2].pk, by=ann, justification="back again"))
                return "revoked"
            in_turn(lambda: say(approval, people[n // 2]))
            return "decided"
        except Exception as refusal:
            return type(refusal).__name__
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(attempt, range(30)))
    assert found.count("decided") == Decision.objects.count() <= 1
    # a second deputy of ann learns that she has voted, or that it is decided
    assert set(found) <= {"decided", "revoked", "Forbidden", "AlreadyDecided", "AlreadyVoted"}
    if decision := Decision.objects.first():
        row = Deputy.objects.get(deputy=decision.person)
        assert row.revoked_at is None or row.revoked_at > decision.at, "nobody decided who was revoked before"


def test_a_deputys_inbox_shows_whose_place_they_take_and_decides_there(stage: Stage, tools: Toolbox) -> None:
    ann, bob = somebody("ann", "approver_finance"), somebody("bob", "integrator")
    approval = asked(stage, tools)
    client = signed_in(bob)
    address, sent = (
        f"/approvals/{approval.id}/decision",
        {"plan_hash": approval.plan_hash, "justification": "as quoted"},
    )
    assert client.post(address, {"verdict": "approve", **sent}).status_code == 403
    away(ann, "bob")
    page = client.get("/inbox").content.decode()
    assert "for ann, until" in page and "Waiting for me" in page and ">1</" in page
    assert "You decide on behalf of" in client.get(f"/inbox/{approval.id}").content.decode()
    limited(boss(), "1", person="ann")
    page = client.get(f"/inbox/{approval.id}").content.decode()
    assert "above the limit of ann of $1" in page and "You can reject it" in page
    assert client.post(address, {"verdict": "approve", **sent}).status_code == 403
    assert client.post(address, {"verdict": "reject", **sent}).status_code == 302
    assert Decision.objects.get().standing["deputy_of"]["name"] == "ann"
