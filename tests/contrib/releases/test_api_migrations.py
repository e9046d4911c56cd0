"""Migrating runs over HTTP and from a shell: preview, one run at a time, refusals."""

from __future__ import annotations

import io
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command

from durableagents import Context, End
from durableagents.contrib.releases import migrating, previewing
from ledger.models import OverrideRecord
from runs.connections import dsn
from runs.engine.agents import registry
from runs.models import Run
from runs.services import lifecycle
from tests.integration.api.conftest import Api, is_problem
from tests.integration.runs.conftest import stage  # noqa: F401 (fixture)
from tests.integration.runs.stage import Stage
from tests.world import SHOP, Notes, agent_of, ends_with, only_for_now

NAME = "moving-api"
MOVE = {"from_version": "1.0.0", "to_version": "2.0.0", "nodes": {"finish": "finish"}}
WHY = {"justification": "the old one is wrong"}
KEY = {"headers": {"Idempotency-Key": "move-2"}}


@pytest.fixture(autouse=True)
def two() -> Any:
    with only_for_now():
        for version in ("1.0.0", "2.0.0"):
            agent_of(ends_with(version), name=NAME, version=version)
        yield


@pytest.fixture
def runs(integrator: Api) -> list[str]:
    return [integrator.post("runs", {"agent": f"{NAME}@1.0.0", "input": {}}).json()["id"] for _ in range(3)]


def versions() -> list[str]:
    return list(Run.objects.order_by("created_at").values_list("version", flat=True))


def test_a_look_tells_what_would_become_of_each_and_changes_nothing(auditor: Api, runs: list[str]) -> None:
    results = auditor.post(f"agents/{NAME}/migrations/look", MOVE | {"limit": 2}).json()["results"]
    assert [(one["run"], one["how"], one["is_moved"]) for one in results] == [
        (run, "unbegun", False) for run in runs[:2]
    ]
    assert versions() == ["1.0.0"] * 3
    gone = "00000000-0000-4000-8000-000000000000"
    (one,) = auditor.post(f"agents/{NAME}/migrations/look", MOVE | {"runs": [gone]}).json()["results"]
    assert (one["how"], one["code"]) == ("refused", "not_found")


def test_runs_are_moved_and_a_repeat_is_about_the_same_ones(operator: Api, runs: list[str]) -> None:
    key = {"headers": {"Idempotency-Key": "move-1"}}
    first = operator.post(f"agents/{NAME}/migrations", MOVE | WHY | {"limit": 2}, **key)
    assert first.status_code == 200, first.content
    assert [(one["run"], one["is_moved"]) for one in first.json()["results"]] == [(run, True) for run in runs[:2]]
    again = operator.post(f"agents/{NAME}/migrations", MOVE | WHY | {"limit": 2}, **key)
    assert "Idempotent-Replayed" not in first and again["Idempotent-Replayed"] == "true"
    assert again.json() == first.json() and versions() == ["2.0.0", "2.0.0", "1.0.0"]
    assert OverrideRecord.objects.filter(action="migrate").count() == 2
    another = operator.post(f"agents/{NAME}/migrations", MOVE | WHY | {"limit": 1}, **key)
    assert is_problem(another, 422, "idempotency-mismatch")


def test_what_can_not_be_is_refused_by_name(operator: Api, integrator: Api, runs: list[str]) -> None:
    left_out = operator.post(f"agents/{NAME}/migrations", MOVE | WHY | {"nodes": {}})
    assert is_problem(left_out, 422, "invalid-input")
    assert left_out.json()["errors"][0]["field"] == "nodes.finish"
    for wrong in (
        {"limit": 0},
        {"state": "failed"},
        {"x": 1},
        {"nodes": {"finish": 1}},
        {"runs": ["no id"]},
    ):
        assert is_problem(operator.post(f"agents/{NAME}/migrations", MOVE | WHY | wrong), 422), wrong
    assert is_problem(operator.post(f"agents/{NAME}/migrations", MOVE), 422)
    assert is_problem(operator.post(f"agents/{NAME}/migrations", MOVE | {"justification": " "}), 422)
    assert is_problem(operator.post("agents/nobody/migrations", MOVE | WHY), 404)
    assert is_problem(integrator.post(f"agents/{NAME}/migrations", MOVE | WHY), 403)
    assert is_problem(integrator.post(f"agents/{NAME}/migrations/look", MOVE), 403)
    assert versions() == ["1.0.0"] * 3


def shell(*words: str) -> str:
    out = io.StringIO()
    call_command("versions", "migrate", f"{NAME}@1.0.0", f"{NAME}@2.0.0", *words, stdout=out)
    return out.getvalue()


def test_the_command_looks_and_moves(runs: list[str]) -> None:
    found = shell("--node", "finish=finish", "--dry-run")
    assert found.count("would be unbegun") == 3 and versions() == ["1.0.0"] * 3
    assert shell("--node", "finish=finish", "--run", runs[0], "--justification", "the old one is wrong").startswith(
        f"{runs[0]}\tunbegun"
    )
    assert versions() == ["2.0.0", "1.0.0", "1.0.0"]
    record = OverrideRecord.objects.get(action="migrate")
    assert record.by.startswith("os:") and record.auth == "shell"
    with pytest.raises(CommandError, match="1 of 1 were not migrated"):
        shell("--node", "finish=finish", "--run", runs[0], "--justification", "once more")
    with pytest.raises(CommandError, match=r"nodes\.finish is missing"):
        shell("--justification", "the old one is wrong")
    with pytest.raises(CommandError, match="needs a reason"):
        shell("--node", "finish=finish")
    with pytest.raises(CommandError, match="'finish' is not OLD=NEW"):
        shell("--node", "finish", "--dry-run")
    with pytest.raises(CommandError, match="are different agents"):
        call_command("versions", "migrate", f"{NAME}@1.0.0", "other@2.0.0", "--dry-run")


@pytest.mark.django_db(transaction=True)
def test_a_failed_run_is_moved_and_retried_over_http_and_from_a_shell(
    operator: Api,
    auditor: Api,
    stage: Stage,
) -> None:
    async def finish(state: Notes, ctx: Context) -> End:
        raise ZeroDivisionError("the fee")

    registry.remove(f"{NAME}@1.0.0")
    agent_of(finish, name=NAME, version="1.0.0")
    failed = [lifecycle.start(f"{NAME}@1.0.0", {}, by=SHOP) for _ in range(2)]
    assert [stage.settle(run) for run in failed] == ["failed", "failed"]
    first, second = (str(run.id) for run in failed)
    fields = MOVE | {"runs": [first]}
    (one,) = auditor.post(f"agents/{NAME}/migrations/look", fields).json()["results"]
    assert (one["how"], one["code"], one["is_retried"]) == ("refused", "ended", False)
    (one,) = auditor.post(f"agents/{NAME}/migrations/look", fields | {"retry": True}).json()["results"]
    assert (one["how"], one["is_moved"], one["is_retried"]) == ("replayed", False, True)
    wrong = operator.post(f"agents/{NAME}/migrations", MOVE | WHY | {"retry": True, "state": "pending"})
    assert is_problem(wrong, 422) and wrong.json()["errors"][0]["field"] == "state"
    done = operator.post(f"agents/{NAME}/migrations", fields | WHY | {"retry": True}, **KEY).json()
    assert [(x["is_moved"], x["is_retried"]) for x in done["results"]] == [(True, True)]
    assert operator.post(f"agents/{NAME}/migrations", fields | WHY | {"retry": True}, **KEY).json() == done
    assert "would be replayed" in (found := shell("--node", "finish=finish", "--retry", "--dry-run"))
    assert found.startswith(second) and "retried" in found
    assert "retried" in shell("--node", "finish=finish", "--retry", "--justification", "the fee is right now")
    assert versions() == ["2.0.0", "2.0.0"] and stage.settle(failed[0]) == "completed"
    records = OverrideRecord.objects.filter(run_id=failed[0].pk).order_by("id").values_list("action", flat=True)
    assert [*records] == ["retry", "migrate"]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    tried: list[str] = []
    plain = previewing.preview_run

    def look(run_id: Any, moving: Any) -> Any:
        tried.append(str(run_id))
        return plain(run_id, moving)

    monkeypatch.setattr(migrating, "preview_run", look)
    return tried


@pytest.mark.django_db(transaction=True)
def test_a_repeat_tries_only_what_was_busy(operator: Api, runs: list[str], looks: list[str]) -> None:
    with psycopg.connect(dsn(name="somebody else")) as holder:
        holder.execute("SELECT 1 FROM ledger_head WHERE run_id = %s FOR UPDATE", [runs[1]])
        first = operator.post(f"agents/{NAME}/migrations", MOVE | WHY, **KEY).json()["results"]
    assert [one["code"] for one in first] == ["", "busy", ""] and versions() == ["2.0.0", "1.0.0", "2.0.0"]
    looks.clear()
    again = operator.post(f"agents/{NAME}/migrations", MOVE | WHY, **KEY).json()["results"]
    assert looks == [runs[1]] and all(one["is_moved"] for one in again) and again[0] == first[0]
    assert OverrideRecord.objects.filter(action="migrate").count() == 3
