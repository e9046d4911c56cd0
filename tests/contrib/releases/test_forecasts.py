"""The estimate of when a version's last run ends, from runs of which some are unfinished, or why there is none."""

from __future__ import annotations

from datetime import datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from durableagents.contrib.releases.queries import NEARLY_ALL, USUALLY, ForecastRow, versions_of, within
from runs.models import Run
from tests.contrib.releases.releasing import WHY, ramp
from tests.integration.runs.stage import Stage
from tests.integration.runs.two_versions import NAME, served, start, versions


def test_of_runs_that_have_all_ended_it_is_the_share_of_them() -> None:
    lasted = [(float(n), True) for n in range(1, 101)]
    assert within(lasted, USUALLY) == 50 and within(lasted, NEARLY_ALL) == 95
    assert within([], USUALLY) is None and within([(1.0, False)], USUALLY) is None


def test_runs_under_way_make_it_longer_and_not_shorter() -> None:
    """Nine quick ones and as many that have run for an hour: the quick ones alone would give a second."""
    quick = [(1.0, True)] * 9
    assert within(quick, NEARLY_ALL) == 1.0
    assert within(quick + [(3600.0, False)] * 9, NEARLY_ALL) is None
    assert within(quick + [(0.5, False)] * 9, NEARLY_ALL) == 1.0, "those say nothing of what comes after"


@given(st.lists(st.tuples(st.floats(0, 1e6), st.booleans()), max_size=60))
def test_whatever_there_is_it_is_a_time_that_was_seen_and_more_takes_longer(lasted: list[tuple[float, bool]]) -> None:
    usually, nearly = within(lasted, USUALLY), within(lasted, NEARLY_ALL)
    assert usually is None or (usually, True) in lasted
    assert nearly is None or (usually is not None and usually <= nearly)


def ended(version: str, *seconds: float, state: str = "completed") -> None:
    run = start(agent=f"{NAME}@{version}")
    now = timezone.now()
    with connection.cursor() as cursor:
        for lasted in seconds:
            cursor.execute(
                "INSERT INTO runs_run SELECT (jsonb_populate_record(x, jsonb_build_object('id', gen_random_uuid(),"
                " 'ready_at', NULL, 'created_at', %s::timestamptz, 'ended_at', NULL))).*"
                " FROM runs_run x WHERE x.id = %s",
                [now - timedelta(seconds=lasted), run.pk],
            )
        cursor.execute("UPDATE runs_run SET state = 'running', started_at = created_at WHERE ready_at IS NULL")
        cursor.execute(
            "UPDATE runs_run SET state = %s, ended_at = %s WHERE ready_at IS NULL AND state = 'running'", [state, now]
        )
        cursor.execute(
            "UPDATE runs_run SET state = 'cancelled', ended_at = created_at, ready_at = NULL WHERE id = %s", [run.pk]
        )


def forecast() -> ForecastRow:
    (row,) = versions_of(NAME, only="1.0.0")
    assert row.forecast is not None
    return row.forecast


def close_to(at: datetime | None, seconds: float) -> bool:
    return at is not None and abs((at - timezone.now()).total_seconds() - seconds) < 20


def test_it_is_told_as_an_interval_where_enough_have_ended(stage: Stage) -> None:
    versions()
    assert versions_of(NAME, only="1.0.0")[0].forecast is None, "none is active"
    ended("1.0.0", *[60.0] * 15, *[600.0] * 5)
    start(agent=f"{NAME}@1.0.0")
    found = forecast()
    assert found.why == "" and close_to(found.earliest, 60) and close_to(found.latest, 600), found
    assert found.time_up_at is not None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"state": "waiting_human"}, "1 waits for people"),
        ({"state": "paused"}, "1 is paused"),
        ({"created_at": timezone.now() - timedelta(days=9)}, "some are unusually slow"),
    ],
)
def test_where_it_can_t_be_told_it_says_why(stage: Stage, change: dict[str, Any], why: str) -> None:
    versions()
    ended("1.0.0", *[60.0] * 40)
    run = start(agent=f"{NAME}@1.0.0")
    if "state" in change:
        Run.objects.filter(pk=run.pk).update(state="running", ready_at=None)
    Run.objects.filter(pk=run.pk).update(**change)
    found = forecast()
    assert (found.latest, found.why) == (None, why)


def test_too_few_say_nothing(stage: Stage) -> None:
    versions()
    ended("1.0.0", *[60.0] * 5)
    start(agent=f"{NAME}@1.0.0")
    assert forecast().why == "fewer than 10 of its runs have ended" and forecast().earliest is None


def test_the_command_lists_closes_opens_and_ramps(stage: Stage) -> None:
    served(stage, *versions())

    def said(*line: str) -> str:
        out = StringIO()
        call_command("versions", *line, stdout=out)
        return out.getvalue()

    assert [line.split("\t")[:2] for line in said("list", NAME).splitlines()] == [
        [f"{NAME}@2.0.0", "open"],
        [f"{NAME}@1.0.0", "open"],
    ]
    assert "closed" in said("close", f"{NAME}@2.0.0", "--justification", WHY)
    assert "closed" not in said("open", f"{NAME}@2.0.0", "--justification", WHY)
    both = (f"{NAME}@1.0.0", f"{NAME}@2.0.0")
    made = said("ramp", *both, "--share", "10", "--tag", "beta", "--rejected", "none", "--justification", WHY)
    assert "1.0.0 → 2.0.0, 10 % and tags beta" in made
    number = made.splitlines()[-1].split("\t")[0].removeprefix("ramp ")
    assert "50 %" in said("raise", number, "--share", "50", "--justification", WHY)
    assert "closed" in said("rollback", number, "--justification", WHY)
    for wrong in (
        ("finish", number, "--justification", WHY),
        ("close", NAME, "--justification", WHY),
        ("list", "nobody"),
        ("ramp", *both, "--share", "x", "--justification", WHY),
        ("ramp", *both, "--justification", WHY),
        ("ramp", both[0], "other@1.0.0", "--share", "1", "--justification", WHY),
        ("ramp", *both, "--share", "0", "--justification", WHY),
        ("close", both[0], "--justification", " "),
        ("ramp", *both, "--share", "5", "--failed", "x", "--justification", WHY),
    ):
        with pytest.raises(CommandError):
            said(*wrong)
    assert ramp(5).state == "on"
