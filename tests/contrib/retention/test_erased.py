"""Erased runs go to their archive and come back as erased ones; archived runs are erased with their files."""

from __future__ import annotations

import errno
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.core.files.storage import FileSystemStorage
from django.core.management import call_command
from django.db import connection
from django.test import Client

from durableagents.contrib.encryption import erasure, master_keys
from durableagents.contrib.encryption.models import Erasure
from durableagents.contrib.retention import archiving, restoring
from durableagents.contrib.retention.models import Pending
from durableagents.identity.auth import issue_key
from ledger.errors import DurableAgentsError
from ledger.verification.registers import verify_registers
from ledger.verification.runs import verify
from runs.models import Run, RunTag
from tests.contrib.encryption.test_payloads import cold
from tests.contrib.retention.keeping import SHELL, age, archived, gone, hold, picture, policy
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


def test_one_list_finds_and_erases_runs_in_the_database_and_in_archives(stage: Stage, folder: Path) -> None:
    first, second, live, other = (told(stage) for _ in range(4))
    for run in (first, second, live):
        RunTag.objects.create(run_id=run.pk, tag="customer:17", created_at=run.created_at)
    policy()
    archiving.run(limit=1)
    kept = hold(run_id=other.pk)
    age(live.pk, -39)
    archiving.run()
    restoring.restore(second.pk, by=SHELL, justification="looked at")  # its file stays
    assert gone(first.pk) and not gone(second.pk, live.pk, other.pk)
    files = {archived(run.pk).place for run in (first, second)}
    assert all((folder / name).exists() for name in files)
    ada = person("ada", "operator", is_superuser=True, is_staff=True)
    admin, operator = Api(issue_key(ada, "test")), Api(issue_key(person("olga", "operator"), "test"))
    found, place = [], "erasures?tag=customer:17&limit=2"
    while place:  # by pages
        page = operator.get(place).json()
        found += page["results"]
        place = (page["next"] or "").partition("/api/v1/")[2]
    by_run = {row["run_id"]: (row["where"], row["kept"]) for row in found}
    places = {first.pk: "archive", second.pk: "database", live.pk: "database"}
    assert by_run == {str(run_id): (place, None) for run_id, place in places.items()}
    assert all(row["business_key"] != "" for row in found)
    assert operator.get("erasures").status_code == 422
    fields = {"runs": list(by_run), "justification": WHY}
    assert operator.post("erasures", fields).status_code == 403
    refused = admin.post("erasures", fields | {"runs": [*by_run, str(other.pk)]})
    assert refused.status_code == 409 and f"Legal hold {kept.pk}" in refused.json()["detail"]
    assert gone(first.pk) and not Erasure.objects.exists() and all((folder / name).exists() for name in files)
    assert admin.post("erasures", fields | {"runs": [str(UUID(int=7))]}).status_code == 404
    assert admin.post("erasures", fields | {"runs": []}).status_code == 422
    browser = Client()
    browser.force_login(ada)
    page_text = browser.get("/runs-and-archives?tag=customer:17").content.decode()
    assert all(f'value="{run_id}"' in page_text for run_id in by_run) and str(other.pk) not in page_text
    assert not re.search(r'name="runs"[^>]*checked', page_text)  # the person chooses what is lost forever
    done = browser.post("/runs-and-archives/erasures", fields | {"tag": "customer:17"})
    assert done.status_code == 302 and "tag=customer" in done["Location"]
    assert {row.run_id for row in Erasure.objects.all()} == {first.pk, second.pk, live.pk}
    assert not any((folder / name).exists() for name in files) and registers() == []
    again = admin.post("erasures", fields)
    assert (again.status_code, again.json()["results"]) == (200, [])
    for row in operator.get("erasures?tag=customer:17").json()["results"]:
        assert row["erased_at"] and row["kept"] is None


def test_a_file_that_cant_be_deleted_is_deleted_by_the_next_round(
    stage: Stage, folder: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    run = told(stage)
    policy()
    archiving.run()
    name = archived(run.pk).place
    configured = settings.DURABLEAGENTS
    settings.DURABLEAGENTS = configured.model_copy(update={"archive": folder / "away"})
    with pytest.raises(DurableAgentsError, match="not an existing folder"):
        erasure.erase(run.pk, by=SHELL, justification=WHY)
    assert gone(run.pk) and not Erasure.objects.exists()
    settings.DURABLEAGENTS = configured
    monkeypatch.setattr(FileSystemStorage, "delete", _refuse)
    assert erasure.erase(run.pk, by=SHELL, justification=WHY).is_new
    monkeypatch.undo()
    assert (folder / name).exists() and Pending.objects.filter(run_id=run.pk).exists()
    age(run.pk)
    with connection.cursor() as cursor:
        cursor.execute(
            "SET session_replication_role = replica; UPDATE retention_restoration SET at = at - interval '40 days'; "
            "SET session_replication_role = origin"
        )
    archiving.run()
    assert not (folder / name).exists() and not Pending.objects.exists()


def _refuse(self: FileSystemStorage, name: str) -> None:
    raise OSError(errno.EROFS, "Read-only file system")
