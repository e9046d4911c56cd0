"""Verification knows what people did: who started, answered and signalled, and which call went out under whose yes."""

from __future__ import annotations

from importlib import import_module

import pytest
from django.db import connection

from ledger.models import NO_RUN, Uncoded
from ledger.verification.runs import verify, verify_all
from runs.models import Wait
from runs.services import signals
from tests.runs.stage import Stage
from tests.runs.stories import answered, as_superuser, everything, through
from tests.world import OLGA, Toolbox

pytestmark = pytest.mark.django_db


def test_acts_from_before_they_had_codes_are_known_and_none_since(stage: Stage, tools: Toolbox) -> None:
    """The mark lets no event do without its code, and covers no act that comes after it."""
    agent = everything(tools)
    record = first, other = [through(stage, tools, agent), through(stage, tools, agent)]
    as_superuser("UPDATE ledger_actrecord SET code = NULL")
    assert all("has no code" in " ".join(verify(run.id).problems) for run in record)
    as_superuser(import_module("ledger.migrations.0007_act_code").MARK)
    assert [problem for each in verify_all() for problem in each.problems] == []
    as_superuser("UPDATE ledger_event SET code = NULL WHERE run_id = %s AND seq = 1", first.id)
    assert any("RunCreated, has no code" in problem for problem in verify(first.id).problems)
    signals.signal(other.id, "late", 1, by=OLGA)
    as_superuser("UPDATE ledger_actrecord SET code = NULL WHERE run_id = %s", other.id)
    assert [problem.partition(", ")[2] for problem in verify(other.id).problems] == [
        "signal, has no code: none of our processes wrote it"
    ]
    Uncoded.objects.all().delete()


def test_who_started_a_run_is_known_by_two_records(stage: Stage, tools: Toolbox) -> None:
    """Four eyes rest on it: also changing both is found, since one of them has a code."""
    run = answered(stage, tools)
    assert run.creator == 4711 and verify(run.id).problems == []
    as_superuser("UPDATE runs_run SET creator = 4712 WHERE id = %s", run.id)
    assert verify(run.id).problems == ["the run's row: creator says 4712, the journal 4711"]
    as_superuser("UPDATE ledger_actrecord SET person = 4712 WHERE run_id = %s AND action = 'start'", run.id)
    assert any("was not written with this installation's key" in problem for problem in verify(run.id).problems)


def test_another_attempt_under_a_yes_is_the_last_that_used_it(stage: Stage, tools: Toolbox) -> None:
    run = answered(stage, tools)
    gate = Wait.objects.get(run=run, kind="approval")
    assert gate.consumed_attempt == 1 and verify(run.id).problems == []
    as_superuser("UPDATE runs_wait SET consumed_attempt = 0 WHERE id = %s", gate.id)
    assert any("used it last, the journal otherwise" in problem for problem in verify(run.id).problems)


@pytest.mark.parametrize(
    ("table", "more", "values"),
    [("ledger_actrecord", ", subject, queue", ", '', ''"), ("ledger_overriderecord", "", "")],
)
def test_an_act_put_under_the_id_that_is_no_runs_is_found(
    stage: Stage, tools: Toolbox, table: str, more: str, values: str
) -> None:
    """It is in no list, having a run, and nothing else tells of that run."""
    sound = answered(stage, tools)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} (run_id, action, by, role, auth, address, justification, seq, chain, before, after, "
            f"at{more}) VALUES (%s, 'pause', 'user:fiona', 'operator', 'session', '', 'forged', 1, '', '{{}}', '{{}}', "
            f"clock_timestamp(){values})",
            [NO_RUN],
        )
    found = {each.run_id: each.problems for each in verify_all()}
    assert found[sound.id] == [] and any("has no code: none of our" in problem for problem in found[NO_RUN])
    assert [each.run_id for each in verify_all(NO_RUN)] == [sound.id], "what comes after it doesn't begin with it"
