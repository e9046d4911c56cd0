"""Old checkpoints of ended runs go earlier than the runs; what a run continues from stays, and theft is still named."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction
from django.test import Client

from durableagents import BusinessFailure, Context, End
from durableagents.contrib.forks import forking
from durableagents.contrib.forks.forking import ForkRequest
from durableagents.contrib.forks.points import visits_of
from durableagents.contrib.replay.files import InvalidRecording
from durableagents.contrib.replay.reading import read_visit
from durableagents.contrib.retention import archiving, own_features, policies, report, restoring
from durableagents.contrib.retention.models import CheckpointExpiry, Policy, Round
from durableagents.identity.auth import issue_key
from ledger.errors import InvalidInput
from ledger.management.commands import ledger
from ledger.verification.registers import verify_registers
from ledger.verification.runs import verify
from runs import failpoints, features
from runs.models import Checkpoint, Run
from runs.services import lifecycle
from tests.contrib.evidence.conftest import bundle_of, verified
from tests.contrib.retention.keeping import SHELL, age, as_runtime, gone, hold, picture, policy, problems
from tests.integration.api.conftest import Api, person
from tests.integration.runs.stage import Stage, at_once, fresh
from tests.tampering import tamper
from tests.world import OLGA, Done, Item, Notes, Toolbox, agent_of

WEEK = {"archive_days": None, "checkpoint_days": 7, "justification": "a week"}


def stepped(stage: Stage, tools: Toolbox, *, days: int = 40, name: str = "steps", state: str = "completed") -> Run:
    """Return an ended run of that age with four checkpoints."""

    async def step(state: Notes, ctx: Context) -> str | End:
        state.seen.append(len(state.seen))
        if len(state.seen) == 4 and broken:
            raise BusinessFailure(broken.pop(), code="broken")
        if len(state.seen) < 4:
            return "step"
        return End(Done(ref=(await ctx.call(tools.order, Item(name="desk"))).ref))

    broken = ["no desk"] if state == "failed" else []
    run = stage.start(agent_of(step, tools=tools.all(), output=Done, name=name))
    assert stage.settle(run) == state
    age(run.pk, days)
    return run


def visits(run: Run) -> list[int]:
    return list(Checkpoint.objects.filter(run_id=run.pk).order_by("seq").values_list("visit", flat=True))


def damage(run: Run) -> list[str]:
    """Return what `ledger verify` finds, other than that the test has moved the run's end."""
    return [problem for problem in problems(run.pk) if "ended_at" not in problem]


def registers() -> list[str]:
    return [problem for listed in verify_registers() for problem in listed.problems]


def test_old_checkpoints_of_due_runs_go_and_the_record_still_verifies(
    stage: Stage, tools: Toolbox, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, young = stepped(stage, tools), stepped(stage, tools, days=3)
    before = picture(run.pk)
    policy()
    assert archiving.run(is_dry=True).expired == 0  # without such a policy they stay with the run
    policies.end(Policy.objects.get().pk, by=SHELL, justification="tried")
    row = policy(**WEEK)
    assert archiving.run(is_dry=True).notes == [f"remove old checkpoints of run {run.pk}"] and len(visits(run)) == 4
    done = archiving.run()
    assert (done.expired, done.archived, done.problems) == (1, 0, []) and Round.objects.latest("pk").expired == 1
    assert visits(run) == [4] and visits(young) == [1, 2, 3, 4]
    entry = CheckpointExpiry.objects.get()
    assert (entry.run_id, entry.number, entry.policy) == (run.pk, 3, row.pk)
    assert {**before, "runs_checkpoint": []} == {**picture(run.pk), "runs_checkpoint": []}
    found = verify(run.pk)
    assert damage(run) == [] == registers() and f"under retention policy {row.pk}" in str(found.notes)
    for most, text in (
        (1, f"note: the checkpoints of this run up to event {entry.last_seq}"),
        (0, "1 further note(s)"),
    ):
        monkeypatch.setattr(ledger, "MAX_NOTES", most)
        with pytest.raises(SystemExit):  # the test has moved the run's end
            call_command("ledger", "verify", str(run.pk))
        assert text in capsys.readouterr().out
    assert archiving.run().expired == 0 and report.report().expired_checkpoints == 3
    policies.end(row.pk, by=SHELL, justification="tried")
    policy(checkpoint_days=30)
    assert archiving.run().archived == 1 and gone(run.pk)
    restoring.restore(run.pk, by=SHELL, justification="asked for")
    assert visits(run) == [4] and damage(run) == [] == registers()


def test_holds_and_longer_policies_keep_checkpoints(stage: Stage, tools: Toolbox) -> None:
    run = stepped(stage, tools)
    fork = forking.fork(run.pk, ForkRequest(4), by=OLGA, justification="see")
    policy(**WEEK)
    for longer in ({"state": "completed", "archive_days": 60}, {"agent": run.agent, **WEEK, "checkpoint_days": 60}):
        kept = policy(**longer)
        assert archiving.run().expired == 0, longer
        policies.end(kept.pk, by=SHELL, justification="tried")
    hold(run_id=fork.pk)  # keeps the runs that are related, too
    assert archiving.run().expired == 0 and visits(run) == [1, 2, 3, 4]
    for days, problem in ((0, None), (31, "longer than archive_days")):
        with pytest.raises((InvalidInput, ValueError), match=problem):
            policy(checkpoint_days=days)


def test_a_retried_run_goes_on_and_a_fork_of_what_expired_is_refused(stage: Stage, tools: Toolbox) -> None:
    run = stepped(stage, tools, state="failed")
    first = Checkpoint.objects.filter(run_id=run.pk).earliest("seq").seq
    policy(**WEEK)
    assert archiving.run().expired == 1 and visits(run) == [4]
    why = f"the checkpoints of this run up to event {CheckpointExpiry.objects.get().last_seq} expired on "
    assert [x.problem[: len(why)] for x in visits_of(fresh(run))] == [why] * 3 + [""]
    for visit, text in ((2, why), (9, "is none of its visits")):
        with pytest.raises(InvalidInput) as refused:
            forking.fork(run.pk, ForkRequest(visit), by=OLGA, justification="see")
        assert text in str(refused.value.extra), visit
    with pytest.raises(InvalidRecording, match=why):
        read_visit(run.pk, first)
    browser = Client()
    browser.force_login(person("ada", "operator", "auditor"))
    page = browser.get(f"/runs/{run.pk}?tab=checkpoints").content.decode()
    assert why.capitalize() in page and "values changed" not in page
    answer = browser.get(f"/runs/{run.pk}/checkpoints/{first}/state")
    assert answer.status_code == 410 and why.capitalize() in answer.content.decode()
    assert why in browser.get(f"/runs/{run.pk}/fork?visit=2").content.decode()
    lifecycle.retry(run.pk, by=OLGA, justification="open again")
    assert archiving.run().expired == 0  # it has not ended
    assert stage.settle(run) == "completed" and damage(run) == []
    made = forking.fork(run.pk, ForkRequest(4), by=OLGA, justification="see")
    assert stage.settle(made) in ("completed", "parked") and damage(made) == []


def test_two_processes_and_a_killed_one_remove_each_checkpoint_once(
    stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [stepped(stage, tools) for _ in range(4)]
    policy(**WEEK)
    monkeypatch.setattr(archiving, "CLEAR_ROWS", 2)
    connection.close()
    if (child := os.fork()) == 0:
        failpoints.hit = lambda point, **_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
        try:
            archiving.run()
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert [visits(run) for run in runs] == [[1, 2, 3, 4]] * 4 and not CheckpointExpiry.objects.exists()
    found = at_once(*[archiving.run] * 3)
    assert [each.problems for each in found] == [[]] * 3
    archiving.run()
    assert [visits(run) for run in runs] == [[4]] * 4
    assert sorted(CheckpointExpiry.objects.values_list("number", flat=True)) == [1] * 4 + [2] * 4
    assert [damage(run) for run in runs] == [[]] * 4 and registers() == []


def test_what_a_thief_removed_is_named_and_the_function_removes_only_what_is_due(
    stage: Stage, tools: Toolbox, tmp_path: Path
) -> None:
    run, other, young, damaged = (stepped(stage, tools, days=days) for days in (40, 40, 3, 40))
    odd = stepped(stage, tools)
    seqs = list(Checkpoint.objects.filter(run_id=other.pk).order_by("seq").values_list("seq", flat=True))
    tamper("DELETE FROM runs_checkpoint WHERE run_id = %s AND visit = 2", run.pk)
    tamper("UPDATE runs_checkpoint SET state = '\\x00' WHERE run_id = %s AND visit = 4", damaged.pk)
    newest = "generation, node, visit, schema_version, fingerprint, state, checksum, at FROM runs_checkpoint"
    tamper(f"INSERT INTO runs_checkpoint SELECT run_id, 10000, {newest} WHERE run_id = %s AND visit = 4", odd.pk)
    assert "its checkpoint is missing" in str(damage(run))
    rule = policy(**WEEK)
    done = archiving.run()
    assert done.expired == 2 and visits(run) == [4] and visits(damaged) == [1, 2, 3, 4] == visits(odd)[:4]
    assert len([each for each in done.problems if "its newest checkpoint is damaged or forged" in each]) == 2
    assert "3 of its checkpoints" in str(damage(run)) and "but 2 expired" in str(damage(run))

    file = tmp_path / "bundle"
    file.write_bytes(bundle_of(other.pk))
    text = verified(file).text
    assert f"the state at 3 node entries: their checkpoints expired by policy {rule.pk}" in text
    tamper("DELETE FROM runs_checkpoint WHERE run_id = %s", other.pk)
    file.write_bytes(bundle_of(other.pk))
    assert f"the checkpoint of event {seqs[-1]} is missing" in verified(file).text
    assert damage(other) == [f"event {seqs[-1]} enters a node, but its checkpoint is missing"]

    entry = {"run_id": young.pk, "number": 3, "policy": rule.pk, "at": rule.at}
    last = Checkpoint.objects.get(run_id=young.pk, visit=3).seq
    forged = CheckpointExpiry.objects.create(last_seq=last, **entry)
    statements = [
        ("DELETE FROM runs_checkpoint WHERE run_id = %s", young.pk, "permission denied"),
        ("SELECT retention_expire(%s)", forged.pk, "it is due on"),
    ]
    with as_runtime(), connection.cursor() as cursor:
        for statement, value, why in statements:
            with pytest.raises(DatabaseError, match=why), transaction.atomic():
                cursor.execute(statement, [value])
        assert archiving.run(is_dry=True).problems[0].startswith("Nothing can be removed")
    age(young.pk)
    with as_runtime(), connection.cursor() as cursor:
        with pytest.raises(DatabaseError, match="may not remove runs"), transaction.atomic():
            cursor.execute("SELECT retention_expire(%s)", [forged.pk])
    with connection.cursor() as cursor:  # even if it were removed by way of a forged entry, that would be named
        cursor.execute("SELECT retention_expire(%s)", [forged.pk])
    assert visits(young) == [4] and features.expired_checkpoints(young.pk) is None
    assert len([each for each in damage(young) if "its checkpoint is missing" in each]) == 3
    assert registers() == [
        f"expiry of checkpoints of run {young.pk}, entry {forged.pk}, was not written by this installation"
    ]


def test_workers_remove_checkpoints_without_a_storage_and_the_form_says_what_is_wrong(
    stage: Stage, tools: Toolbox, settings: Any
) -> None:
    run = stepped(stage, tools)
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"archive": None})
    (duty,) = [each for each in own_features.feature().periodic if each.name == own_features.ROUND]
    ada = person("ada", "auditor", is_superuser=True, is_staff=True)
    admin, browser = Api(issue_key(ada, "k")), Client()
    browser.force_login(ada)
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO retention_allowance VALUES (1, 5, now())")

        def is_due() -> bool:
            cursor.execute(f"SELECT {duty.is_due}")
            return bool(cursor.fetchone()[0])

        assert not is_due()
        refused = browser.post(
            "/retention/policies", {"checkpoint_days": "9", "archive_days": "8", "justification": "a week"}
        )
        assert refused.status_code == 422 and "longer than archive_days" in refused.content.decode()
        made = admin.post("retention/policies", {"checkpoint_days": 7, "justification": "a week"})
        assert made.json()["checkpoint_days"] == 7 and is_due()
        assert ">7 days<" in browser.get("/retention").content.decode()
        with as_runtime():
            archiving.run_when_due()
        assert visits(run) == [4] and not is_due() and damage(run) == []
    policy(agent="others")
    with pytest.raises(CommandError, match="Set DURABLEAGENTS_ARCHIVE"):
        call_command("retention", "run")
