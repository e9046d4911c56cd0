"""Verification knows people's actions: starts, answers, signals, and the approval of each call."""

from __future__ import annotations

import pytest
from django.db import connection

from ledger.verification.runs import NO_RUN, verify, verify_all
from runs.models import Wait
from tests.integration.runs.stage import Stage
from tests.integration.runs.stories import answered
from tests.tampering import tamper
from tests.world import Toolbox


def test_who_started_a_run_is_known_by_two_records(stage: Stage, tools: Toolbox) -> None:
    """Four eyes depend on it. Changing both is found as well, since one of them has a code."""
    run = answered(stage, tools)
    assert run.creator == 4711 and verify(run.id).problems == []
    tamper("UPDATE runs_run SET creator = 4712 WHERE id = %s", run.id)
    assert verify(run.id).problems == ["the run's row: creator says 4712, the journal 4711"]
    tamper("UPDATE ledger_actrecord SET person = 4712 WHERE run_id = %s AND action = 'start'", run.id)
    assert any("was not written with this installation's key" in problem for problem in verify(run.id).problems)


def test_another_attempt_under_a_yes_is_the_last_that_used_it(stage: Stage, tools: Toolbox) -> None:
    run = answered(stage, tools)
    gate = Wait.objects.get(run=run, kind="approval")
    assert gate.consumed_attempt == 1 and verify(run.id).problems == []
    tamper("UPDATE runs_wait SET consumed_attempt = 0 WHERE id = %s", gate.id)
    assert any("used it last; the journal says otherwise" in problem for problem in verify(run.id).problems)


@pytest.mark.parametrize(
    ("table", "more", "values"),
    [("ledger_actrecord", ", subject, queue", ", '', ''"), ("ledger_overriderecord", "", "")],
)
def test_act_under_a_wrong_id_is_found(stage: Stage, tools: Toolbox, table: str, more: str, values: str) -> None:
    """It belongs to a run, so it is in no list, and nothing else names it."""
    sound = answered(stage, tools)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} (run_id, action, by, role, auth, address, justification, seq, chain, before, after, "
            f"at{more}) VALUES (%s, 'pause', 'user:fiona', 'operator', 'session', '', 'forged', 1, '', '{{}}', '{{}}', "
            f"clock_timestamp(){values})",
            [NO_RUN],
        )
    found = {each.run_id: each.problems for each in verify_all()}
    assert found[sound.id] == [] and any("has no code: this installation" in problem for problem in found[NO_RUN])
    assert [each.run_id for each in verify_all(NO_RUN)] == [sound.id], "what comes after it doesn't begin with it"
