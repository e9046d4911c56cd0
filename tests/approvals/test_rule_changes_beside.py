"""Four eyes on the rules, beside the main road: what was begun before, what is repeated, what the second one
reads."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from threading import Event
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.db import connection, transaction
from django.test import Client
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode

from approvals.queues import acts as queues
from approvals.queues.bodies import QueueChangeBody
from durableagents.identity import invitations, resets, rights
from ledger.actors import Actor
from ledger.clock import database_now
from ledger.four_eyes import changes, guards
from ledger.four_eyes.guards import GuardsBody
from ledger.four_eyes.known import FAMILIES
from ledger.four_eyes.verification import every_change
from ledger.models import ActRecord, RuleChange
from runs.models import Pool, Price, Ramp, VersionGate
from runs.services.budgets.pricing import set_price
from runs.services.releases import acts as releases
from runs.services.releases.bodies import RampBody
from tests.approvals.setup import WHY, somebody
from tests.approvals.test_rule_changes import agreed, anna, bert, guarded, proposed
from tests.console.accounts import PASSWORD, chosen, invite, meanwhile, path_of
from tests.console.conftest import text_of
from tests.runs.stage import Stage, at_once
from tests.world import Toolbox, agent_of

pytestmark = pytest.mark.django_db
__all__ = ["anna", "bert", "guarded"]  # fixtures


def guard_all(by: Actor) -> None:
    guards.require(GuardsBody(families=list(FAMILIES), justification=WHY), by=by)


def client_of(by: Actor) -> Client:
    found = Client()
    found.force_login(User.objects.get(pk=by.person))
    return found


# --- one person is not two ---


@pytest.mark.parametrize("given", [{"is_admin": True}, {"is_admin": False}])
def test_an_invitation_of_before_makes_no_second_person(anna: Actor, bert: Actor, given: dict[str, bool]) -> None:
    _, path = invite("ghost", "operator", **given)
    assert Client().get(path).status_code == 200
    guard_all(anna)
    for answer in (Client().get(path), Client().post(path, chosen())):
        assert answer.status_code == 410 and "two people give roles here by now. Ask whoever" in text_of(answer)
    assert "opens nothing" in text_of(client_of(anna).get("/people"))
    assert not User.objects.filter(username="ghost").exists()
    assert not ActRecord.objects.filter(action="invitation_accept").exists()


def test_an_invitation_that_gives_no_role_stays_good(anna: Actor, guarded: None) -> None:
    _, link = invitations.invite(
        name="ada", email="ada@example.org", roles=[], is_admin=False, by=anna, justification=WHY
    )
    assert Client().post(link[link.index("/invited") :], chosen()).status_code == 302
    ada = User.objects.get(username="ada")
    assert not ada.groups.exists() and not ada.is_staff and not ada.is_superuser


def test_where_two_people_give_roles_no_longer_the_link_is_good_again(anna: Actor, bert: Actor) -> None:
    _, path = invite("ada", "operator")
    guard_all(anna)
    agreed(proposed(lambda: guards.require(GuardsBody(families=[], justification=WHY), by=anna)), bert)
    assert Client().post(path, chosen()).status_code == 302


@pytest.mark.django_db(transaction=True)
def test_whoever_accepts_at_that_moment_did_so_before_it_or_not_at_all(stage: Stage, anna: Actor, bert: Actor) -> None:
    paths = [invite(f"ghost{n}", "operator")[1] for n in range(6)]

    def accepting(path: str) -> Callable[[], Any]:
        return lambda: Client().post(path, chosen()).status_code

    outcomes = at_once(*map(accepting, paths[:3]), lambda: guard_all(anna), *map(accepting, paths[3:]))
    assert set(outcomes[:3] + outcomes[4:]) <= {302, 410, 503}
    said = ActRecord.objects.get(action="four_eyes")
    taken = ActRecord.objects.filter(action="invitation_accept")
    assert all(act.at <= said.at for act in taken), "nobody got a role alone once two people give them"


def test_a_link_for_a_password_of_before_is_no_door_into_a_second_persons_account(anna: Actor, bert: Actor) -> None:
    bob = User.objects.create_user("bob", email="bob@example.org", password="what he lost before")
    made = {
        who: resets.make_link(pk, by=anna, justification=WHY)[1]
        for who, pk in (
            ("bert", bert.person or 0),
            ("bob", bob.pk),
            ("anna", anna.person or 0),
        )
    }
    paths = {who: path_of(link) for who, link in made.items()}
    mailed = path_of(resets._link(User.objects.get(pk=bert.person)))
    guard_all(anna)
    for answer in (Client().get(paths["bert"]), Client().post(paths["bert"], chosen())):
        assert answer.status_code == 410 and "was made by somebody else" in text_of(answer)
    token, said = paths["bert"].rpartition("/")[2], urlsafe_base64_encode(force_bytes(f"{bert.person}.{bert.person}"))
    for whom in (said, mailed.split("/")[-2]):
        assert Client().get(f"{mailed.rsplit('/', 2)[0]}/{whom}/{token}").status_code == 404, "who made it is signed"
    assert not User.objects.get(pk=bert.person).has_usable_password()
    for path in (mailed, paths["bob"], paths["anna"]):
        assert Client().post(path, chosen()).status_code == 200
    assert all(User.objects.get(pk=one.person).check_password(PASSWORD) for one in (anna, bert))


def test_a_link_for_a_password_ends_when_its_account_becomes_a_second_person(
    guarded: None, anna: Actor, bert: Actor
) -> None:
    bob = User.objects.create_user("bob", email="bob@example.org")
    path = path_of(resets.make_link(bob.pk, by=anna, justification=WHY)[1])
    assert Client().get(path).status_code == 200
    agreed(proposed(lambda: rights.set_roles(bob.pk, ["operator"], False, by=anna, justification=WHY)), bert)
    assert Client().post(path, chosen()).status_code == 410
    assert not User.objects.get(pk=bob.pk).has_usable_password()


def test_one_person_adds_no_role_that_may_something(guarded: None, anna: Actor) -> None:
    page, right = client_of(anna), Permission.objects.get(codename="add_price")
    for name in ("free", "blank"):
        given = {"name": name} | ({"permissions": [str(right.pk)]} if name == "free" else {})
        assert page.post("/admin/auth/group/add/", given).status_code == 302
        assert not Group.objects.get(name=name).permissions.exists()
    assert 'name="permissions"' not in page.get("/admin/auth/group/add/").content.decode()


def test_where_one_person_gives_roles_they_add_one_with_what_it_may(anna: Actor) -> None:
    right = Permission.objects.get(codename="add_price")
    client_of(anna).post("/admin/auth/group/add/", {"name": "free", "permissions": [str(right.pk)]})
    assert list(Group.objects.get(name="free").permissions.all()) == [right]


def test_an_account_that_becomes_a_second_persons_while_its_password_is_hashed_keeps_its_own(
    guarded: None, anna: Actor, bert: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client_of(anna).get(f"/admin/auth/user/{bert.person}/password/").status_code == 403
    bob = User.objects.create_user("bob", password="his own for years")
    bob_is = User.objects.filter(pk=bob.pk)
    meanwhile(monkeypatch, PASSWORD, lambda: bob_is.update(is_staff=True))
    pair = {"password1": PASSWORD, "password2": PASSWORD, "usable_password": "true"}
    assert client_of(anna).post(f"/admin/auth/user/{bob.pk}/password/", pair).status_code == 403
    assert bob_is.get().check_password("his own for years")


# For what this session holds; an error after ten seconds.
_UNTIL_SOMEBODY_WAITS = """
    DO $$ BEGIN
        WHILE NOT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid)))
        LOOP
            ASSERT clock_timestamp() < transaction_timestamp() + interval '10 seconds', 'nobody waits for the account';
            PERFORM pg_sleep(0.01);
        END LOOP;
    END $$"""


@pytest.mark.django_db(transaction=True)
def test_an_account_that_becomes_a_second_persons_while_it_is_changed_keeps_its_address(
    stage: Stage, guarded: None, anna: Actor
) -> None:
    bob = User.objects.create_user("bob", email="bob@example.org")
    client, begun = client_of(anna), Event()

    def promoting() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            User.objects.filter(pk=bob.pk).update(is_staff=True)
            begun.set()
            cursor.execute(_UNTIL_SOMEBODY_WAITS)

    def changing() -> int:
        assert begun.wait(20)
        given = {"username": "bob", "email": "anna@example.org", "is_active": "on", "date_joined_0": "2026-01-01"}
        where = f"/admin/auth/user/{bob.pk}/change/"
        return int(client.post(where, {**given, "date_joined_1": "00:00:00"}).status_code)

    assert at_once(promoting, changing) == [None, 403]
    assert User.objects.get(pk=bob.pk).email == "bob@example.org"


# --- a request that is repeated ---


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
    return {
        "agent": "importer",
        "from_version": "1.0.0",
        "to_version": "2.0.0",
        "share": "5",
        "justification": WHY,
    }


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("path", ["pools", "ramps"])
def test_what_is_proposed_under_an_idempotency_key_is_kept_once(
    stage: Stage, tools: Toolbox, guarded: None, anna: Actor, bert: Actor, path: str
) -> None:
    body = POOL if path == "pools" else ramp_of(tools)
    client = client_of(anna)
    first, again = (sent(client, path, body) for _ in range(2))
    assert first.status_code == again.status_code == 202 and first.content == again.content
    assert first["Location"] == again["Location"]
    plain = client.post(f"/api/v1/{path}", body, content_type="application/json")
    assert plain.status_code == 202 and plain.json().keys() == first.json().keys()
    assert (plain["Content-Type"], plain["Location"][:16]) == (first["Content-Type"], first["Location"][:16])
    told = client.get(first["Location"])
    assert told.status_code == 200 and told.json()["id"] == first.json()["change"], "it is where it says"
    assert RuleChange.objects.count() == 2, "the one that was sent twice, and the one without a key"
    assert sent(client, path, body | {"justification": "another one"}).json()["code"] == "idempotency-mismatch"
    agreed(changes.find(told.json()["id"]), bert)
    assert Pool.objects.count() + Ramp.objects.count() == 1
    assert sent(client, path, body).content == first.content, "a repeat is told what the first one was told"


@pytest.mark.django_db(transaction=True)
def test_what_is_refused_under_an_idempotency_key_keeps_nothing(stage: Stage, guarded: None, anna: Actor) -> None:
    client = client_of(anna)
    assert sent(client, "pools", POOL | {"whose": "x"}).status_code == 422
    assert not RuleChange.objects.exists()
    assert sent(client, "pools", POOL).status_code == 202, "the key may be used again"


# --- what an account is let besides ---


def test_who_gets_another_role_keeps_what_they_may_do_in_the_administration(anna: Actor) -> None:
    prices = User.objects.get(pk=somebody("paul", "auditor", is_staff=True).person)
    prices.user_permissions.add(Permission.objects.get(codename="add_price"))
    rights.set_roles(prices.pk, ["operator"], False, by=anna, justification=WHY)
    client = Client()
    client.force_login(prices)
    assert client.get("/admin/runs/price/add/").status_code == 200
    act = ActRecord.objects.get(action="roles")
    assert "is_staff" not in act.before and "is_staff" not in act.after


def test_who_becomes_an_administrator_and_is_none_any_more_is_told_of_the_administration(
    anna: Actor, bert: Actor
) -> None:
    olga = somebody("olga", "operator")
    for is_admin in (True, False):
        rights.set_roles(olga.person or 0, ["operator"], is_admin, by=anna, justification=WHY)
        found = User.objects.get(pk=olga.person)
        assert (found.is_staff, found.is_superuser) == (is_admin, is_admin)
        act = ActRecord.objects.filter(action="roles").latest("n")
        assert (act.before["is_staff"], act.after["is_staff"]) == (not is_admin, is_admin)


# --- what the second one reads ---


def test_from_when_on_a_price_counts_is_read_and_does_not_move(guarded: None, anna: Actor, bert: Actor) -> None:
    from_then = database_now() - timedelta(days=30)
    given: dict[str, Any] = {"usd_micro_in": 1, "usd_micro_out": 2, "by": anna}
    chosen_one = proposed(lambda: set_price("openai:x", valid_from=from_then, **given))
    at_once_one = proposed(lambda: set_price("openai:y", **given))
    client = client_of(bert)
    for change, words in ((chosen_one, from_then.isoformat()), (at_once_one, "at once")):
        page = text_of(client.get(f"/changes/{change.pk}"))
        assert "begins" in page and words in page
        (told,) = client.get(f"/api/v1/changes/{change.pk}").json()["told"]
        assert told["after"]["begins"] == words and "valid_from" not in told["after"]
        agreed(change, bert)
    assert Price.objects.get(model="openai:x").valid_from == from_then
    act = ActRecord.objects.get(action="price", subject="openai:x")
    assert act.after["begins"] == act.after["valid_from"] == from_then.isoformat()
    assert every_change().problems == []  # type: ignore[union-attr]


def test_which_version_a_ramp_opens_is_read(
    stage: Stage, tools: Toolbox, guarded: None, anna: Actor, bert: Actor
) -> None:
    body = ramp_of(tools)
    releases.close("importer", "2.0.0", by=anna, justification=WHY)
    change = proposed(lambda: releases.begin(RampBody(**body | {"share": Decimal(5)}), by=anna))
    assert [told["subject"] for told in change.told] == ["version importer@2.0.0", "ramp (new)"]
    agreed(change, bert)
    assert not VersionGate.objects.get(agent="importer", version="2.0.0").is_closed
    assert every_change().problems == []  # type: ignore[union-attr]


def test_another_value_than_the_one_that_was_read_is_something_else(guarded: None, anna: Actor, bert: Actor) -> None:
    change = proposed(lambda: queues.change("legal", QueueChangeBody(title="Law", justification=WHY), by=anna))
    queues.change("legal", QueueChangeBody(title="Rules", justification=WHY), by=Actor("os", "root", auth="shell"))
    with pytest.raises(changes.ChangedMeanwhile, match="would do something else"):
        agreed(change, bert)
    assert queues.find("legal").title == "Rules"
