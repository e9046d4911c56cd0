"""Run a crash test within the private stack: start runs, kill workers, act as people, judge."""

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

from durableagents.crashtest.effects import AT_RUN, AT_TOOL, THE_RUN, Asked, Case, Source, filled, without_secrets
from durableagents.crashtest.people import STARTS, People, entries_of
from durableagents.crashtest.report import Told, judge, of_run
from durableagents.env import EnvironmentProblem
from ledger.verification.runs import verify
from runs import failpoints
from runs.certification import observing
from runs.engine.agents import Agent, registry
from runs.fleet import members
from runs.models import ENDED, Run
from runs.services import lifecycle

LOOK_SECONDS = 0.1
WORKERS_PATIENCE_SECONDS = 60.0
_ELSEWHERE = """
    WITH RECURSIVE begun AS (
        SELECT id, graph_id FROM runs_run WHERE id = %s
        UNION SELECT r.id, r.graph_id FROM begun b JOIN runs_run r ON r.parent = b.id OR r.came_from = b.id
    )
    SELECT DISTINCT b.graph_id, l.tool FROM begun b JOIN ledger_ledgerentry l ON l.run_id = b.id
    WHERE b.id <> %s ORDER BY 1, 2"""
_NO_JUDGE = "what left the workers: a key counts as honoured (manage.py probe finds out)"
BATCH = 40  # concurrent cases


def crashtest(asked: Asked) -> dict[str, Any]:
    """Run the test with workers started elsewhere. Raises EnvironmentProblem if nothing can be judged."""
    known = settings.DURABLEAGENTS
    assert known.failpoint_dir is not None and known.call_record is not None
    source, agent = Source(asked.effects, known.call_record), registry.find(asked.agent)
    test = _Test(asked, agent, source, known.failpoint_dir, known.call_record)
    began = datetime.now(UTC)
    _wait_for_workers(asked.workers)
    calm = test.calm()
    cases = test.cases(calm)
    told = [one for at in range(0, len(cases), BATCH) for one in test.matrix(cases[at : at + BATCH], calm)]
    return {
        "about": _about(asked, agent, began),
        "calm": calm.as_json(),
        "cases": [one.as_json() for one in told],
        "uncovered": uncovered(calm.run),
        "record": observing.read(known.call_record),
    }


class _Test:
    """State shared by a test's runs."""

    def __init__(self, asked: Asked, agent: Agent, source: Source, points: Path, record: Path) -> None:
        self.asked, self.agent, self.source, self.points, self.record = asked, agent, source, points, record
        self.people = People(asked.answers, source)
        self.expected: Counter[str] = Counter()
        self.ends = ""

    def calm(self) -> Told:
        """Run undisturbed, as the reference for all others."""
        (told,) = self._start([Case(THE_RUN, "")])
        self._play([told])
        if told.state != "completed":
            why = "; ".join(told.notes) or told.state
            raise EnvironmentProblem(f"the run doesn't complete though nobody kills anything: {why}")
        entries = entries_of(told.run)
        mine = of_run(told.run, entries, self.source.read())
        if entries and not mine:
            raise EnvironmentProblem(
                f"--effects {without_secrets(self.asked.effects)} names nothing that this run did:"
                " each effect needs its key, or its run"
            )
        self.expected, self.ends = Counter(tool for tool, _ in mine), told.state
        judge(told, entries, self.source.read(), ends=self.ends, expected=self.expected)
        self._count(told)
        if told.problems:
            raise EnvironmentProblem(f"with nobody killed: {'; '.join(told.problems)}")
        return told

    def cases(self, calm: Told) -> list[Case]:
        """Return every called tool at every point, and the points outside calls."""
        called = list(dict.fromkeys(entry.tool for entry in entries_of(calm.run)))
        tools = self.asked.tools or called
        if unknown := [name for name in tools if name not in called]:
            raise EnvironmentProblem(
                f"the run calls no {', '.join(unknown)}: it calls {', '.join(called) or 'nothing'}"
            )
        wanted = self.asked.points or [*AT_TOOL, *AT_RUN]
        cases = [Case(tool, point) for tool in tools for point in AT_TOOL if point in wanted]
        return cases + [Case(THE_RUN, point) for point in AT_RUN if point in wanted]

    def matrix(self, cases: Sequence[Case], calm: Told) -> list[Told]:
        """Start a run for each case and judge the results."""
        told = self._start(cases)
        self._play(told)
        effects = self.source.read()
        for one, case in zip(told, cases, strict=True):
            one.was_killed = (self.points / failpoints.marker_name(case.armed(one.run))).exists()
            judge(one, entries_of(one.run), effects, ends=self.ends, expected=self.expected)
            self._count(one)
        return told

    def _start(self, cases: Sequence[Case]) -> list[Told]:
        """Start runs, arming the points before workers can see them."""
        with transaction.atomic():
            told = [Told(case.tool, case.point, str(self._accept(case))) for case in cases]
            lines = [case.armed(one.run) for case, one in zip(cases, told, strict=True) if case.point]
            draft = self.points / "armed.draft"
            draft.write_text("\n".join(lines))
            draft.replace(self.points / failpoints.ARMED_FILE)
        return told

    def _accept(self, case: Case) -> UUID:
        name = f"{case.tool or 'run'}-{case.point or 'calm'}".lower().replace("_", "-")
        given = filled(self.asked.input, name)
        return lifecycle.accept(self.agent.graph_id, given, by=STARTS).run.id

    def _play(self, told: Sequence[Told]) -> None:
        began, going = time.monotonic(), list(told)
        patience = self.asked.patience * max(1.0, len(told) / self.asked.workers / 2)
        while going and time.monotonic() - began < patience:
            rows = dict(Run.objects.filter(pk__in=[UUID(one.run) for one in going]).values_list("pk", "state"))
            for one in list(going):
                one.state = str(rows[UUID(one.run)])
                one.seconds = round(time.monotonic() - began, 1)
                if one.state in ENDED:
                    going.remove(one)
                else:
                    self.people.attend(one)
            time.sleep(LOOK_SECONDS)
        for one in going:
            one.notes.append(f"it had not ended after {patience:.0f} s")

    def _count(self, told: Told) -> None:
        """Count what left the workers, and verify the record."""
        left = [line for line in observing.read(self.record) if line["run"] == told.run and line["what"] == "left"]
        told.sent = dict(Counter(line["tool"] for line in left))
        if told.state not in ENDED:
            return
        # Timers are fired early here, so their rows differ from the journal.
        wrong = [each for each in verify(UUID(told.run)).problems if ": deadline says" not in each]
        if wrong:
            told.problems += [f"its record does not verify: {each}" for each in wrong[:3]]
            told.verdict = "lost"


def uncovered(run: str) -> list[str]:
    """Return the tools of child runs and continuations, which were not tested."""
    with connection.cursor() as cursor:
        cursor.execute(_ELSEWHERE, [run, run])
        return [f"{tool} of {agent}" for agent, tool in cursor.fetchall()]


def _wait_for_workers(count: int) -> None:
    deadline = time.monotonic() + WORKERS_PATIENCE_SECONDS
    while sum(row.kind == "worker" for row in members.alive()) < count:
        if time.monotonic() > deadline:
            raise EnvironmentProblem(f"{count} workers did not start: see the worker's log")
        time.sleep(LOOK_SECONDS)


def _about(asked: Asked, agent: Agent, began: datetime) -> dict[str, Any]:
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        (server,) = cursor.fetchone() or ("",)
    return {
        "agent": agent.graph_id,
        "fingerprint": agent.fingerprint(),
        "input": json.dumps(asked.input),
        "begun": began.isoformat(timespec="seconds"),
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "postgresql": server,
        "system": f"{platform.system()} {platform.release()}",
        "packages": ", ".join(f"{name} {metadata.version(name)}" for name in ("django", "psycopg", "pydantic")),
        "workers": f"{asked.workers}, one run each",
        "judged by": without_secrets(asked.effects) or _NO_JUDGE,
        "timers": "rung at once",
        "command": without_secrets(" ".join(sys.argv[1:])),
    }
