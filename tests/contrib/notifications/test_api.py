"""Notifications over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from durableagents.contrib.notifications.models import Delivery, Notice
from durableagents.contrib.notifications.recipients import may_receive
from tests.integration.api.conftest import Api, auditor, caller, integrator, is_problem, operator, order_agent, person  # noqa: F401 (fixtures)
from tests.integration.api.test_roads import intruder, named
from tests.integration.runs.conftest import outside, stage, tools  # noqa: F401 (fixtures)

pytestmark = pytest.mark.django_db


def told(name: str, fact: str, **more: Any) -> Delivery:
    now = timezone.now()
    notice = Notice.objects.create(fact=fact, kind="opened", at=now, due_at=now, state="addressed")
    person = get_user_model().objects.get(username=name).pk
    return Delivery.objects.create(notice=notice, by="email", person=person, due_at=now, made_at=now, **more)


def test_an_integrator_reads_what_they_were_told_and_nothing_of_others(caller: Callable[[Any], Api]) -> None:
    caller("integrator"), caller("operator")
    told("integrator", "a", state="sent")
    told("operator", "b", state="dead")
    assert [row["to"] for row in caller("integrator").get("notifications/deliveries").json()["results"]] == [
        "integrator"
    ]
    every = caller("auditor").get("notifications/deliveries").json()["results"]
    assert [row["to"] for row in every] == ["operator", "integrator"]
    first = caller("auditor").get("notifications/deliveries", limit=1).json()
    assert [row["to"] for row in caller("auditor").get(first["next"]).json()["results"]] == ["integrator"]
    dead = caller("auditor").get("notifications/deliveries", state="dead").json()["results"]
    assert [row["to"] for row in dead] == ["operator"]


def test_an_operator_sends_again_with_a_reason_and_only_what_is_over(caller: Callable[[Any], Api]) -> None:
    operator = caller("operator")
    dead, waiting = told("operator", "a", state="dead"), told("operator", "b")
    path = f"notifications/deliveries/{dead.pk}/replay"
    assert is_problem(operator.post(path, {}), 422)
    assert operator.post(path, {"justification": "It is up again."}).json()["state"] == "waiting"
    assert is_problem(operator.post(path, {"justification": "Once more."}), 409, "illegal-state")
    other = f"notifications/deliveries/{waiting.pk}/replay"
    assert is_problem(operator.post(other, {"justification": "Now."}), 409, "illegal-state")
    assert is_problem(caller("auditor").post(path, {"justification": "Now."}), 403)


def test_forged_role_of_a_authentic_account_gives_no_rights_and_no_mail(db: None) -> None:
    """An inserted role revokes all rights until an administrator has reviewed the account."""
    ada = person("ada", "integrator")
    role = Group.objects.get(name="approver_finance").pk
    with intruder() as cursor:
        cursor.execute("INSERT INTO auth_user_groups (user_id, group_id) VALUES (%s, %s)", [ada.pk, role])
    client = Client()
    client.force_login(ada)
    assert client.get("/inbox").status_code == 302
    assert not may_receive(None, User.objects.get(pk=ada.pk))  # type: ignore[arg-type] # it is judged before the case
    assert "account 'ada'" in named() and "role_given of user:ada" in named()
