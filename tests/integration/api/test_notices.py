"""Notifications over HTTP: one's own settings and deliveries, everybody's for those who answer for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone

from approvals.models import Delivery, Notice
from tests.integration.api.conftest import Api, is_problem

pytestmark = pytest.mark.django_db
OWN = {"ways": {"opened": ["browser"]}, "zone": "Europe/Berlin", "quiet_from": "22:00", "quiet_until": "07:00"}


def told(name: str, fact: str, **more: Any) -> Delivery:
    now = timezone.now()
    notice = Notice.objects.create(fact=fact, kind="opened", at=now, due_at=now, state="addressed")
    person = get_user_model().objects.get(username=name).pk
    return Delivery.objects.create(notice=notice, by="email", person=person, due_at=now, made_at=now, **more)


def test_each_sets_and_reads_their_own(caller: Callable[[Any], Api]) -> None:
    answer = caller("operator").post("notifications/settings", OWN)
    assert answer.status_code == 200, answer.content
    mine = caller("operator").get("notifications/settings").json()
    assert (mine["zone"], mine["quiet_until"], mine["ways"]["opened"]) == ("Europe/Berlin", "07:00", ["browser"])
    others = caller("auditor").get("notifications/settings").json()
    assert (others["zone"], others["ways"]["opened"]) == ("UTC", ["email", "push"])
    assert is_problem(caller("operator").post("notifications/settings", {"zone": "Nowhere"}), 422)


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
