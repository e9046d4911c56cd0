"""Verifications of every run that are asked for in the console: continued after a death, done once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db.models.functions import Now

from ledger.actors import Actor
from ledger.models import VerificationJob
from ledger.verification import jobs
from tests.integration.console.conftest import Reader, agent, reader, start  # noqa: F401 (fixtures)
from tests.tampering import tamper

pytestmark = pytest.mark.django_db
AUDITOR = Actor("user", "ada", role="auditor", auth="session", address="192.0.2.3")


@pytest.fixture
def run_ids(agent: object) -> list[UUID]:  # noqa: F811
    """Five runs, by id."""
    return sorted((start().id for _ in range(5)), key=lambda each: each.bytes)


def test_job_reads_everything_once_and_names_what_is_wrong(run_ids: list[UUID]) -> None:
    with pytest.raises(jobs.NothingVerified):
        jobs.ask(AUDITOR, only_changed=True)
    jobs.ask(AUDITOR, only_changed=False)
    with pytest.raises(jobs.AlreadyVerifying):
        jobs.ask(AUDITOR, only_changed=False)
    tamper("UPDATE ledger_event SET hash = '\\x00' WHERE run_id = %s AND seq = 1", run_ids[3])
    job = jobs.carry_out(1)
    assert job is not None and job.finished_at is not None and (job.runs, job.asked_by) == (5, "user:ada")
    assert job.problems == len(job.findings) > 0 and {where for where, _ in job.findings} == {str(run_ids[3])}
    assert {"acts", "accounts"} <= {name for name, _, _ in job.lists}
    assert jobs.carry_out(1) is None, "there is nothing left to do"


def test_job_of_a_dead_process_is_continued_where_it_was(run_ids: list[UUID]) -> None:
    job = jobs.ask(AUDITOR, only_changed=False)
    before = {"after": run_ids[2], "runs": 3, "events": 30, "problems": 1, "findings": [[str(run_ids[0]), "bad"]]}
    VerificationJob.objects.update(**before, lists=[["acts", 7, "ab"]], alive_at=Now())
    assert jobs.carry_out(1) is None, "another process is at it"
    VerificationJob.objects.update(alive_at=Now() - jobs.SILENCE - timedelta(seconds=1))
    done = jobs.carry_out(1)
    assert done is not None and done.pk == job.pk
    assert (done.runs, done.problems, done.lists) == (5, 1, [["acts", 7, "ab"]])


def test_process_that_was_taken_over_stores_nothing(run_ids: list[UUID], monkeypatch: pytest.MonkeyPatch) -> None:
    jobs.ask(AUDITOR, only_changed=False)
    monkeypatch.setattr(jobs, "STORE_SECONDS", 0.0)
    real = jobs.verify_all

    def taken_meanwhile(*args: object, **more: object) -> object:
        for n, each in enumerate(real(*args, **more)):  # type: ignore[arg-type]
            if n == 2:
                VerificationJob.objects.update(runner=None, runs=99)
            yield each

    monkeypatch.setattr(jobs, "verify_all", taken_meanwhile)
    assert jobs.carry_out(1) is None
    job = VerificationJob.objects.get()
    assert job.is_open and job.runs == 99


def test_only_runs_with_new_events_are_looked_at_again(
    run_ids: list[UUID], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs.ask(AUDITOR, only_changed=False)
    jobs.carry_out(1)
    monkeypatch.setattr(jobs, "OVERLAP", timedelta())
    tamper("UPDATE ledger_event SET at = at - interval '1 day' WHERE run_id <> %s", run_ids[1])
    tamper("UPDATE ledger_event SET at = at + interval '1 minute' WHERE run_id = %s", run_ids[1])
    job = jobs.ask(AUDITOR, only_changed=True)
    done = jobs.carry_out(1)
    assert done is not None and (done.pk, done.runs) == (job.pk, 1)
    with pytest.raises(SystemExit):
        call_command("ledger", "verify", "--all", "--since", str(job.since))
    assert "1 run(s)" in capsys.readouterr().out
    call_command("ledger", "verify", "--all", "--since", str(job.since), "--after", str(run_ids[1]))
    assert "0 run(s)" in capsys.readouterr().out


def test_what_cannot_be_asked_for_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    fields = {
        "--all --since yesterday": "--since 'yesterday' isn't a time",
        "--all --since 2026-11-30T00:00": "lacks its time zone",
        "--all --after 12": "isn't a run id",
        "--all --processes 0": "at least 1",
        "00000000-0000-0000-0000-000000000001 --since 2026-11-30T00:00Z": "are for --all",
        "--job": "no verification was requested",
    }
    for words, value in fields.items():
        with pytest.raises(SystemExit) as ended:
            call_command("ledger", "verify", *words.split())
        err = capsys.readouterr().err
        assert (ended.value.code, err.count("\n")) == (2, 1) and value in err, words


def test_an_auditor_asks_on_the_page_and_sees_how_far_it_is(
    run_ids: list[UUID],
    reader: Callable[..., Reader],  # noqa: F811
) -> None:
    ada = reader("auditor", name="ada")
    assert "Not verified yet" in ada.read("/audit/verification")
    assert reader("integrator").post("/audit/verification", which="all").status_code == 403
    assert ada.post("/audit/verification", which="changed").status_code == 409
    assert ada.post("/audit/verification", which="all").status_code == 302
    assert "Waiting for a worker" in ada.read("/audit/verification")
    tamper("UPDATE ledger_event SET kind = '<b>x</b>' WHERE run_id = %s AND seq = 1", run_ids[0])
    jobs.carry_out(1)
    page = ada.get("/audit/verification").content.decode()
    assert "found." in page and "&lt;b&gt;x&lt;/b&gt;" in page and "<b>x</b>" not in page
    assert "Verify changed runs" in page
