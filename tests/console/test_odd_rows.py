"""Rows that hold what none of our code writes: everybody else's pages answer, verification names the run, and the runs
after it are checked."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection

from approvals.models import Approval, Decision
from ledger.models import Event
from ledger.verification.runs import verify, verify_all
from runs.models import Incident, Run
from runs.story import folded
from runs.story.lines import Line, clear_of
from tests.console.conftest import Reader, start
from tests.console.stage import question, working

pytestmark = pytest.mark.django_db(transaction=True)


def other_hands(statement: str, *values: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        try:
            cursor.execute(statement, values)
        finally:
            cursor.execute("RESET session_replication_role")


@pytest.fixture
def asked() -> Run:
    """A run that waits for finance."""
    (run,) = all_asked(1)
    return run


def all_asked(count: int) -> list[Run]:
    """Runs that wait for finance, driven by one worker."""
    runs = [start() for _ in range(count)]
    with working():
        for run in runs:
            question(run)
    return [Run.objects.get(pk=run.pk) for run in runs]


TABS = ("timeline", "transcript", "checkpoints", "decisions", "journal")
ODD = {
    "a wait's detail is a list": "UPDATE runs_wait SET detail = '[1, 2]' WHERE run_id = %s",
    "a wait's detail is null": "UPDATE runs_wait SET detail = 'null' WHERE run_id = %s",
    "a wait's queue is an object": """UPDATE runs_wait SET detail = '{"queue": {"a": 1}}' WHERE run_id = %s""",
    "an event's bytes are no text": "UPDATE ledger_event SET clear = '\\xff' WHERE run_id = %s AND seq = 2",
    "an event's bytes are a number": "UPDATE ledger_event SET clear = '5' WHERE run_id = %s AND seq = 2",
    "an event's words hold half a character": """UPDATE ledger_event SET clear = replace(convert_from(clear, 'UTF8'),
        '"by":"', '"by":"\\\\ud800')::bytea WHERE run_id = %s""",
    "an event's payload holds half a character": """UPDATE ledger_event SET sealed = '\\x00'::bytea ||
        '{"justification":"\\\\ud800","text":"\\\\udfff"}'::bytea WHERE run_id = %s AND seq > 1""",
    "an event's payload is packed by nothing of ours": """UPDATE ledger_event SET sealed = '\\x07'
        WHERE run_id = %s AND seq > 1""",
    "an event's payload holds what is no number": """UPDATE ledger_event SET sealed = '\\x00'::bytea ||
        '{"justification":NaN,"text":1e999}'::bytea WHERE run_id = %s AND seq > 1""",
    "an event's payload is nested too deeply": """UPDATE ledger_event SET sealed = '\\x00'::bytea ||
        convert_to(repeat('[', 3000) || repeat(']', 3000), 'UTF8') WHERE run_id = %s AND seq > 1""",
    "an event's payload is nested as deeply as can just be read": """UPDATE ledger_event SET sealed = '\\x00'::bytea ||
        convert_to(repeat('[', 700) || repeat(']', 700), 'UTF8') WHERE run_id = %s AND seq > 1""",
    "an event's facts hold what is no number": """UPDATE ledger_event SET clear = convert_to(regexp_replace(
        convert_from(clear, 'UTF8'), '^.', '{"x":-Infinity,'), 'UTF8') WHERE run_id = %s AND seq > 1""",
    "a state holds half a character": """UPDATE runs_checkpoint SET state = '\\x00'::bytea ||
        '{"note":"\\\\ud800"}'::bytea WHERE run_id = %s""",
    "its plan holds half a character": """UPDATE approvals_approval SET plan =
        '{"arguments":{"a":"\\\\ud800"},"headline":"\\\\ud800"}'::bytea WHERE run_id = %s""",
    "the epoch is negative": "UPDATE ledger_event SET epoch = -5 WHERE run_id = %s AND seq = 2",
    "its head is gone": "DELETE FROM ledger_head WHERE run_id = %s",
    "its wait is gone": "DELETE FROM runs_wait WHERE run_id = %s",
    "its plan is no text": "UPDATE approvals_approval SET plan = '\\x00' WHERE run_id = %s",
    "its plan is a number": "UPDATE approvals_approval SET plan = '5' WHERE run_id = %s",
    "the head's epoch is no claim's": "UPDATE ledger_head SET epoch = 99 WHERE run_id = %s",
}


@pytest.mark.parametrize("what", ODD)
def test_a_row_that_makes_no_sense_is_its_runs_trouble_alone(operator: Reader, asked: Run, what: str) -> None:
    sound = start()
    other_hands(ODD[what], asked.id)
    for path in (
        "/",
        "/runs",
        "/inbox",
        "/audit",
        *(f"/runs/{asked.id}?tab={tab}" for tab in TABS),
        f"/runs/{asked.id}/verification",
        "/audit/verification",
    ):
        assert operator.get(path).status_code == 200, path
    for approval in Approval.objects.filter(run=asked):
        assert operator.get(f"/approvals/{approval.id}").status_code in (
            200,
            404,
        )  # what tells nobody whom it asks is shown to nobody
        assert operator.get(f"/api/v1/approvals/{approval.id}").status_code in (200, 404)
    for path in (
        "runs",
        f"runs/{asked.id}",
        f"runs/{asked.id}/transcript",
        f"runs/{asked.id}/events",
        f"runs/{asked.id}/verification",
        "verification",
        "approvals",
        f"runs/{asked.id}/overrides",
    ):
        assert operator.get(f"/api/v1/{path}").status_code == 200, path
    found = {each.run_id: each.problems for each in verify_all()}
    assert found[asked.id] != [] and found[sound.id] == []


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("its head is gone", "record-damaged"),
        ("its wait is gone", "record-damaged"),
        ("its plan is no text", "stale-plan"),
        ("its plan is a number", "stale-plan"),
    ],
)
def test_a_decision_that_the_record_can_not_bear_is_refused_by_name(
    finance: Reader, asked: Run, what: str, code: str
) -> None:
    approval = Approval.objects.get(run=asked)
    other_hands(ODD[what], asked.id)
    body = {"verdict": "approve", "plan_hash": approval.plan_hash, "justification": "Fine."}
    answer = finance.client.post(f"/api/v1/approvals/{approval.id}/decision", body, content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (409, code)
    assert finance.post(f"/approvals/{approval.id}/decision", **body).status_code == 409
    assert not Decision.objects.exists()


def test_an_incident_that_makes_no_sense_hides_no_other(operator: Reader, asked: Run) -> None:
    other_hands(
        "INSERT INTO runs_incident (run_id, seq, at, cause, proof, worker, host, pid, epoch, "
        "reached, in_doubt, replayed, is_counted, deaths, is_stopped,"
        " detected_at) VALUES (%s, 1, clock_timestamp(), 'proof', '', gen_random_uuid(), 'h', "
        "1, 1, 'claimed', '5', 0, false, 0, false, clock_timestamp())",
        asked.id,
    )
    assert Incident.objects.count() == 1
    for path in ("/fleet/recoveries", "/api/v1/incidents", f"/api/v1/runs/{asked.id}/incidents"):
        assert operator.get(path).status_code == 200, path
    assert verify(asked.id).problems != []


UNREADABLE = ("\\x07", "\\x007b2278223a4e614e7d", "\\x003165393939", "\\x00" + "5b" * 3000 + "5d" * 3000)


@pytest.mark.parametrize("sealed", UNREADABLE, ids=["no packing", "NaN", "beyond all numbers", "deep"])
@pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
def test_an_end_that_nobody_can_read_takes_no_list_away(operator: Reader, asked: Run, state: str, sealed: str) -> None:
    sound = start()
    last = Event.objects.filter(run_id=asked.id).count()
    other_hands(
        "UPDATE runs_run SET state = %s, ended_at = updated_at, end_seq = %s WHERE id = %s", state, last, asked.id
    )
    other_hands("UPDATE ledger_event SET sealed = %s WHERE run_id = %s AND seq > 1", sealed, asked.id)
    listed = operator.get("/api/v1/runs")
    assert listed.status_code == 200
    rows = {row["id"]: row for row in listed.json()["results"]}
    assert rows.keys() == {str(asked.id), str(sound.id)}
    row = rows[str(asked.id)]
    assert operator.get(f"/api/v1/runs/{asked.id}").json() == row and row["cancelled"] is None
    assert "unreadable" in (row["output"] or row["error"] or ["unreadable"])
    assert operator.get(f"/api/v1/runs/{asked.id}/events").json()["results"][-1]["damage"]


@pytest.mark.parametrize("sealed", UNREADABLE, ids=["no packing", "NaN", "beyond all numbers", "deep"])
def test_a_stop_that_nobody_can_read_takes_no_list_away(operator: Reader, asked: Run, sealed: str) -> None:
    other_hands("UPDATE runs_wait SET kind = 'operator', slot = 'operator/1' WHERE run_id = %s", asked.id)
    other_hands(
        "UPDATE ledger_event SET kind = 'OperatorNeeded', sealed = %s WHERE run_id = %s AND seq > 1", sealed, asked.id
    )
    (row,) = operator.get("/api/v1/runs").json()["results"]
    assert "unreadable" in row["waiting_for"][0]["detail"]["found"]


NOT_BELIEVED = {
    "its words changed": ("sealed = '\\x0031'", "its content does not give its hash"),
    "its time changed": ("at = at - interval '1 day'", "its content does not give its hash"),
    "its code gone": ("code = NULL", "none of our processes wrote it"),
    "its code another's": (
        "code = (SELECT o.code FROM ledger_event o WHERE o.run_id = e.run_id AND o.seq = 1)",
        "installation&#x27;s key",
    ),
}


@pytest.mark.parametrize("what", NOT_BELIEVED)
def test_what_nobody_wrote_so_is_marked_on_the_page_that_tells_of_it(operator: Reader, what: str) -> None:
    """Though its row looks well; at each look, also where a piece of the page is kept, and until the row is mended.
    Every page by itself: a run of its own, of which no other page was asked."""
    tabs = ("timeline", "journal", "decisions")
    for tab, run in zip(tabs, all_asked(len(tabs)), strict=True):
        is_marked(operator, run, f"/runs/{run.id}?tab={tab}", *NOT_BELIEVED[what])


def is_marked(operator: Reader, run: Run, page: str, change: str, why: str) -> None:
    put = Event.objects.get(run_id=run.id, kind="ApprovalRequested")

    def told() -> str:
        return operator.get(page).content.decode()

    assert "not to be believed" not in told() and "damaged" not in told(), page
    other_hands(f"UPDATE ledger_event e SET {change} WHERE run_id = %s AND seq = %s", run.id, put.seq)
    for _ in range(2):
        assert f"Event {put.seq} is not to be believed" in told() and why in told(), page
    other_hands(
        "UPDATE ledger_event SET sealed = %s, at = %s, code = %s WHERE run_id = %s AND seq = %s",
        put.sealed,
        put.at,
        put.code,
        run.id,
        put.seq,
    )
    assert "not to be believed" not in told(), page


@pytest.mark.parametrize("which", ["first", "second", "last", "all"])
def test_a_journal_with_a_gap_says_so(operator: Reader, asked: Run, which: str) -> None:
    last = Event.objects.filter(run_id=asked.id).count()
    seqs = {"first": [1], "second": [2], "last": [last], "all": list(range(1, last + 1))}[which]
    other_hands("DELETE FROM ledger_event WHERE run_id = %s AND seq = ANY(%s)", asked.id, seqs)
    for tab in TABS:
        told = operator.get(f"/runs/{asked.id}?tab={tab}").content.decode()
        assert (
            f"{len(seqs)} event{'s' if which == 'all' else ''} of this run {'are' if which == 'all' else 'is'} missing"
            in told
        ), tab
        assert ("event 2 is missing" in told) == (which == "second" and tab == "journal")


@pytest.mark.parametrize(
    "change", ["kind = 'Nope'", "kind = 'ToolReturned'", "slot = '9.9/9'", "slot = NULL", "attempt = 1"]
)
def test_columns_that_say_something_else_than_what_was_hashed_are_named(
    operator: Reader, asked: Run, change: str
) -> None:
    number = Event.objects.get(run_id=asked.id, kind="ApprovalRequested").seq
    other_hands(f"UPDATE ledger_event SET {change} WHERE run_id = %s AND seq = %s", asked.id, number)
    for tab in TABS:
        told = operator.get(f"/runs/{asked.id}?tab={tab}").content.decode()
        assert f"Event {number} (" in told and "is damaged" in told and "its content says something else" in told, tab


def test_an_event_put_between_does_not_link(operator: Reader, asked: Run) -> None:
    other_hands("UPDATE ledger_event SET hash = sha256('x') WHERE run_id = %s AND seq = 2", asked.id)
    told = operator.get(f"/runs/{asked.id}?tab=journal").content.decode()
    assert "it does not link to event 2" in told and "Event 2 is not to be believed" in told


def test_what_is_from_before_there_were_codes_is_believed(operator: Reader, asked: Run) -> None:
    other_hands("UPDATE ledger_event SET code = NULL WHERE run_id = %s", asked.id)
    assert "not to be believed" in operator.get(f"/runs/{asked.id}?tab=journal").content.decode()
    other_hands(
        "INSERT INTO ledger_uncoded (run_id, seq, acts) SELECT run_id, seq, 0 FROM ledger_head WHERE run_id = %s",
        asked.id,
    )
    folded.forget_all()
    assert "not to be believed" not in operator.get(f"/runs/{asked.id}?tab=journal").content.decode()


def test_half_a_character_is_read_as_its_escape() -> None:
    stored = rb'{"kind":"ToolReconciled","slot":"a","attempt":0,"tool":"x","verdict":"happened","by":"\ud800"}'
    clear, damage = clear_of("ToolReconciled", stored)
    assert (clear["by"], damage) == (r"\ud800", "")
    line = Line(
        1,
        datetime(2026, 1, 1, tzinfo=UTC),
        "ToolReconciled",
        "a",
        0,
        0,
        clear,
        sealed=b"\0" + rb'{"receipt":["\udfff",{"\ud800":"so"}]}',
    )
    assert line.payload == {"receipt": [r"\udfff", {r"\ud800": "so"}]}
