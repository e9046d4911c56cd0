from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection

from ledger import events as e
from ledger.verification.runs import verify
from runs.journal.database_errors import MAX_REFUSALS, StatementRefused
from runs.services import lifecycle
from runs.services.late_results import lost_worker
from runs.workers.housekeeping import Housekeeping
from tests.integration.runs.hosts import working
from tests.integration.runs.stage import Stage, calling, events, fresh, head, kinds, output, waiting
from tests.integration.runs.stories import rows_refused
from tests.integration.runs.test_late import comes_back
from tests.waiting import eventually
from tests.world import OLGA, Outside, Toolbox


@contextmanager
def refusing(code: str, *kinds: str, times: int = 1_000_000) -> Iterator[None]:
    """Let the server refuse events of these kinds this many times. A sequence counts, since it outlasts rollbacks."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE SEQUENCE refused")
    try:
        named = ",".join(kinds)
        with rows_refused(
            "INSERT ON ledger_event", f"NEW.kind = ANY ('{{{named}}}') AND nextval('refused') <= {times}", code
        ):
            yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP SEQUENCE refused")


def buying(tools: Toolbox) -> Any:
    return calling(tools, "order")


@pytest.mark.every(3)
@pytest.mark.parametrize(
    "code", ["57014", "53100", "54000", "22000"], ids=["took too long", "disk full", "too large", "not storable"]
)
def test_permanent_refusal_stops_for_an_operator(stage: Stage, tools: Toolbox, outside: Outside, code: str) -> None:
    agent = buying(tools)
    with refusing(code, "ToolReturned"):
        run = stage.start(agent)
        with working(stage):
            eventually(lambda: waiting(run), what="an operator being asked", seconds=60)
    assert fresh(run).owner is None and head(run).epoch <= 3, "no claim was spent on finding out what is known"
    (needed,) = events(run, e.OperatorNeeded)
    assert needed.reason == "engine_failed"
    if code != "22000":
        problem = needed.payload["problem"]
        assert code in problem and "ToolReturned of slot" in problem and str(run.id) in problem
        assert kinds(run).count("RunClaimed") == 1
    lifecycle.retry(run.id, by=OLGA, justification="made room")
    assert stage.drive() == "completed" and output(run) == "order:a"
    assert len(outside.executed("order")) == 1 and verify(run.id).problems == []


@pytest.mark.parametrize("code", ["55P03", "40001", "40P01", "57014"])
def test_passing_refusal_costs_no_claim(stage: Stage, tools: Toolbox, outside: Outside, code: str) -> None:
    run = stage.start(buying(tools))
    with refusing(code, "ToolReturned", times=MAX_REFUSALS - 2):
        assert stage.drive() == "completed"
    assert head(run).epoch == 1 and len(outside.seen("order")) == 1
    assert verify(run.id).problems == []


def test_somebody_elses_lock_is_waited_for_however_long(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(buying(tools))
    with refusing("55P03", "ToolReturned", times=MAX_REFUSALS + 2):
        assert stage.drive() == "completed"
    assert head(run).epoch == 1


def test_a_journal_that_takes_too_long_to_read_is_no_outage(stage: Stage, tools: Toolbox) -> None:
    """The limit is the role's, set by an administrator; here the connection's."""
    run = stage.start(buying(tools))
    journal = stage.take(run)

    async def slow(*_: Any) -> Any:
        async with journal.pool.connection() as link:
            await link.execute("SET statement_timeout = 1")
            try:
                await link.execute("SELECT pg_sleep(1)")
            finally:
                await link.execute("SET statement_timeout = 0")

    journal._lookups._history = slow  # type: ignore[method-assign]
    with pytest.raises(StatementRefused, match=r"reading its journal: .* statement timeout \(57014\)"):
        stage.wait(journal.load())


@pytest.mark.parametrize("is_told", [True, False])
def test_late_answer_is_given_up(stage: Stage, tools: Toolbox, is_told: bool, caplog: pytest.LogCaptureFixture) -> None:
    run = stage.start(calling(tools, "mail"))
    worker = comes_back(stage, run, "mail")
    (late,) = stage.late
    house = Housekeeping(worker.id)

    async def hand_over() -> None:
        house.record_late(late)
        (task,) = house.late
        await asyncio.wait_for(task, 60)

    with refusing("22000", "ToolReconciled", *([] if is_told else ["ToolAnsweredLate"])):
        stage.wait(hand_over())
    house.close()
    found = events(run, e.ToolAnsweredLate)
    assert [(x.by, x.outcome, x.contradicts) for x in found] == [(lost_worker(worker.id).ref, "happened", "")] * is_told
    assert f"the late answer {late.slot} of mail can't be recorded (no" in caplog.text
    assert ("not even that a late answer came can be recorded" in caplog.text) is not is_told
    assert "mail:a" not in caplog.text, "what a tool answered is nobody's business in a log"
