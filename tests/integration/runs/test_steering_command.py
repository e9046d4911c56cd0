"""`manage.py runs` and `manage.py approvals` act as a named account, with its rights, and say so in exit codes."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command

from approvals.models import Approval
from ledger.models import OverrideRecord
from runs.models import Run
from tests.integration.runs.situations import Situations
from tests.integration.runs.stage import Stage, fresh
from tests.world import Toolbox, agent_of, ends_with


def account(name: str, role: str) -> User:
    user = User.objects.create_user(name)
    user.groups.add(Group.objects.get_or_create(name=role)[0])
    return user


def said(*command: str, code: int = 0) -> Any:
    """Return the command's JSON, or the detail of its refusal, a problem document."""
    out, refusal, ended = StringIO(), StringIO(), 0
    try:
        call_command(*command, "--json", stdout=out, stderr=refusal)
    except SystemExit as end:
        ended = int(str(end.code))
    assert ended == code, refusal.getvalue()
    if refusal.getvalue():
        document = json.loads(refusal.getvalue())
        assert document["code"] and not out.getvalue()
        return document["detail"]
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    return lines[0] if len(lines) == 1 else lines


def test_a_run_is_started_steered_and_waited_for_from_a_shell(stage: Stage, tmp_path: Path) -> None:
    agent = agent_of(ends_with(7))
    account("ci", "integrator")
    account("olga", "operator")
    account("ada", "auditor")
    given = tmp_path / "input.json"
    given.write_text(json.dumps(agent.input().model_dump(mode="json")))
    start = ["runs", "start", agent.graph_id, "--as", "ci", "--input", str(given), "--idempotency-key", "order-1"]
    run = said(*start)["id"]
    assert said(*start)["id"] == run and Run.objects.count() == 1
    assert said("runs", "wait", run, "--as", "ci", "--timeout", "0", code=13)["state"] == "pending"
    assert said("runs", "pause", run, "--as", "olga", code=2).endswith("it is recorded.")
    said("runs", "pause", run, "--as", "ada", "--justification", "Please.", code=3)
    assert said("runs", "pause", run, "--as", "olga", "--justification", "The bank is closed.")["state"] == "paused"
    record = OverrideRecord.objects.get()
    assert (record.by, record.auth, record.address[:3]) == ("user:olga", "command", "os:")
    said("runs", "resume", run, "--as", "olga", "--justification", "It is open again.")
    assert stage.drive() == "completed"
    assert said("runs", "wait", run, "--as", "ci")["state"] == "completed"
    events = said("runs", "tail", run, "--as", "ci", "--after", "1")
    assert [each["seq"] for each in events] == list(range(2, events[-1]["seq"] + 1))
    said("runs", "cancel", run, "--as", "olga", "--justification", "Too late.", code=5)


def test_refusals_have_their_own_exit_codes_and_change_nothing(stage: Stage) -> None:
    agent = agent_of(ends_with(7))
    account("ci", "integrator")
    User.objects.create_user("gone", is_active=False)
    for command, code, why in [
        (["runs", "start", agent.graph_id], 2, "--as: name the account"),
        (["runs", "start", agent.graph_id, "--as", "nobody"], 3, "no account is named 'nobody'"),
        (["runs", "start", agent.graph_id, "--as", "gone"], 3, "closed"),
        (["runs", "start", "no-such-agent", "--as", "ci"], 2, "no-such-agent"),
        (["runs", "start", agent.graph_id, "--as", "ci", "--input", "/nowhere"], 2, "cannot read /nowhere"),
        (["runs", "show", "7", "--as", "ci"], 2, "isn't a run id"),
        (["runs", "show", "5d0c0b3c-0000-4000-8000-000000000000", "--as", "ci"], 4, "don't have access"),
        (["approvals", "list", "--as", "ci", "--queue", "no-such-queue"], 2, "queue"),
        (["runs", "to-test", "5d0c0b3c-0000-4000-8000-000000000000"], 2, "don't have access"),
        (["runs", "to-test", "7"], 2, "isn't a run id"),
        (["runs", "why", "5d0c0b3c-0000-4000-8000-000000000000"], 2, "don't have access"),
        (["runs", "why", "7"], 2, "isn't a run id"),
        (["runs", "erase", "7"], 2, "isn't a run id"),
        (["runs", "--where", "amount >"], 2, "character"),
    ]:
        assert why in said(*command, code=code), command
    assert Run.objects.count() == 0
    with pytest.raises(CommandError) as plain:  # the detail names the agent; its error would again
        call_command("runs", "start", "no-such-agent", "--as", "ci")
    assert "unknown agent" not in str(plain.value)


def test_an_approval_is_decided_from_a_shell_by_who_may(stage: Stage, tools: Toolbox) -> None:
    run = Situations(stage, tools).make("at_gate")
    account("fin", "approver_finance")
    account("ci", "integrator")
    (case,) = said("approvals", "list", "--as", "fin")["results"]
    plan = said("approvals", "show", case["id"], "--as", "fin")["plan_hash"]
    decide = ["approvals", "decide", case["id"], "approve", "--justification", "Budget line 7."]
    said(*decide, "--as", "fin", "--plan-hash", "0" * 64, code=5)
    said(*decide, "--as", "ci", "--plan-hash", plan, code=4)
    assert fresh(run).state == "waiting_human" and Approval.objects.get().state == "open"
    assert said(*decide, "--as", "fin", "--plan-hash", plan)["state"] == "approved"
