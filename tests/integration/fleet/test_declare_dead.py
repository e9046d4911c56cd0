"""A person may declare a lost host dead, but only when it has been silent."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import uuid4

import psycopg
import pytest
from django.core.management import call_command

from ledger.clock import database_now
from ledger.models import ActRecord
from runs.connections import dsn
from runs.fleet import members
from runs.models import Process
from runs.services import fleet
from tests.cases import each_case
from tests.integration.approvals.setup import until_somebody_waits
from tests.integration.runs.stage import in_thread
from tests.world import OLGA

pytestmark = pytest.mark.django_db(transaction=True)


def process(host: str, *, silent_seconds: float) -> Process:
    at = database_now() - timedelta(seconds=silent_seconds)
    return Process.objects.create(
        id=uuid4(),
        kind="worker",
        host=host,
        boot="elsewhere/1",
        pid=4242,
        born_ticks=1,
        started_at=at,
        last_heartbeat_at=at,
    )


@each_case("cause", ["host_gone", "suspicion"])
def test_the_word_also_covers_who_was_given_up_before(cause: str) -> None:
    lost = process("lost.example", silent_seconds=300)
    members.bury(lost.id, cause=cause, proof="silent")
    lost.refresh_from_db()
    at = lost.ended_at

    call_command("declare_dead", host="lost.example", reason="Its power supply burnt.")
    members.hang_up()

    lost.refresh_from_db()
    assert (lost.end_cause, lost.ended_at) == ("operator", at)


@pytest.mark.parametrize("host", ["alive.example", "never-seen.example"])
def test_a_host_that_lives_or_is_unknown_is_left_alone(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    living = process("alive.example", silent_seconds=5)

    with pytest.raises(SystemExit) as refused:
        call_command("declare_dead", host=host, reason="Its power supply burnt.")

    living.refresh_from_db()
    assert refused.value.code == 2
    assert host in capsys.readouterr().err
    assert living.ended_at is None
    assert not ActRecord.objects.exists()


def test_silent_host_ends_with_who_said_so_and_why_on_record() -> None:
    lost = process("lost.example", silent_seconds=300)

    call_command("declare_dead", host="lost.example", reason="  Its power supply burnt. ")
    members.hang_up()

    lost.refresh_from_db()
    (record,) = ActRecord.objects.all()
    assert lost.ended_at is not None
    assert (record.action, record.subject, record.justification, record.auth) == (
        "declare_dead",
        "lost.example",
        "Its power supply burnt.",
        "shell",
    )
    assert record.by.startswith("os:") and record.by.partition("@")[2].startswith(socket.gethostname())
    assert [visible["id"] for visible in record.before["processes"]] == [str(lost.id)] and record.after == {
        "end_cause": "operator"
    }


@pytest.mark.parametrize("reason", ["", " ", "\u200b", "."])
def test_without_a_reason_nobody_is_declared_dead(reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    lost = process("lost.example", silent_seconds=300)

    with pytest.raises(SystemExit) as refused:
        call_command("declare_dead", host="lost.example", reason=reason)

    lost.refresh_from_db()
    assert refused.value.code == 2 and "--reason" in capsys.readouterr().err
    assert lost.ended_at is None and not ActRecord.objects.exists()


def meanwhile(statement: str, *lost: Process) -> str:
    """Return the result of a declaration that begins before this statement is committed."""

    def declare() -> str:
        try:
            return str(fleet.declare_dead("lost.example", by=OLGA, justification="Its power supply burnt."))
        except fleet.ShowsLife as alive:
            return alive.code

    with psycopg.connect(dsn()) as link, ThreadPoolExecutor(1) as others:
        link.execute(statement, [[each.pk for each in lost]])
        came = others.submit(in_thread, declare)
        until_somebody_waits()
        link.commit()
        return came.result(60)


BEATS = "UPDATE runs_process SET last_heartbeat_at = clock_timestamp() WHERE id = ANY(%s)"
PROVED = "UPDATE runs_process SET ended_at = now(), end_cause = 'proof', end_proof = 'reaped' WHERE id = ANY(%s)"


def test_a_beat_in_between_is_heard() -> None:
    lost, other = (process("lost.example", silent_seconds=300) for _ in range(2))
    assert meanwhile(BEATS, lost) == "host-alive"
    assert not Process.objects.exclude(ended_at=None).exists() and not ActRecord.objects.exists()
    assert {lost.pk, other.pk} == set(Process.objects.values_list("pk", flat=True))


def test_proof_that_another_one_found_in_between_stands() -> None:
    lost, other = (process("lost.example", silent_seconds=300) for _ in range(2))
    assert meanwhile(PROVED, lost) == "1"
    assert dict(Process.objects.values_list("pk", "end_cause")) == {lost.pk: "proof", other.pk: "operator"}
    (record,) = ActRecord.objects.all()
    assert [visible["id"] for visible in record.before["processes"]] == [str(other.pk)]
