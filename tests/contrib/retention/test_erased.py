"""Erased runs go to their archive and come back as erased ones; archived runs are restored before they are erased."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client

from durableagents.contrib.encryption import erasure, master_keys
from durableagents.contrib.encryption.models import Erasure
from durableagents.contrib.retention import archiving, register, restoring
from durableagents.identity.auth import issue_key
from ledger.verification.registers import verify_registers
from ledger.verification.runs import verify
from runs.models import Run
from tests.contrib.encryption.test_payloads import cold
from tests.contrib.retention.keeping import SHELL, age, gone, picture, policy
from tests.integration.api.conftest import Api, person
from tests.integration.runs.stage import Stage
from tests.world import agent_of, ends_with

WHY = "Request of the person concerned, ticket 4711"


@pytest.fixture(autouse=True)
def _own_keys() -> Iterator[None]:
    cold()
    yield
    master_keys.forget()
    cold()


def told(stage: Stage, text: str = "a canary") -> Run:
    run = stage.start(agent_of(ends_with({"told": text})), text=text)
    stage.settle(run)
    age(run.pk)
    return run


def registers() -> list[str]:
    return [problem for listed in verify_registers() for problem in listed.problems]


def test_an_erased_run_is_archived_as_erased(stage: Stage) -> None:
    run, other = told(stage), told(stage)
    erasure.erase(run.pk, by=SHELL, justification=WHY)
    before = picture(run.pk), verify(run.pk)
    policy()
    assert archiving.run().archived == 2 and gone(run.pk) and Erasure.objects.filter(run_id=run.pk).exists()
    for _ in range(2):
        found = verify(run.pk)
        assert found.problems == [] and found.notes[0].startswith("Content erased on ") and WHY in found.notes[0]
        cold()
    assert verify(other.pk).notes == [] and registers() == []
    out = io.StringIO()
    call_command("retention", "show", str(run.pk), "--payloads", stdout=out)
    assert WHY in out.getvalue() and "unreadable" not in out.getvalue()
    petra = person("petra", "operator", "auditor")
    api = Api(issue_key(petra, "test"))
    by_run = {row["run_id"]: row["erased_at"] for row in api.get("retention/archives").json()["results"]}
    assert by_run[str(run.pk)] and by_run[str(other.pk)] is None
    assert api.get(f"retention/archives/{run.pk}").json()["erased_at"]
    assert "erased on" in api.get(f"runs/{run.pk}").json()["detail"]
    browser = Client()
    browser.force_login(petra)
    page = browser.get(f"/archive/{run.pk}").content.decode()
    assert WHY in page and "unreadable" not in page
    restoring.restore(run.pk, by=SHELL, justification="asked for")
    assert (picture(run.pk), verify(run.pk)) == before and registers() == []
    age(run.pk)
    with connection.cursor() as cursor:  # the register is emptied: the archive still tells
        cursor.execute(
            "SET session_replication_role = replica; DELETE FROM encryption_erasure; "
            "SET session_replication_role = origin"
        )
    assert any("erasure register has no entry" in each for each in registers())


def test_an_archived_run_is_restored_before_it_is_erased(stage: Stage) -> None:
    run = told(stage)
    policy()
    archiving.run()
    with pytest.raises(register.RunArchived, match=f"retention restore {run.pk} --reason"):
        erasure.erase(run.pk, by=SHELL, justification=WHY)
    err = io.StringIO()
    with pytest.raises(SystemExit):
        call_command("runs", "erase", str(run.pk), "--reason", WHY, stderr=err)
    assert "was archived on" in err.getvalue() and "restore it first" in err.getvalue()
    admin = Api(issue_key(person("ada", "operator", is_superuser=True, is_staff=True), "test"))
    refused = admin.post(f"runs/{run.pk}/erase", {"justification": WHY})
    assert (refused.status_code, refused.json()["code"]) == (410, "archived")
    restoring.restore(run.pk, by=SHELL, justification=WHY)
    assert erasure.erase(run.pk, by=SHELL, justification=WHY).is_new and registers() == []
