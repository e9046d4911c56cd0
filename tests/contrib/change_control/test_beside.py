"""Four eyes on rules: changes begun before, repeats, and what the second person reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode

from approvals.account_words import was_and_is
from approvals.queues import acts as queues
from approvals.queues.acts import QueueChangeBody
from durableagents.contrib.accounts import resets
from durableagents.contrib.change_control import services as changes
from durableagents.contrib.change_control import setting as guards
from durableagents.contrib.change_control.models import RuleChange
from durableagents.contrib.change_control.setting import GuardsBody
from durableagents.contrib.limits import services as limits
from durableagents.contrib.limits.models import Limit, SharedBudget
from durableagents.contrib.releases.models import Ramp
from ledger.actors import Actor
from ledger.change_control import FAMILIES
from ledger.models import ActRecord
from runs.engine.limits import Rule
from tests.cases import each_case
from tests.contrib.accounts.people import PASSWORD, chosen, invite, meanwhile, path_of
from tests.contrib.change_control.test_rule_changes import agreed, anna, bert, guarded, proposed
from tests.integration.approvals.setup import WHY, signed_in
from tests.integration.console.conftest import text_of
from tests.integration.runs.stage import Stage, at_once
from tests.world import Toolbox, agent_of

pytestmark = pytest.mark.django_db
__all__ = ["anna", "bert", "guarded"]  # fixtures


def guard_all(by: Actor) -> None:
    guards.require(GuardsBody(families=list(FAMILIES), justification=WHY), by=by)


@pytest.mark.parametrize("given", [{"is_admin": True}, {"is_admin": False}])
def test_an_invitation_of_before_makes_no_second_person(anna: Actor, bert: Actor, given: dict[str, bool]) -> None:
    _, path = invite("ghost", "operator", **given)
    assert Client().get(path).status_code == 200
    guard_all(anna)
    for answer in (Client().get(path), Client().post(path, chosen())):
        assert answer.status_code == 410 and "two people give roles here by now. Ask the person" in text_of(answer)
    assert "void: it gives roles" in text_of(signed_in(anna).get("/people"))
    assert not User.objects.filter(username="ghost").exists()
    assert not ActRecord.objects.filter(action="invitation_accept").exists()


@pytest.mark.django_db(transaction=True)
def test_someone_who_accepts_at_that_moment_did_so_before_it_or_not_at_all(
    stage: Stage, anna: Actor, bert: Actor
) -> None:
    paths = [invite(f"ghost{n}", "operator")[1] for n in range(6)]

    def accepting(path: str) -> Callable[[], Any]:
        return lambda: Client().post(path, chosen()).status_code

    outcomes = at_once(*map(accepting, paths[:3]), lambda: guard_all(anna), *map(accepting, paths[3:]))
    assert set(outcomes[:3] + outcomes[4:]) <= {302, 410, 503}
    row = ActRecord.objects.get(action="four_eyes")
    taken = ActRecord.objects.filter(action="invitation_accept")
    assert all(act.at <= row.at for act in taken), "nobody got a role alone once two people give them"


def test_a_link_for_a_password_of_before_is_no_door_into_a_second_persons_account(anna: Actor, bert: Actor) -> None:
    bob = User.objects.create_user("bob", email="bob@example.org", password="what he lost before")
    made = {
        who: resets.make_link(pk, by=anna, justification=WHY)[1]
        for who, pk in (("bert", bert.person or 0), ("bob", bob.pk), ("anna", anna.person or 0))
    }
    paths = {who: path_of(link) for who, link in made.items()}
    mailed = path_of(resets._link(User.objects.get(pk=bert.person)))
    guard_all(anna)
    for answer in (Client().get(paths["bert"]), Client().post(paths["bert"], chosen())):
        assert answer.status_code == 410 and "was made by someone else" in text_of(answer)
    token, statement = (
        paths["bert"].rpartition("/")[2],
        urlsafe_base64_encode(force_bytes(f"{bert.person}.{bert.person}")),
    )
    for whom in (statement, mailed.split("/")[-2]):
        assert Client().get(f"{mailed.rsplit('/', 2)[0]}/{whom}/{token}").status_code == 404, "who made it is signed"
    assert not User.objects.get(pk=bert.person).has_usable_password()
    for path in (mailed, paths["bob"], paths["anna"]):
        assert Client().post(path, chosen()).status_code == 200
    assert all(User.objects.get(pk=one.person).check_password(PASSWORD) for one in (anna, bert))


def test_one_person_adds_no_role_that_may_something(guarded: None, anna: Actor) -> None:
    page, right = signed_in(anna), Permission.objects.get(codename="add_price")
    for name in ("free", "blank"):
        given = {"name": name} | ({"permissions": [str(right.pk)]} if name == "free" else {})
        assert page.post("/admin/auth/group/add/", given).status_code == 302
        assert not Group.objects.get(name=name).permissions.exists()
    assert 'name="permissions"' not in page.get("/admin/auth/group/add/").content.decode()


def test_an_account_that_becomes_a_second_persons_while_its_password_is_hashed_keeps_its_own(
    guarded: None, anna: Actor, bert: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert signed_in(anna).get(f"/admin/auth/user/{bert.person}/password/").status_code == 403
    bob = User.objects.create_user("bob", password="his own for years")
    bob_is = User.objects.filter(pk=bob.pk)
    meanwhile(monkeypatch, PASSWORD, lambda: bob_is.update(is_staff=True))
    pair = {"password1": PASSWORD, "password2": PASSWORD, "usable_password": "true"}
    assert signed_in(anna).post(f"/admin/auth/user/{bob.pk}/password/", pair).status_code == 403
    assert bob_is.get().check_password("his own for years")


def sent(client: Client, path: str, body: dict[str, Any], key: str = "k") -> Any:
    return client.post(f"/api/v1/{path}", body, content_type="application/json", headers={"Idempotency-Key": key})


POOL = {
    "name": "all",
    "scope": "all",
    "whose": "",
    "resource": "tool_calls",
    "period": "day",
    "zone": "UTC",
    "limit": 9,
    "justification": WHY,
}


def ramp_of(tools: Toolbox) -> dict[str, Any]:
    async def node(state: Any, ctx: Any) -> None: ...

    for version in ("1.0.0", "2.0.0"):
        agent_of(node, name="importer", version=version, tools=tools.all())
    return {"agent": "importer", "from_version": "1.0.0", "to_version": "2.0.0", "share": "5", "justification": WHY}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("path", ["shared-budgets", "ramps"])
def test_what_is_proposed_under_an_idempotency_key_is_kept_once(
    stage: Stage, tools: Toolbox, guarded: None, anna: Actor, bert: Actor, path: str
) -> None:
    body = POOL if path == "shared-budgets" else ramp_of(tools)
    client = signed_in(anna)
    first, again = (sent(client, path, body) for _ in range(2))
    assert first.status_code == again.status_code == 202 and first.content == again.content
    assert first["Location"] == again["Location"]
    plain = client.post(f"/api/v1/{path}", body, content_type="application/json")
    assert plain.status_code == 202 and plain.json().keys() == first.json().keys()
    assert (plain["Content-Type"], plain["Location"][:16]) == (first["Content-Type"], first["Location"][:16])
    response = client.get(first["Location"])
    assert response.status_code == 200 and response.json()["id"] == first.json()["change"], "it is where it says"
    assert RuleChange.objects.count() == 2, "the one that was sent twice, and the one without a key"
    assert sent(client, path, body | {"justification": "another one"}).json()["code"] == "idempotency-mismatch"
    agreed(changes.find(response.json()["id"]), bert)
    assert SharedBudget.objects.count() + Ramp.objects.count() == 1
    assert sent(client, path, body).content == first.content, "a repeat is told what the first one was told"


def test_another_value_than_the_one_that_was_read_is_something_else(guarded: None, anna: Actor, bert: Actor) -> None:
    change = proposed(lambda: queues.change("legal", QueueChangeBody(title="Law", justification=WHY), by=anna))
    queues.change("legal", QueueChangeBody(title="Rules", justification=WHY), by=Actor("os", "root", auth="shell"))
    with pytest.raises(changes.ChangedMeanwhile, match="would now have a different effect"):
        agreed(change, bert)
    assert queues.find("legal").title == "Rules"


def test_a_breaker_that_opens_lets_people_agree(stage: Stage, guarded: None, anna: Actor, bert: Actor) -> None:
    change = proposed(lambda: limits.set_limit("provider:acme", Rule(per_minute=5), by=anna, justification=WHY))
    limits.open_breaker("provider:acme", by=anna, justification=WHY)
    agreed(change, bert)
    limit = Limit.objects.get(key="provider:acme")
    assert (limit.given or {})["per_minute"] == 5 and limit.breaker == "open"


def test_runs_line_up_by_a_tag_s_limit_once_it_is_in_force_and_not_before(
    stage: Stage, guarded: None, anna: Actor, bert: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    lined: list[Any] = []
    plain = limits._update_lanes
    monkeypatch.setattr(limits, "_update_lanes", lambda key: (lined.append(key), plain(key)))
    change = proposed(lambda: limits.set_limit("tag:team:*", Rule(at_once=1), by=anna, justification=WHY))
    assert not lined
    agreed(change, bert)
    assert lined == ["tag:team:*"]


@each_case(
    ("name", "before", "after"),
    [("within_seconds", 60, 61), ("proof", {"within": 60}, {"within": 61}), ("steps", [["a", 0]], [["a", 0.5]])],
)
def test_what_differs_never_reads_the_same(name: str, before: Any, after: Any) -> None:
    was, now = was_and_is(name, before, after)
    assert was != now
