"""Above a threshold an approval needs more proof: fresh authentication and typed words."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import Error, connections, transaction

from approvals.api.present import approval_row
from approvals.authentic import authentic
from approvals.models import Approval, Decision
from approvals.proofs import KeyCannotProve, NothingProves, ProofNeeded
from approvals.queue_models import Queue
from approvals.queues import acts
from approvals.queues.acts import ProofBody
from approvals.services import AlreadyDecided, decide
from approvals.votes import stages_of
from durableagents import Gate
from durableagents.contrib.policies import queries
from durableagents.contrib.policies import services as policies
from durableagents.contrib.policies.services import NewPolicyBody, PolicyBody
from ledger import events as e
from ledger.actors import Actor
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, Forbidden, InvalidInput
from ledger.models import Head
from runs import features
from runs.journal.asked.queues import QUEUES
from tests.contrib.calendars.timing import away
from tests.integration.approvals.setup import (
    WHY,
    asked,
    boss,
    buying,
    one_after_the_other,
    somebody,
    until_somebody_waits,
)
from tests.integration.approvals.test_stages import nothing_changes
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.stage import Stage, events, in_turn, problems
from tests.tampering import run_sql, tamper, without_triggers
from tests.tiers import many
from tests.world import Outside, Toolbox

pytestmark = pytest.mark.django_db
MANY = many(64, 16)
FINANCE = "approver_finance"


def rule(queue: str = "finance_po", **said: Any) -> Actor:
    admin = User.objects.filter(username="boss").first()
    by = boss() if admin is None else Actor("user", "boss", auth="session", person=admin.pk)
    acts.prove(queue, ProofBody(justification=WHY, **said), by=by)
    QUEUES.forget()
    return by


def fresh(by: Actor, with_: str = "totp", ago: float = 0.0) -> Actor:
    return replace(by, proved_at=database_now() - timedelta(seconds=ago), proved_by=with_)


def say(of: Approval, by: Actor, verdict: str = "approve", **more: Any) -> Approval:
    by = replace(by, role=FINANCE)
    return decide(of.id, verdict=verdict, plan_hash=of.plan_hash, justification="as quoted", by=by, **more)


def dear(**proof: Any) -> NewPolicyBody:
    fields = {"name": "dear", "confirm": "every call", "effect": "require", "queue": "finance_po", "rule": "so"}
    return NewPolicyBody(**fields, justification=WHY, **proof)


def plan(of: Approval) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bytes(of.plan))
    return found


def shown_outside(of: Approval) -> dict[str, Any]:
    return approval_row(of, stages_of([of], [])[of.id], None).shown()


def test_above_the_amount_a_yes_needs_a_second_factor(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    rule(minutes=5, second_factor=True, above=Decimal(2000))
    question, fiona = asked(stage, tools), somebody("fiona", FINANCE)
    assert plan(question)["proof"] == {"within": 300, "factor": True}
    for weak in (
        fiona,
        fresh(fiona, "password"),
        fresh(fiona, "sso"),
        fresh(fiona, ""),
        fresh(fiona, ago=301),
        fresh(fiona, ago=-60),
    ):
        nothing_changes(
            lambda weak=weak: say(question, weak), ProofNeeded, "second factor, given within the last 5 minutes"
        )
    say(question, fresh(fiona, ago=290))
    assert stage.drive() == "completed" and len(outside.requests) == 1
    decision = Decision.objects.get()
    assert decision.proof["by"] == "totp" and 290 <= decision.proof["age"] <= 300
    [event] = events(question.run, e.ApprovalDecided)
    assert event.payload["proof"] == decision.proof
    check_against_journal(question.run)
    assert problems(question.run) == []


def test_without_the_app_what_needs_a_proof_is_only_rejected(
    stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(features.installed, "step_up")
    question, fiona = asked(stage, tools), somebody("fiona", FINANCE)
    for wants in ({"minutes": 5}, {"type_amount": True}):
        rule(**wants)
        nothing_changes(lambda: say(question, fresh(fiona)), NothingProves, "only be rejected")
    say(question, fiona, "reject")


def test_a_password_does_where_no_second_factor_is_asked(stage: Stage, tools: Toolbox) -> None:
    rule(minutes=10)
    question, fiona = asked(stage, tools), somebody("fiona", FINANCE)
    nothing_changes(lambda: say(question, fresh(fiona, "sso")), ProofNeeded, "password or second factor")
    say(question, fresh(fiona, "password"))
    assert stage.drive() == "completed"


def test_below_the_amount_plan_decision_and_event_are_what_they_were(stage: Stage, tools: Toolbox) -> None:
    before, fiona = asked(stage, tools, 1500), somebody("fiona", FINANCE)
    say(before, fiona)
    assert stage.drive() == "completed"
    rule(minutes=5, second_factor=True, above=Decimal(2000))
    after = asked(stage, tools, 1500)
    say(after, fiona)
    assert stage.drive() == "completed"
    assert plan(before).keys() == plan(after).keys()
    first, second = Decision.objects.order_by("id")
    assert first.proof is second.proof is None and first.coded().keys() == second.coded().keys()
    [event] = events(after.run, e.ApprovalDecided)
    assert event.payload == {"justification": "as quoted"}


def test_a_risk_that_nobody_declares_counts_as_high(stage: Stage, tools: Toolbox) -> None:
    rule(minutes=5, risk="high")
    question, fiona = asked(stage, tools), somebody("fiona", FINANCE)
    nothing_changes(lambda: say(question, fiona), ProofNeeded)


def test_a_key_is_told_that_it_cant_show_who_uses_it_and_may_say_no(stage: Stage, tools: Toolbox) -> None:
    rule(minutes=5)
    question = asked(stage, tools)
    key = replace(somebody("fiona", FINANCE), kind="key", auth="api_key")
    nothing_changes(lambda: say(question, key), KeyCannotProve, "an API key can't provide")
    nothing_changes(lambda: say(question, fresh(key, "password")), KeyCannotProve, "an API key can't provide")
    say(question, key, "reject")


def test_a_key_may_type_where_only_that_is_asked(stage: Stage, tools: Toolbox) -> None:
    rule(type_amount=True)
    question = asked(stage, tools)
    key = replace(somebody("fiona", FINANCE), kind="key", auth="api_key")
    say(question, key, typed={"amount": "5000"})
    assert stage.drive() == "completed"


def test_a_deputy_shows_who_they_are_themselves(stage: Stage, tools: Toolbox) -> None:
    rule(minutes=5)
    fiona, dave = somebody("fiona", FINANCE), somebody("dave", "operator")
    away(fiona, "dave")
    question = asked(stage, tools)
    nothing_changes(lambda: say(question, dave), ProofNeeded)
    say(question, fresh(dave, "password"))
    assert Decision.objects.get().proof["by"] == "password"


def test_who_approves_types_the_amount_and_whom_it_is_about(stage: Stage, tools: Toolbox) -> None:
    rule(type_amount=True, type_target=True, above=Decimal(2000))
    question, fiona = asked(stage, tools), somebody("fiona", FINANCE)
    assert plan(question)["proof"] == {"typed": {"amount": "5000 USD", "target": "po"}}
    for typed in (None, {}, {"amount": "5000"}, {"target": "po"}, {"amount": "500", "target": "po"}):
        nothing_changes(lambda typed=typed: say(question, fiona, typed=typed), InvalidInput, "Type ")
    say(question, fiona, typed={"amount": "$5,000.00", "target": " PO "})
    assert Decision.objects.get().proof == {"typed": {"amount": "$5,000.00", "target": " PO "}}
    assert stage.drive() == "completed" and problems(question.run) == []


def test_where_no_amount_can_be_told_the_target_is_typed(stage: Stage, tools: Toolbox) -> None:
    rule(type_amount=True)
    question = asked(stage, tools, declared=None)
    assert plan(question)["proof"] == {"typed": {"target": "po"}}


def test_a_threshold_that_was_set_after_the_question_holds_for_it_too(stage: Stage, tools: Toolbox) -> None:
    question, fiona = asked(stage, tools), somebody("fiona", FINANCE)
    rule(minutes=5, second_factor=True, type_amount=True)
    assert "proof" not in plan(question)
    wanted = {"within": 300, "factor": True, "typed": {"amount": "5000 USD"}}
    assert shown_outside(question)["wanted"] == wanted, "who decides over the API is told before they are refused"
    nothing_changes(lambda: say(question, fresh(fiona, "password"), typed={"amount": "5000"}), ProofNeeded)
    decided = say(question, fresh(fiona), typed={"amount": "5000"})
    assert shown_outside(decided)["wanted"] == {}, "as its plan bound it, whatever its queue asks later"
    assert stage.drive() == "completed" and problems(question.run) == []


def test_what_the_plan_asks_stays_when_the_queue_asks_it_no_more(stage: Stage, tools: Toolbox) -> None:
    rule(minutes=5, second_factor=True)
    question, fiona = asked(stage, tools), somebody("fiona", FINANCE)
    rule()
    assert Queue.objects.get(name="finance_po").proof is None
    assert shown_outside(question)["wanted"] == plan(question)["proof"] == {"within": 300, "factor": True}
    nothing_changes(lambda: say(question, fiona), ProofNeeded)
    say(question, fresh(fiona))


def test_who_changed_what_a_yes_has_to_show_does_not_decide_what_was_open(stage: Stage, tools: Toolbox) -> None:
    admin = rule(minutes=5)
    question = asked(stage, tools)
    rule()
    User.objects.get(pk=admin.person).groups.add(Group.objects.get_or_create(name=FINANCE)[0])
    nothing_changes(lambda: say(question, fresh(admin)), Forbidden, "changed the members of this role")


def test_several_people_show_it_each(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    rule(minutes=5)
    tools.pay = replace(tools.pay, gate=Gate("finance_po", "large sums", quorum=2))
    question, fiona, frank = asked(stage, tools), somebody("fiona", FINANCE), somebody("frank", FINANCE)
    say(question, fresh(fiona))
    nothing_changes(lambda: say(question, frank), ProofNeeded)
    say(question, fresh(frank, "password"))
    assert [each.proof["by"] for each in Decision.objects.order_by("id")] == ["totp", "password"]
    assert stage.drive() == "completed" and len(outside.requests) == 1 and problems(question.run) == []


def test_of_many_who_say_yes_at_once_those_who_showed_it_are_one(stage: Stage, tools: Toolbox) -> None:
    """Half of them lack the proof; one of the others decides."""
    rule(minutes=5)
    question, people = asked(stage, tools), [somebody(f"f{n}", FINANCE) for n in range(MANY)]
    refused: Counter[type] = Counter()

    def one(n: int) -> None:
        try:
            in_turn(lambda: say(question, fresh(people[n]) if n % 2 else people[n]))
        except DurableAgentsError as error:
            refused[type(error)] += 1
        finally:
            connections.close_all()

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(one, range(MANY)))
    assert Decision.objects.count() == 1 and sum(refused.values()) == MANY - 1
    assert set(refused) <= {ProofNeeded, AlreadyDecided} and refused[AlreadyDecided] >= MANY // 2 - 1
    winner = Decision.objects.get()
    assert winner.person in {people[n].person for n in range(1, MANY, 2)} and winner.proof["by"] == "totp"


def test_a_rule_that_is_set_while_somebody_decides_counts_wholly_or_not_at_all(stage: Stage, tools: Toolbox) -> None:
    question, fiona, admin = asked(stage, tools), somebody("fiona", FINANCE), boss()
    proves = partial(acts.prove, "finance_po", ProofBody(minutes=5, justification=WHY), by=admin)
    refused = one_after_the_other(proves, lambda: say(question, fiona))
    assert isinstance(refused, ProofNeeded) and not Decision.objects.exists()


def test_a_proof_that_grows_old_while_its_person_waits_for_the_lock_is_none(stage: Stage, tools: Toolbox) -> None:
    """Its age is measured under the locks."""
    rule(minutes=1)
    question, fiona = asked(stage, tools), fresh(somebody("fiona", FINANCE), ago=58.5)
    items: list[BaseException] = []

    def decides() -> None:
        try:
            say(question, fiona)
        except DurableAgentsError as error:
            items.append(error)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            Head.objects.select_for_update().get(run_id=question.run_id)
            waiting = pool.submit(decides)
            while fiona.proved_at is not None and database_now() - fiona.proved_at <= timedelta(seconds=60.1):
                until_somebody_waits(0.1)
        waiting.result(60)
    assert [type(error) for error in items] == [ProofNeeded]


def test_a_policy_wants_it_shown_and_says_so_on_record(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    by = boss()
    body = dear(proof_minutes=5, second_factor=True, type_target=True)
    row = policies.create(body, by=by)
    assert row.proof == {"within": 300, "factor": True, "target": True} and row.is_authentic
    question, fiona = asked(stage, tools), somebody("fiona", FINANCE)
    assert plan(question)["proof"] == {"within": 300, "factor": True, "typed": {"target": "po"}}
    nothing_changes(lambda: say(question, fiona, typed={"target": "po"}), ProofNeeded)
    say(question, fresh(fiona), typed={"target": "po"})
    assert stage.drive() == "completed" and len(outside.requests) == 1 and problems(question.run) == []
    change = PolicyBody(effect="require", queue="finance_po", rule="so", justification=WHY, confirm="every call")
    assert queries.policy_rule(row).proof == queries.find_policy("dear").versions[0].proof == row.proof
    assert policies.change("dear", change, by=by).proof is None
    assert "Extra verification" in {each.what for each in queries.find_policy("dear").versions[0].changes}


def test_what_a_policy_wants_shown_is_not_taken_away_past_us(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    body = dear(proof_minutes=5)
    policies.create(body, by=boss())
    run_sql("UPDATE approvals_policy SET proof = NULL")
    stage.start(buying(tools))
    assert stage.drive() == "operator" and outside.requests == []


def test_a_rule_that_is_taken_away_past_us_closes_the_queue(stage: Stage, tools: Toolbox) -> None:
    rule(minutes=5, second_factor=True)
    question, fiona = asked(stage, tools), somebody("fiona", FINANCE)
    run_sql("UPDATE approvals_queue SET proof = NULL WHERE name = 'finance_po'")
    nothing_changes(lambda: say(question, fresh(fiona)), DurableAgentsError, "changed outside the application")


def test_a_stronger_proof_than_was_shown_cant_be_written_into_a_decision(stage: Stage, tools: Toolbox) -> None:
    rule(minutes=5)
    question = asked(stage, tools)
    say(question, fresh(somebody("fiona", FINANCE), "password"))
    with pytest.raises(Error), transaction.atomic():
        run_sql("UPDATE approvals_decision SET proof = jsonb_set(proof, '{by}', '\"totp\"')")
    row = Decision.objects.get()
    row.proof = row.proof | {"by": "totp"}
    assert authentic([row]) == [False]


def test_a_changed_proof_is_found_by_verification(stage: Stage, tools: Toolbox) -> None:
    rule(minutes=5)
    question = asked(stage, tools)
    say(question, fresh(somebody("fiona", FINANCE), "password"))
    assert problems(question.run) == []
    tamper("UPDATE approvals_decision SET proof = jsonb_set(proof, '{by}', '\"totp\"')")
    found = " ".join(problems(question.run))
    assert "proof" in found and "was not written with this installation's key" in found


def test_a_call_on_too_weak_a_yes_for_its_policy_is_found(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    """As by a worker of a version without proofs: everything is recorded and authentic."""
    body = dear(proof_minutes=5)
    row = policies.create(body.model_copy(update={"proof_minutes": 0}), by=boss())
    question, fiona = asked(stage, tools), somebody("fiona", FINANCE)
    say(question, fiona)
    assert stage.drive() == "completed" and problems(question.run) == []
    row.proof = body.proof.as_json()
    row.seal()
    with without_triggers():
        row.save(update_fields=["proof", "code"])
    found = [each for each in problems(question.run) if "without the proof that" in each]
    assert len(found) == 1 and "dear" in found[0] and row.is_authentic
