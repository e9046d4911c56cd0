"""Judges runs started under one key (one at a time, in order) and a schedule that came due (each time once)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from tests.system.crash.checker import ENDED, Finding, moment

Row = Mapping[str, Any]


def judge_key(runs: Sequence[Row]) -> Iterator[Finding]:
    """Check that no run of a key began before its predecessors had ended."""
    in_order = sorted(runs, key=lambda run: moment(run["created_at"]))
    for run in in_order:
        if run["state"] not in ENDED and run["queued_behind"] is None and run["epoch"] == 0:
            yield Finding("stuck", run["id"], "its turn has come, or nobody is before it, and it has not begun")
    begun = [run for run in in_order if run["started_at"] is not None]
    for before, after in pairwise(begun):
        if before["ended_at"] is None or moment(after["started_at"]) < moment(before["ended_at"]):
            yield Finding("duplicate", after["id"], f"it began before {before['id']} of its key had ended")


def judge_schedule(schedule: Row, runs: Sequence[Row]) -> Iterator[Finding]:
    """Check that a schedule due once started one run, and names it."""
    started = [row for row in schedule["last"] if row["outcome"] == "started"]
    if not started:
        yield Finding("lost", "-", f"schedule {schedule['id']}: its time came, and it started nothing: {schedule}")
    if len(runs) != len(started) or len(started) > 1:
        items = [row["planned_at"] for row in schedule["last"]]
        yield Finding("duplicate", "-", f"schedule {schedule['id']}: {len(runs)} runs for {items}")
    for row in started:
        if row["run_id"] not in {run["id"] for run in runs}:
            yield Finding("broken", str(row["run_id"]), "a schedule names it, and it isn't of the schedule")
