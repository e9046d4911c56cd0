"""Halts over HTTP: set, looked at, lifted in stages; said by runs under one."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from durableagents.identity import own_tags
from ledger.models import ActRecord
from runs.api.halts.shapes import HaltPage, HaltRow
from runs.models import Halt
from tests.api.conftest import START, Api, is_problem

pytestmark = pytest.mark.django_db
WHY = {"justification": "the other side answers nonsense"}
TOOL = {"scope": "tool", "key": "charge"} | WHY


def test_an_operator_halts_lifts_in_stages_and_everybody_reads_it(operator: Api, auditor: Api) -> None:
    answer = operator.post("halts", TOOL)
    assert answer.status_code == 201, answer.content
    told = answer.json()
    assert HaltRow.model_validate(told) and (told["scope"], told["key"], told["revision"]) == ("tool", "charge", 0)
    path = f"halts/{told['id']}"
    staged = operator.post(f"{path}/stage", WHY | {"share": 12.5, "tags": ["beta"], "revision": 0}).json()
    assert (staged["is_staged"], staged["share"], staged["tags"]) == (True, "12.5", ["beta"])
    is_problem(operator.post(f"{path}/stage", WHY | {"share": 20, "revision": 0}), 409)
    assert operator.post(f"{path}/stage", WHY).json()["is_staged"] is False
    assert operator.post(f"{path}/lift", WHY).json()["state"] == "lifted"
    is_problem(operator.post(f"{path}/lift", WHY), 409)
    page = auditor.get("halts").json()
    assert HaltPage.model_validate(page) and [row["state"] for row in page["results"]] == ["lifted"]
    assert ActRecord.objects.filter(subject=f"halt {told['id']}").count() == 4


@pytest.mark.parametrize(
    "body",
    [
        {"scope": "tool"},
        {"scope": "tol", "key": "charge"},
        {"scope": "all"},
        {"scope": "all", "confirm": "yes"},
        {"scope": "tool", "key": "charge", "justification": ""},
        {"scope": "tool", "key": "charge\u0000"},
        {"scope": "tool", "key": "c" * 400},
        {"scope": "tool", "key": "charge", "stray": 1},
        {"scope": "tag", "key": "a", "kind": "starts"},
        {"key": "charge"},
    ],
)
def test_bad_input_halts_nothing(operator: Api, body: dict[str, Any]) -> None:
    is_problem(operator.post("halts", WHY | body), 422)
    assert not Halt.objects.exists() and not ActRecord.objects.filter(subject__startswith="halt").exists()


def test_a_run_under_a_halt_says_so(operator: Api, integrator: Api) -> None:
    run = integrator.post("runs", START).json()
    assert run["halted"] is None
    operator.post("halts", {"scope": "all", "confirm": "Halt everything"} | WHY)
    told = integrator.get(f"runs/{run['id']}").json()["halted"]
    assert (told["scope"], told["why"]) == ("all", WHY["justification"]) and told["by"] == "key:operator"
    (row,) = [one for one in integrator.get("runs").json()["results"] if one["id"] == run["id"]]
    assert row["halted"] == told
    # no worker has come by yet: it doesn't wait for one
    why = integrator.get(f"runs/{run['id']}/why").json()
    assert why["cause"] == "halted" and WHY["justification"] in why["sentence"] and why["who"]["roles"] == ["operator"]


def test_who_does_not_see_every_run_is_not_told_of_calls_in_flight(operator: Api, integrator: Api) -> None:
    it = operator.post("halts", TOOL).json()
    assert it["in_flight"] == [] and it["held"] == 0
    theirs = integrator.get(f"halts/{it['id']}").json()
    assert theirs["in_flight"] is None and theirs["held"] is None


def test_a_misspelt_name_is_told_with_those_that_are_like_it(operator: Api, integrator: Api) -> None:
    it = operator.post("halts", WHY | {"scope": "agent", "key": "ordr"}).json()
    assert it["unknown"] == [{"scope": "agent", "key": "ordr", "like": ["order"]}] and HaltRow.model_validate(it)
    assert integrator.get(f"halts/{it['id']}").json()["unknown"] == it["unknown"]
    some = {"agents": ["order", "ordr"], "tags": ["vip"]}
    staged = operator.post(f"halts/{it['id']}/stage", WHY | some).json()
    assert [(each["scope"], each["key"]) for each in staged["unknown"]] == [("agent", "ordr"), ("tag", "vip")]
    # whether anybody's runs have a tag is told to those who see every run
    assert {each["scope"] for each in integrator.get(f"halts/{it['id']}").json()["unknown"]} == {"agent"}
    assert operator.post(f"halts/{it['id']}/lift", WHY).json()["unknown"] == []


def test_a_tag_s_halt_is_told_to_those_who_may_know_the_tag(operator: Api, integrator: Api, auditor: Api) -> None:
    acme = operator.post("halts", WHY | {"scope": "tag", "key": "tenant:acme"}).json()["id"]
    all_ = operator.post("halts", WHY | {"scope": "all", "confirm": "halt everything"}).json()["id"]
    operator.post(f"halts/{all_}/stage", WHY | {"tags": ["tenant:acme", "tenant:beta"]})

    def told(api: Api) -> dict[str, list[str]]:
        return {row["id"]: row["tags"] for row in api.get("halts").json()["results"]}

    assert told(auditor) == {acme: [], all_: ["tenant:acme", "tenant:beta"]}
    assert told(integrator) == {all_: []} and is_problem(integrator.get(f"halts/{acme}"), 404)
    own_tags.give(get_user_model().objects.get(username="integrator"), "tenant:acme", justification="Their customer.")
    assert told(integrator) == {acme: [], all_: ["tenant:acme"]}
    assert integrator.get(f"halts/{acme}").json()["key"] == "tenant:acme"
    page = Client()
    page.force_login(get_user_model().objects.get(username="integrator"))
    text = page.get("/").content.decode()
    assert "tenant:acme" in text and "tenant:beta" not in text
