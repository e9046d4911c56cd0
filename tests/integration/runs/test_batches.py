from __future__ import annotations

import random
from uuid import uuid5

import pytest
from django.db import connection

from ledger import events as e
from ledger.errors import StaleLease
from ledger.models import Head
from runs.engine.journal import GateOpening, Snapshot, WaitSpec
from runs.journal.committer import MAX_BYTES, MAX_TOGETHER
from runs.journal.postgres import PgJournal
from runs.models import Run
from runs.services import lifecycle
from tests.integration.runs.company import (
    ENTRY,
    carried,
    commits,
    crew,
    invoked,
    is_sound,
    together,
    together_in_one,
    value,
)
from tests.integration.runs.stage import Stage, fresh, kinds, now
from tests.world import OLGA
from tests.writing import intend, record


@together_in_one
def test_different_writes_travel_together(stage: Stage) -> None:
    runs, journals = crew(stage, 3)
    first, second, park = journals
    parked = [e.RunParked(state="waiting_event", waits=[])]
    together(
        stage,
        intend(first, [invoked()], entry=ENTRY),
        record(second, [value()], snapshot=Snapshot("one", 1, 0, "print", {})),
        park.leave("park", parked, state="waiting_event"),
    )
    assert [kinds(run)[-1] for run in runs] == ["ToolInvoked", "ValueRead", "RunParked"]
    assert commits(*runs) == 1 and is_sound(*runs) and fresh(runs[2]).owner is None


def gate_of(run: Run, number: int) -> tuple[WaitSpec, GateOpening]:
    wait = WaitSpec(str(run.id), f"0.1/{number}", 0, "approval", 0, now())
    approval = uuid5(run.id, f"gate {number}")
    return wait, GateOpening(approval, "legal", "approve", "May I?", "", "rule", b"{}", "plan", [], "why", "key:shop")


@together_in_one
@pytest.mark.parametrize("trouble", ["none", "a neighbour is refused", "alone"])
def test_an_end_takes_its_open_questions_along_and_one_that_is_not_done_takes_none(stage: Stage, trouble: str) -> None:
    runs, (ends, cancelled, other) = crew(stage, 3)
    for run, journal in ((runs[0], ends), (runs[1], cancelled)):
        wait, gate = gate_of(run, 5)
        stage.wait(record(journal, [value(5)], wait=wait, gate=gate))
    lifecycle.cancel(runs[1].id, by=OLGA, justification="no longer wanted")
    if trouble == "a neighbour is refused":
        Head.objects.filter(run_id=runs[2].id).update(epoch=9)
    done = [e.RunCompleted(payload=None)]
    leaving = [journal.leave("end", done, state="completed") for journal in (ends, cancelled)]
    if trouble == "alone":
        replies = [*(stage.wait(each) for each in leaving), None]
    else:
        replies = together(stage, *leaving, record(other, [value()]))
    assert [reply.is_done for reply in replies[:2]] == [True, False]
    assert [run.approvals.get().state for run in runs[:2]] == ["withdrawn", "open"]
    assert [run.waits.get().resolution for run in runs[:2]] == ["withdrawn", None]
    if trouble == "none":
        assert commits(runs[0], runs[2]) == 1 and withdrawn_with(runs[0])
    assert trouble != "a neighbour is refused" or isinstance(replies[2], StaleLease)
    assert is_sound(*runs)


def withdrawn_with(run: Run) -> bool:
    """Return whether the transaction that ended the run also withdrew its question."""
    with connection.cursor() as cursor:
        cursor.execute(
            """SELECT a.xmin::text = r.xmin::text FROM approvals_approval a JOIN runs_run r ON r.id = a.run_id
               WHERE r.id = %s""",
            [run.id],
        )
        return bool(cursor.fetchone()[0])


@together_in_one
def test_more_than_fit_travel_one_batch_after_the_other(stage: Stage) -> None:
    runs, journals = crew(stage, MAX_TOGETHER + 3)
    together(stage, *(record(journal, [value()]) for journal in journals))
    assert [kinds(run)[-1] for run in runs] == ["ValueRead"] * len(runs)
    assert commits(*runs) == 2 and is_sound(*runs)


def test_no_batch_takes_all_so_that_worker_and_server_work_at_once(stage: Stage) -> None:
    """Runs answered together are ready together: once all in one batch, they would stay so."""
    runs, journals = crew(stage, 12)

    async def steps(journal: PgJournal) -> None:
        for number in range(1, 7):
            await record(journal, [value(number)])

    stage.wait(record(journals[0], [value(0)]))
    together(stage, *(record(journal, [value(0)]) for journal in journals[1:]))
    together(stage, *(steps(journal) for journal in journals))
    sizes = carried(*runs)
    assert 1 < max(sizes) <= 6, sizes
    assert is_sound(*runs)


@together_in_one
def test_a_large_step_keeps_nobody_waiting_for_its_bytes(stage: Stage) -> None:
    runs, (large, *others) = crew(stage, 3)
    noise = random.Random(1).randbytes(MAX_BYTES).hex()
    together(stage, record(large, [value(payload=noise)]), *(record(journal, [value()]) for journal in others))
    assert [kinds(run)[-1] for run in runs] == ["ValueRead"] * 3
    assert commits(*runs[1:]) == 1 and commits(*runs) == 2
