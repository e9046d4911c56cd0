"""Four eyes on rules: one person's request changes nothing until a second agrees, and then exactly that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection, transaction
from django.db.utils import ProgrammingError
from django.template.base import Template
from django.test.utils import instrumented_test_render

from approvals.queue_models import Limit
from approvals.queues import acts as queues
from approvals.queues.acts import LimitBody, QueueBody, QueueChangeBody
from durableagents.contrib.accounts import invitations, resets
from durableagents.contrib.change_control import services as changes
from durableagents.contrib.change_control import setting as guards
from durableagents.contrib.change_control.models import FourEyes, RuleChange
from durableagents.contrib.change_control.setting import GuardsBody
from durableagents.contrib.change_control.verify import check_changes
from durableagents.contrib.limits import services as limits
from durableagents.contrib.limits import shared_budgets as pools
from durableagents.contrib.limits.models import Limit as RuntimeLimit
from durableagents.contrib.limits.models import SharedBudget
from durableagents.contrib.limits.shared_budgets import SharedBudgetBody
from durableagents.contrib.policies import services as policies
from durableagents.contrib.policies.models import Policy
from durableagents.contrib.policies.services import NewPolicyBody, PolicyBody
from durableagents.contrib.releases import services
from durableagents.contrib.releases.models import Ramp
from durableagents.contrib.releases.services import RampBody
from durableagents.databases import RUNTIME_ROLE
from durableagents.identity import rights
from ledger.actors import Actor
from ledger.change_control import FAMILIES, OTHER_NEEDS, Guarded, acts
from ledger.change_control import agreed as everybody_agreed
from ledger.errors import Forbidden, InvalidInput, JustificationRequired, Proposed
from ledger.models import ActRecord
from ledger.verification.registers import protected_rows
from runs.engine.limits import Rule
from runs.models import Price
from runs.services.budgets.prices import set_price
from tests.integration.approvals.setup import WHY, signed_in, somebody
from tests.integration.runs.stage import Stage, at_once
from tests.rewriting import rewrite
from tests.tiers import many
from tests.world import Toolbox, agent_of

pytestmark = pytest.mark.django_db
MANY = many(64, 16)


def administrator(name: str) -> Actor:
    by = somebody(name, "operator", is_staff=True, is_superuser=True, email=f"{name}@example.org")
    return replace(by, role="operator")


@pytest.fixture
def anna(stage: Stage) -> Actor:
    return administrator("anna")


@pytest.fixture
def bert(stage: Stage, anna: Actor) -> Actor:
    return administrator("bert")


@pytest.fixture
def guarded(anna: Actor, bert: Actor) -> None:
    guards.require(GuardsBody(families=list(FAMILIES), justification=WHY), by=anna)


def proposed(act: Callable[[], Any]) -> RuleChange:
    with pytest.raises(Proposed) as waits:
        act()
    return changes.find(waits.value.change)


def rule(**more: Any) -> NewPolicyBody:
    fields = {"name": "orders", "effect": "deny", "rule": "not now", "agent": "", "tool": "", "confirm": "every call"}
    return NewPolicyBody(**fields | {"justification": WHY} | more)


def as_the_application(statement: str) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {RUNTIME_ROLE}")
        cursor.execute(statement)


def agreed(change: RuleChange, by: Actor) -> RuleChange:
    return changes.apply(change.pk, by=by, justification="I read it")


def test_nothing_is_guarded_before_somebody_asks_for_it(anna: Actor) -> None:
    assert policies.create(rule(), by=anna).is_in_force and not RuleChange.objects.exists()


def test_what_one_proposes_changes_nothing_until_a_second_person_agrees(
    guarded: None, anna: Actor, bert: Actor
) -> None:
    change = proposed(lambda: policies.create(rule(), by=anna))
    assert not Policy.objects.exists() and change.state == "open" and change.is_authentic
    assert [(entry["action"], entry["subject"], entry["before"]) for entry in change.told] == [
        ("policy", "policy orders", {})
    ]
    assert change.told[0]["after"]["rule"] == "not now"
    assert agreed(change, bert).state == "applied"
    (policy,) = Policy.objects.all()
    assert policy.is_in_force and policy.is_authentic and policy.set_by == "user:anna"
    act, agreement = ActRecord.objects.order_by("-id")[:2][::-1]
    assert (act.action, act.by, agreement.action, agreement.by) == (
        "policy",
        "user:anna",
        "rule_change_apply",
        "user:bert",
    )
    assert check_changes().problems == []  # type: ignore[union-attr]


@pytest.mark.parametrize("verb", [changes.apply, changes.refuse])
def test_someone_who_proposed_it_is_not_the_second_person_by_whatever_key(
    guarded: None, anna: Actor, verb: Callable[..., RuleChange]
) -> None:
    change = proposed(lambda: policies.create(rule(), by=anna))
    with pytest.raises(Forbidden, match="another person"):
        verb(change.pk, by=anna, justification=WHY)
    for me in (replace(anna, kind="key", name="laptop"), replace(anna, name="anna2", person=None)):
        with pytest.raises(Forbidden, match="signed in"):
            verb(change.pk, by=me, justification=WHY)
    assert changes.withdraw(change.pk, by=anna, justification="not after all").state == "withdrawn"


def test_a_person_without_the_right_is_no_second_person_nor_a_first_one(guarded: None, anna: Actor) -> None:
    change = proposed(lambda: policies.create(rule(), by=anna))
    for other in (somebody("olga", "operator"), somebody("ada", "auditor"), somebody("carl", "approver_finance")):
        with pytest.raises(Forbidden):
            agreed(change, other)
        with pytest.raises(Forbidden):
            policies.create(rule(name="theirs"), by=other)
        with pytest.raises(Forbidden, match="Only the person who proposed"):
            changes.withdraw(change.pk, by=other, justification=WHY)
    assert RuleChange.objects.count() == 1 and not Policy.objects.exists()


def test_rights_count_as_they_are_when_somebody_agrees(guarded: None, anna: Actor, bert: Actor) -> None:
    first, second = (proposed(partial(policies.create, rule(name=n), by=anna)) for n in ("one", "two"))
    rewrite(User.objects.filter(pk=bert.person), is_superuser=False)
    with pytest.raises(Forbidden, match="You may not"):
        agreed(first, bert)
    rewrite(User.objects.filter(pk=bert.person), is_superuser=True)
    rewrite(User.objects.filter(pk=anna.person), is_active=False)
    with pytest.raises(Forbidden, match="The person who proposed it"):
        agreed(second, bert)
    assert not Policy.objects.exists()


def test_what_is_wrong_is_refused_to_anyone_who_proposes_it_and_nothing_is_kept(guarded: None, anna: Actor) -> None:
    with pytest.raises(InvalidInput, match="not a known agent"):
        policies.create(rule(agent="nobody"), by=anna)
    with pytest.raises(JustificationRequired):
        policies.create(rule(justification=" "), by=anna)
    assert not RuleChange.objects.exists()


def test_it_is_done_as_it_was_read_or_not_at_all(guarded: None, anna: Actor, bert: Actor) -> None:
    made = proposed(lambda: policies.create(rule(), by=anna))
    agreed(made, bert)
    loosen = PolicyBody(**rule(effect="allow").model_dump(exclude={"name"}))
    first, second = (proposed(partial(policies.change, "orders", loosen, by=who)) for who in (anna, bert))
    agreed(first, bert)
    with pytest.raises((changes.ChangedMeanwhile, InvalidInput)):
        agreed(second, anna)
    assert Policy.objects.count() == 2 and changes.find(second.pk).state == "open"
    assert changes.refuse(second.pk, by=anna, justification="too late").state == "refused"


def test_another_state_than_the_one_that_was_read_stops_it(guarded: None, anna: Actor, bert: Actor) -> None:
    change = proposed(lambda: queues.change("legal", QueueChangeBody(title="Law", justification=WHY), by=anna))
    queues.change("legal", QueueChangeBody(needs_amount=True, justification=WHY), by=Actor("os", "root", auth="shell"))
    with pytest.raises(changes.ChangedMeanwhile, match=r"effect is the same.*\(needs amount\), last by os:root\. "):
        agreed(change, bert)
    assert queues.find("legal").title != "Law"


@pytest.mark.django_db(transaction=True)
def test_of_many_who_decide_at_once_one_does_and_the_others_are_told_who_and_when_and_keep_their_text(
    stage: Stage, guarded: None, anna: Actor
) -> None:
    change = proposed(lambda: policies.create(rule(), by=anna))
    people = [somebody(f"s{n}", is_staff=True, is_superuser=True) for n in range(MANY)]
    verbs = {0: "agreements", 1: "refusals"}

    def one(n: int) -> Callable[[], Any]:
        client = signed_in(people[n])
        path = f"/changes/{change.pk}/{verbs[n % 2]}"
        return lambda: client.post(path, {"justification": f"I am number {n}, and read it."})

    answers = at_once(*[one(n) for n in range(MANY)])
    statuses = [answer.status_code for answer in answers]
    assert sorted(statuses) == [302] + [409] * (MANY - 1)
    won, row = statuses.index(302), changes.find(change.pk)
    assert (row.state, row.ended_by) == ("refused" if won % 2 else "applied", f"user:s{won}")
    assert Policy.objects.count() == (0 if won % 2 else 1)
    assert ActRecord.objects.filter(action__in=["rule_change_apply", "rule_change_refuse"]).count() == 1
    assert row.ended_at is not None
    text = f"It was {row.state} by user:s{won} at {row.ended_at:%Y-%m-%d %H:%M:%S} UTC already"
    for n, answer in enumerate(answers):
        page = answer.content.decode()
        assert n == won or (text in page and f"I am number {n}, and read it.</textarea>" in page)


def test_what_is_over_is_over(guarded: None, anna: Actor, bert: Actor) -> None:
    change = proposed(lambda: policies.create(rule(), by=anna))
    changes.refuse(change.pk, by=bert, justification="no")
    for act in (changes.apply, changes.refuse):
        with pytest.raises(changes.ChangeOver, match="refused by user:bert"):
            act(change.pk, by=bert, justification=WHY)
    with transaction.atomic(), pytest.raises(ProgrammingError), connection.cursor() as cursor:
        cursor.execute("UPDATE ledger_rulechange SET state = 'open'")


def test_it_does_not_wait_forever(guarded: None, anna: Actor, bert: Actor, monkeypatch: pytest.MonkeyPatch) -> None:
    change = proposed(lambda: policies.create(rule(), by=anna))
    now = changes.database_now()
    monkeypatch.setattr(changes, "database_now", lambda: now + timedelta(days=15))
    with pytest.raises(changes.ChangeOver, match="14 days"):
        agreed(change, bert)
    assert not Policy.objects.exists()


# --- every family ---


def test_each_family_of_rules_waits_for_a_second_person(
    stage: Stage, tools: Toolbox, guarded: None, anna: Actor, bert: Actor
) -> None:
    async def node(state: Any, ctx: Any) -> None: ...

    for version in ("1.0.0", "2.0.0"):
        agent_of(node, name="importer", version=version, tools=tools.all())
    olga = somebody("olga", "operator")
    assert olga.person is not None
    Group.objects.get_or_create(name="auditor")
    ramp = RampBody(agent="importer", from_version="1.0.0", to_version="2.0.0", share=Decimal(5), justification=WHY)
    pool = SharedBudgetBody(
        name="all", scope="all", resource="tool_calls", period="day", limit=Decimal(9), justification=WHY
    )
    refunds = QueueBody(name="refunds", title="Refunds", role="approver_legal", justification=WHY)
    most = LimitBody(person="", most=Decimal("12.50"), justification=WHY)
    every: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "queues": (
            lambda: queues.create(refunds, by=anna),
            lambda: queues.find("refunds"),
        ),
        "queues, limit": (lambda: queues.limit("legal", most, by=anna), lambda: Limit.objects.get(most="12.50")),
        "limits": (
            lambda: limits.set_limit("tool:pay", Rule(per_minute=5), by=anna, justification=WHY),
            lambda: RuntimeLimit.objects.get(key="tool:pay", given__per_minute=5),
        ),
        "limits, pool": (lambda: pools.create(pool, by=anna), lambda: SharedBudget.objects.get(name="all")),
        "prices": (
            lambda: set_price("openai:x", usd_micro_in=1, usd_micro_out=2, by=anna),
            lambda: Price.objects.get(model="openai:x"),
        ),
        "releases": (lambda: services.create_ramp(ramp, by=anna), lambda: Ramp.objects.get(agent="importer")),
        "roles": (
            lambda: rights.set_roles(olga.person or 0, ["auditor"], True, by=anna, justification=WHY),
            lambda: User.objects.get(username="olga", is_superuser=True, groups__name="auditor"),
        ),
    }
    for name, (act, made) in every.items():
        change = proposed(act)
        assert change.family == name.partition(",")[0]
        with pytest.raises(Exception, match=r"does not exist|^No .* exists"):
            made()
        agreed(change, bert)
        assert made()
    assert check_changes().problems == []  # type: ignore[union-attr]


def test_every_family_has_acts_and_every_act_keeps_what_it_is_given() -> None:
    assert {known.family for known in acts.values()} - {"guards"} == set(FAMILIES) - set(OTHER_NEEDS)
    for known in acts.values():
        assert isinstance(known, Guarded) and known.needs


def test_where_two_people_give_roles_an_invitation_gives_none(guarded: None, anna: Actor) -> None:
    fields: dict[str, Any] = {"name": "new", "email": "new@example.org", "by": anna, "justification": WHY}
    with pytest.raises(InvalidInput, match="Roles need two people"):
        invitations.invite(roles=["operator"], is_admin=False, **fields)
    with pytest.raises(InvalidInput, match="Roles need two people"):
        invitations.invite(roles=[], is_admin=True, **fields)
    row, _ = invitations.invite(roles=[], is_admin=False, **fields)
    assert row.roles == []


# --- one person is not two ---


def test_a_key_counts_for_nobody_since_an_administrator_makes_keys_for_others(
    guarded: None, anna: Actor, bert: Actor
) -> None:
    key_of_bert = replace(bert, kind="key", name="made by anna", auth="api_key")
    change = proposed(lambda: policies.create(rule(), by=anna))
    with pytest.raises(Forbidden, match="API key"):
        agreed(change, key_of_bert)
    with pytest.raises(Forbidden, match="API key"):
        policies.create(rule(name="theirs"), by=key_of_bert)
    with pytest.raises(Forbidden, match="API key"):
        changes.withdraw(change.pk, by=replace(anna, kind="key", auth="api_key"), justification=WHY)
    assert not Policy.objects.exists() and changes.find(change.pk).state == "open"


def test_where_rules_are_guarded_roles_are_too(anna: Actor, bert: Actor) -> None:
    with pytest.raises(InvalidInput, match="leaves out roles"):
        guards.require(GuardsBody(families=["policies"], justification=WHY), by=anna)
    assert not FourEyes.objects.exists()


def test_nobody_opens_a_door_into_the_account_of_a_second_person(
    guarded: None, anna: Actor, bert: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Template, "_render", instrumented_test_render)
    page, bob = signed_in(anna), User.objects.create_user("bob")
    with pytest.raises(Forbidden, match="may be one of them"):
        resets.make_link(bert.person or 0, by=anna, justification=WHY)
    assert resets.make_link(bob.pk, by=anna, justification=WHY)[0] == bob
    before = User.objects.get(pk=bert.person)
    changed = {"username": "bert", "email": "anna@example.org", "is_active": "on"}
    page.post(f"/admin/auth/user/{bert.person}/change/", changed | {"is_superuser": "on"})
    pair = {"password1": "correct-horse-9", "password2": "correct-horse-9", "usable_password": "true"}
    assert page.post(f"/admin/auth/user/{bert.person}/password/", pair).status_code == 403
    after = User.objects.get(pk=bert.person)
    assert (after.email, after.password, after.username) == (before.email, before.password, before.username)
    queryset = page.get("/admin/socialaccount/socialaccount/add/").context["adminform"].form.fields["user"].queryset
    assert set(queryset.values_list("username", flat=True)) == {"anna", "bob"}
    page.post(f"/admin/auth/user/{bert.person}/change/", {"username": "bert"})  # revoked rights take effect at once
    assert not User.objects.get(pk=bert.person).is_active
    page.post(f"/admin/auth/user/{bert.person}/change/", {"username": "bert", "is_active": "on"})
    assert not User.objects.get(pk=bert.person).is_active


def test_nobody_gives_roles_alone_under_admin(guarded: None, anna: Actor) -> None:
    page, bob = signed_in(anna), User.objects.create_user("bob")
    operators = Group.objects.get_or_create(name="operator")[0]
    given = {"username": "bob", "is_active": "on", "is_staff": "on", "is_superuser": "on", "groups": [operators.pk]}
    given |= {"first_name": "Bob", "date_joined_0": "2026-01-01", "date_joined_1": "00:00:00"}
    assert page.post(f"/admin/auth/user/{bob.pk}/change/", given).status_code == 302
    bob.refresh_from_db()
    assert not bob.is_superuser and not bob.is_staff and not bob.groups.exists()
    assert page.post(f"/admin/auth/group/{operators.pk}/change/", {"name": "operator"}).status_code == 403


# --- the guarded rules ---


def test_what_two_people_change_is_changed_by_two_people(guarded: None, anna: Actor, bert: Actor) -> None:
    off = proposed(lambda: guards.require(GuardsBody(families=[], justification="too slow"), by=anna))
    proposed(lambda: policies.create(rule(), by=anna))
    agreed(off, bert)
    assert policies.create(rule(name="alone"), by=anna).is_in_force
    some = GuardsBody(families=["roles", "queues"], justification=WHY)
    assert guards.require(some, by=anna).families == ["queues", "roles"]


def test_it_is_not_asked_for_where_there_are_no_two(anna: Actor) -> None:
    with pytest.raises(InvalidInput, match="fewer than two people"):
        guards.require(GuardsBody(families=["policies", "roles"], justification=WHY), by=anna)
    with pytest.raises(InvalidInput, match="which does not exist"):
        guards.require(GuardsBody(families=["poli\x00cies"], justification=WHY), by=anna)
    assert not FourEyes.objects.exists()


def test_a_row_that_was_written_past_us_loosens_nothing(guarded: None, anna: Actor) -> None:
    authentic = FourEyes.objects.get()
    FourEyes.objects.create(n=2, families=[], set_by="user:anna", at=authentic.at, code=authentic.code)
    proposed(lambda: policies.create(rule(), by=anna))
    with everybody_agreed():
        guards.require(GuardsBody(families=["policies", "roles"], justification=WHY), by=anna)
    assert check_changes().problems == []  # type: ignore[union-attr]
    (problem,) = protected_rows().problems
    assert problem.startswith("two-person rule '2' (ledger_foureyes 2) was added or changed")


def test_a_change_that_was_forged_or_altered_does_nothing(guarded: None, anna: Actor, bert: Actor) -> None:
    change = proposed(lambda: policies.create(rule(), by=anna))
    RuleChange.objects.filter(pk=change.pk).update(person=bert.person, by=bert.ref)
    with pytest.raises(changes.ChangeOver, match="not recorded by this installation"):
        agreed(change, anna)
    assert not Policy.objects.exists()
    found = check_changes()
    assert found is not None and any("was not written" in problem for problem in found.problems)


def test_an_administrator_alone_says_which_rules_two_people_change(anna: Actor, bert: Actor) -> None:
    some = GuardsBody(families=["policies", "roles"], justification=WHY)
    for other in (somebody("olga", "operator"), Actor("key", "shop", auth="api_key"), Actor("system", "sweeper")):
        with pytest.raises(Forbidden, match="Only an administrator"):
            guards.require(some, by=other)
    assert not FourEyes.objects.exists()
    assert guards.require(some, by=Actor("os", "root", auth="shell")).families == ["policies", "roles"]


def ended(change: RuleChange, by: Actor) -> None:
    """End a change without checks: each row is authentic."""
    with transaction.atomic():
        changes._end("rule_change_apply", change, RuleChange.State.APPLIED, by=by, why=WHY)


def test_verification_finds_a_change_that_one_person_made(guarded: None, anna: Actor, bert: Actor) -> None:
    change = proposed(lambda: policies.create(rule(), by=anna))
    with everybody_agreed():
        policies.create(rule(), by=anna)
    ended(change, anna)
    found = check_changes()
    assert found is not None and f"change {change.pk} was applied by its proposer" in found.problems


def test_verification_finds_a_change_that_did_something_else(guarded: None, anna: Actor, bert: Actor) -> None:
    change = proposed(lambda: policies.create(rule(), by=anna))
    with everybody_agreed():
        policies.create(rule(name="another", effect="allow"), by=bert)
    ended(change, bert)
    found = check_changes()
    assert found is not None and any("effects differ from the proposal" in problem for problem in found.problems)


def test_who_has_a_shell_on_the_server_is_not_held_up(guarded: None) -> None:
    assert policies.create(rule(), by=Actor("os", "root", auth="shell")).is_in_force
