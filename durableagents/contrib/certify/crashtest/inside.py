"""Run a crash test inside its private stack: start runs, kill workers, act for people, and judge the results."""

from __future__ import annotations

import json
import platform
import sys
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from durableagents.contrib.certify import call_record
from durableagents.contrib.certify.crashtest.effects import (
    NO_TOOL,
    RUN_POINTS,
    TOOL_POINTS,
    Case,
    CrashTest,
    Source,
    fill_case,
    without_secrets,
)
from durableagents.contrib.certify.crashtest.people import STARTER, People, read_entries
from durableagents.contrib.certify.crashtest.report import CaseResult, effects_of_run, judge
from durableagents.env import EnvironmentProblem
from ledger.verification.runs import verify
from runs import failpoints
from runs.engine.agents import Agent, registry
from runs.fleet import members
from runs.models import ENDED, Run
from runs.services import lifecycle

POLL_SECONDS = 0.1
WORKERS_PATIENCE_SECONDS = 60.0
_CALLS_OF_RELATED_RUNS = """
    WITH RECURSIVE related AS (
        SELECT id, graph_id FROM runs_run WHERE id = %s
        UNION SELECT r.id, r.graph_id FROM related b JOIN runs_run r ON r.parent = b.id OR r.came_from = b.id
    )
    SELECT DISTINCT b.graph_id, l.tool FROM related b JOIN ledger_ledgerentry l ON l.run_id = b.id
    WHERE b.id <> %s ORDER BY 1, 2"""
_NO_JUDGE = "calls that left the workers; keys count as honoured (check with manage.py probe)"
BATCH_SIZE = 40  # number of concurrent cases


def run_crash_test(options: CrashTest) -> dict[str, Any]:
    """Run the test with workers that were started elsewhere.

    Raises EnvironmentProblem if the test can give no result.
    """
    known = settings.DURABLEAGENTS
    assert known.failpoint_dir is not None and known.call_record is not None
    source, agent = Source(options.effects, known.call_record), registry.find(options.agent)
    test = _Test(options, agent, source, known.failpoint_dir, known.call_record)
    began = datetime.now(UTC)
    _wait_for_workers(options.workers)
    undisturbed = test.run_undisturbed()
    cases = test.cases(undisturbed)
    batches = [cases[at : at + BATCH_SIZE] for at in range(0, len(cases), BATCH_SIZE)]
    results = [result for batch in batches for result in test.run_cases(batch)]
    return {
        "about": _about(options, agent, began),
        "calm": undisturbed.as_json(),
        "cases": [result.as_json() for result in results],
        "uncovered": uncovered(undisturbed.run),
        "record": call_record.read(known.call_record),
    }


class _Test:
    """The state that all runs of a test share."""

    def __init__(self, options: CrashTest, agent: Agent, source: Source, points: Path, record: Path) -> None:
        self.options, self.agent, self.source, self.points, self.record = options, agent, source, points, record
        self.people = People(options.answers, source)
        self.expected: Counter[str] = Counter()
        self.ends = ""

    def run_undisturbed(self) -> CaseResult:
        """Start a run without crashes, the reference for all others, and wait for its end."""
        (result,) = self._start([Case(NO_TOOL, "")])
        self._drive([result])
        if result.state != "completed":
            why = "; ".join(result.notes) or result.state
            raise EnvironmentProblem(f"the run doesn't complete, although no worker was killed: {why}")
        entries = read_entries(result.run)
        mine = effects_of_run(result.run, entries, self.source.read())
        if entries and not mine:
            raise EnvironmentProblem(
                f"--effects {without_secrets(self.options.effects)} names no effect of this run:"
                " each effect needs its key, or its run"
            )
        self.expected, self.ends = Counter(tool for tool, _ in mine), result.state
        judge(result, entries, self.source.read(), ends=self.ends, expected=self.expected)
        self._count(result)
        if result.problems:
            raise EnvironmentProblem(f"with no worker killed: {'; '.join(result.problems)}")
        return result

    def cases(self, undisturbed: CaseResult) -> list[Case]:
        """Return the cases: every called tool at every crash point, and the crash points outside calls."""
        called = list(dict.fromkeys(entry.tool for entry in read_entries(undisturbed.run)))
        tools = self.options.tools or called
        if unknown := [name for name in tools if name not in called]:
            raise EnvironmentProblem(
                f"the run does not call {', '.join(unknown)}: it calls {', '.join(called) or 'nothing'}"
            )
        wanted = self.options.points or [*TOOL_POINTS, *RUN_POINTS]
        cases = [Case(tool, point) for tool in tools for point in TOOL_POINTS if point in wanted]
        return cases + [Case(NO_TOOL, point) for point in RUN_POINTS if point in wanted]

    def run_cases(self, cases: Sequence[Case]) -> list[CaseResult]:
        """Start a run for each case and judge the results."""
        results = self._start(cases)
        self._drive(results)
        effects = self.source.read()
        for result, case in zip(results, cases, strict=True):
            result.was_killed = (self.points / failpoints.marker_name(case.armed(result.run))).exists()
            judge(result, read_entries(result.run), effects, ends=self.ends, expected=self.expected)
            self._count(result)
        return results

    def _start(self, cases: Sequence[Case]) -> list[CaseResult]:
        """Start runs, and arm their crash points before workers can see them."""
        with transaction.atomic():
            results = [CaseResult(case.tool, case.point, str(self._accept(case))) for case in cases]
            lines = [case.armed(result.run) for case, result in zip(cases, results, strict=True) if case.point]
            draft = self.points / "armed.draft"
            draft.write_text("\n".join(lines))
            draft.replace(self.points / failpoints.ARMED_FILE)
        return results

    def _accept(self, case: Case) -> UUID:
        name = f"{case.tool or 'run'}-{case.point or 'calm'}".lower().replace("_", "-")
        return lifecycle.accept(self.agent.graph_id, fill_case(self.options.input, name), by=STARTER).run.id

    def _drive(self, results: Sequence[CaseResult]) -> None:
        began, running = time.monotonic(), list(results)
        patience = self.options.patience * max(1.0, len(results) / self.options.workers / 2)
        while running and time.monotonic() - began < patience:
            rows = dict(Run.objects.filter(pk__in=[UUID(each.run) for each in running]).values_list("pk", "state"))
            for result in list(running):
                result.state = str(rows[UUID(result.run)])
                result.seconds = round(time.monotonic() - began, 1)
                if result.state in ENDED:
                    running.remove(result)
                else:
                    self.people.attend(result)
            time.sleep(POLL_SECONDS)
        for result in running:
            result.notes.append(f"it did not end within {patience:.0f} s")

    def _count(self, result: CaseResult) -> None:
        """Count what each run sent, and verify its record."""
        left = [line for line in call_record.read(self.record) if line["run"] == result.run and line["what"] == "left"]
        result.sent = dict(Counter(line["tool"] for line in left))
        if result.state not in ENDED:
            return
        # Timers are fired early here, so their rows don't match their journal.
        wrong = [each for each in verify(UUID(result.run)).problems if ": deadline says" not in each]
        if wrong:
            result.problems += [f"the run's record fails verification: {each}" for each in wrong[:3]]
            result.verdict = "lost"


def uncovered(run: str) -> list[str]:
    """Return the tools of child runs and continuations, which were not tested."""
    with connection.cursor() as cursor:
        cursor.execute(_CALLS_OF_RELATED_RUNS, [run, run])
        return [f"{tool} of {agent}" for agent, tool in cursor.fetchall()]


def _wait_for_workers(count: int) -> None:
    deadline = time.monotonic() + WORKERS_PATIENCE_SECONDS
    while sum(row.kind == "worker" for row in members.alive()) < count:
        if time.monotonic() > deadline:
            raise EnvironmentProblem(f"{count} workers did not start: see the worker's log")
        time.sleep(POLL_SECONDS)


def _about(options: CrashTest, agent: Agent, began: datetime) -> dict[str, Any]:
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        (server,) = cursor.fetchone() or ("",)
    return {
        "agent": agent.graph_id,
        "fingerprint": agent.fingerprint(),
        "input": json.dumps(options.input),
        "begun": began.isoformat(timespec="seconds"),
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "postgresql": server,
        "system": f"{platform.system()} {platform.release()}",
        "packages": ", ".join(f"{name} {metadata.version(name)}" for name in ("django", "psycopg", "pydantic")),
        "workers": f"{options.workers}, one run each",
        "judged by": without_secrets(options.effects) or _NO_JUDGE,
        "timers": "fired at once",
        "command": without_secrets(" ".join(sys.argv[1:])),
    }
