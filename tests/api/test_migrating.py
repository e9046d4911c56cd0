"""Moving runs over HTTP and from a shell: a look first, then each run by itself, and what is refused."""

from __future__ import annotations

import io
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from ledger.models import OverrideRecord
from runs.models import Run
from tests.api.conftest import Api, is_problem
from tests.world import agent_of, ends_with, only_for_now

pytestmark = pytest.mark.django_db
NAME = "moving-api"
MOVE = {"from_version": "1.0.0", "to_version": "2.0.0", "nodes": {"finish": "finish"}}
WHY = {"justification": "the old one is wrong"}


@pytest.fixture(autouse=True)
def two() -> Any:
    with only_for_now():
        for version in ("1.0.0", "2.0.0"):
            agent_of(ends_with(version), name=NAME, version=version)
        yield


@pytest.fixture
def runs(integrator: Api) -> list[str]:
    return [
        integrator.post("runs", {"agent": f"{NAME}@1.0.0", "input": {}}).json()["id"] for _ in range(3)
    ]  # fmt: skip


def versions() -> list[str]:
    return list(Run.objects.order_by("created_at").values_list("version", flat=True))


def test_a_look_tells_what_would_become_of_each_and_changes_nothing(auditor: Api, runs: list[str]) -> None:
    told = auditor.post(f"agents/{NAME}/migrations/look", MOVE | {"limit": 2}).json()["results"]
    assert [(one["run"], one["how"], one["is_moved"]) for one in told] == [(run, "unbegun", False) for run in runs[:2]]
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
    assert again.json() == first.json() and versions() == ["2.0.0", "2.0.0", "1.0.0"]
    assert OverrideRecord.objects.filter(action="migrate").count() == 2
    another = operator.post(f"agents/{NAME}/migrations", MOVE | WHY | {"limit": 1}, **key)
    assert is_problem(another, 422, "idempotency-mismatch")


def test_what_can_not_be_is_refused_by_name(operator: Api, integrator: Api, runs: list[str]) -> None:
    left_out = operator.post(f"agents/{NAME}/migrations", MOVE | WHY | {"nodes": {}})
    assert is_problem(left_out, 422, "invalid-input")
    assert left_out.json()["errors"][0]["field"] == "nodes.finish"
    for wrong in ({"to_version": "7.0.0"}, {"runs": []}, {"limit": 0}, {"limit": 101}, {"state": "failed"}, {"x": 1},
                  {"nodes": {"finish": "x"}}, {"nodes": {"finish": 1}}, {"runs": ["no id"]}):  # fmt: skip
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
    told = shell("--node", "finish=finish", "--dry-run")
    assert told.count("would be unbegun") == 3 and versions() == ["1.0.0"] * 3
    assert shell("--node", "finish=finish", "--run", runs[0], "--justification", "the old one is wrong").startswith(
        f"{runs[0]}\tunbegun"
    )
    assert versions() == ["2.0.0", "1.0.0", "1.0.0"]
    record = OverrideRecord.objects.get(action="migrate")
    assert record.by.startswith("os:") and record.auth == "shell"
    with pytest.raises(CommandError, match="1 of 1 stay where they are"):
        shell("--node", "finish=finish", "--run", runs[0], "--justification", "once more")
    with pytest.raises(CommandError, match=r"nodes\.finish is left out"):
        shell("--justification", "the old one is wrong")
    with pytest.raises(CommandError, match="needs a justification"):
        shell("--node", "finish=finish")
    with pytest.raises(CommandError, match="'finish' is no OLD=NEW"):
        shell("--node", "finish", "--dry-run")
    with pytest.raises(CommandError, match="two agents"):
        call_command("versions", "migrate", f"{NAME}@1.0.0", "other@2.0.0", "--dry-run")
