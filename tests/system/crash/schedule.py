"""Heavy schedules: a seed gives runs, crash points and faults; the checker judges when all is quiet."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from runs.failpoints import POINTS
from tests.system.crash.again import Again
from tests.system.crash.checker import Finding, judge
from tests.system.crash.families import judge_family
from tests.system.crash.forked import expected_of_fork, judge_forked, judge_origin, left_of
from tests.system.crash.guests import GUESTS, Guest, draw_points
from tests.system.crash.moved import judge_moved
from tests.system.crash.people import People
from tests.system.crash.stack import AGENT, Stack, expected_of, kill
from tests.system.crash.steps import BUDGETS, EFFECTS, FAMILIES, GATHERED, READS
from tests.system.crash.tally import Tally
from tests.system.crash.turns import judge_key, judge_schedule
from tests.system.infra.installation import cmdline
from tests.waiting import eventually

CALLS = (*READS, "withheld", *GATHERED, *FAMILIES, *(kind for kind in EFFECTS if kind not in ("unsafe_slow", "brief")))
QUIET_SECONDS = 120.0
# The steps of the run started by a schedule that comes due during the faults.
BY_CLOCK = ("sleep", "keyed", "unsafe")

# The processes to strike: kind in the fleet, a word of the title, and weight.
VICTIMS = {
    ("worker", ""): 8,
    ("cluster", "sentinel"): 3,
    ("supervisor", ""): 1,
    ("web", ""): 2,
    ("sandbox", ""): 2,
    ("postgres", ""): 1,
}
ACTS = {"kill": 10, "cut": 3, "freeze": 3, "up": 1, "drain": 1}


@dataclass(frozen=True)
class Job:
    """One run: its steps, crash points, a person's act on it, and its first budget."""

    steps: tuple[str, ...]
    points: tuple[str, ...]
    act: str = ""
    budget: dict[str, Any] = field(default_factory=dict)
    key: str = ""
    fork: int = 0
    """At which visit it is forked when it has ended; 0: not at all."""
    is_moved: bool = False


@dataclass(frozen=True)
class Fault:
    """A fault that happens this many seconds after the one before."""

    after_seconds: float
    act: str
    kind: str = ""
    title: str = ""


@dataclass(frozen=True)
class Schedule:
    seed: str
    jobs: tuple[Job, ...]
    faults: tuple[Fault, ...]
    sandbox: dict[str, Any] = field(default_factory=dict)
    guests: tuple[tuple[str, ...], ...] = ()
    """The crash points of each of `GUESTS`."""


def draw(seed: str, *, jobs: int = 12) -> Schedule:
    dice = random.Random(seed)
    sandbox: dict[str, Any] = {}
    if dice.random() < 0.5:
        sandbox = {
            "latency_ms": dice.choice((0, 20, 150)),
            "error_rate": dice.choice((0, 0, 0.15)),
            "drop_after_execute_rate": dice.choice((0, 0, 0.25)),
        }
    return Schedule(
        seed,
        _begun_again(seed, [_draw_job(dice) for _ in range(jobs)]),
        tuple(_draw_fault(dice) for _ in range(dice.randint(1, 4))),
        sandbox,
        tuple(draw_points(guest, dice) for guest in GUESTS),
    )


def _begun_again(seed: str, jobs: list[Job]) -> tuple[Job, ...]:
    """Draw forks and migrations. Runs with a key aren't forked: a key has one living run, and forks would take it."""
    dice = random.Random(f"forks {seed}")
    free = [n for n, job in enumerate(jobs) if not job.key]
    for n in dice.sample(free, min(len(free), dice.choice((2, 3, 4)))):
        jobs[n] = replace(jobs[n], fork=dice.randint(1, jobs[n].steps.count("hop") + 1))
    for n in dice.sample(range(len(jobs)), min(len(jobs), dice.choice((2, 3, 4)))):
        jobs[n] = replace(jobs[n], is_moved=True)
    return tuple(jobs)


def _draw_job(dice: random.Random) -> Job:
    steps = ["sleep"]  # while it sleeps, its crash points are armed
    for _ in range(dice.randint(2, 6)):
        steps.append(dice.choice((*CALLS, "hop", "values", "sleep", "signal", "question")))
    calls = [step for step in steps if step in CALLS]
    points: list[str] = []
    for _ in range(dice.choice((0, 0, 1, 1, 2))):
        point, tool = dice.choice(POINTS), dice.choice(["", *calls])
        at = f"@{tool}" if tool and point in ("CP1", "CP2", "CP3", "CP4", "CP6") else ""
        points.append(f"{'+' if points else ''}{point}{at}/{{run}}:kill:{dice.choice((1, 1, 1, 2, 3))}")
    act, budget = dice.choice(("", "", "", "", "pause", "cancel")), dice.choice(BUDGETS)
    if FAMILIES.keys() & set(steps):
        points = [point.replace("/{run}", "") if dice.random() < 0.5 else point for point in points]  # of any run's
    budget = budget if dice.random() < 0.35 else {}
    return Job(tuple(steps), tuple(points), act, budget, dice.choice(("", "", "", "a", "b")))


def _draw_fault(dice: random.Random) -> Fault:
    [act] = dice.choices(list(ACTS), weights=list(ACTS.values()))
    kind, title = ("worker", "") if act == "freeze" else dice.choices(list(VICTIMS), weights=list(VICTIMS.values()))[0]
    return Fault(dice.uniform(0.1, 1.2), act, kind, title)


class Performance:
    def __init__(self, stack: Stack, people: People, schedule: Schedule) -> None:
        self._stack, self._people, self._schedule = stack, people, schedule
        self._runs: list[tuple[str, Job]] = []
        self._guests: list[tuple[str, Guest]] = []
        self._schedule_id = ""
        self._by_clock: list[str] = []
        self._again = Again(stack.api, AGENT)
        self._asked_before = len(people.verdicts)
        self.kills = 0

    def perform(self) -> Tally:
        stack, schedule = self._stack, self._schedule
        stack.disarm()
        stack.api.no_faults()
        stack.let_callbacks_go()
        if schedule.sandbox:
            stack.api.faults(**schedule.sandbox, w9_delay_seconds=0)
        self._start()
        for fault in schedule.faults:
            self._begin_again()
            time.sleep(fault.after_seconds)
            self._do(fault)
        self._act_as_operators()
        is_quiet = self._waits_for_quiet()
        self.kills += sum(":kill:" in point for point in stack.acted())
        findings = list(self._judge())
        return Tally(
            1,
            len(self._all()),
            self.kills,
            self._interruptions(),
            asked=len(self._people.verdicts) - self._asked_before,
            findings=findings,
            failed_seeds=[] if is_quiet and not findings else [schedule.seed],
            moved=self._again.moved,
            forked=len(self._again.made),
        )

    def _start(self) -> None:
        points: list[str] = []
        for job in self._schedule.jobs:
            run_id = self._stack.run(*job.steps, sleep_seconds=0.3, budget=job.budget, key=self._key(job))
            self._runs.append((run_id, job))
            self._again.plan(run_id, visit=job.fork, is_moved=job.is_moved)
            points += [point.format(run=run_id) for point in job.points]
            self._stack.arm(*points)
            self._people.look_after(run_id)
        for guest, theirs in zip(GUESTS, self._schedule.guests, strict=True):
            run_id = self._stack.api.start(guest.agent, guest.input)
            self._guests.append((run_id, guest))
            points += [point.format(run=run_id) for point in theirs]
            self._stack.arm(*points)
            self._people.look_after(run_id)

        self._schedule_id = self._stack.schedule(*BY_CLOCK)

    def _all(self) -> list[str]:
        return [*(run_id for run_id, _ in (*self._runs, *self._guests)), *self._again.made]

    def _key(self, job: Job) -> str:
        return f"{self._schedule.seed} {job.key}"[-60:].strip() if job.key else ""

    def _begin_again(self) -> None:
        for fork in self._again.do_due():
            self._people.look_after(fork)

    def _has_fired(self) -> bool:
        """Return whether the schedule's time was handled and its run, looked after too, has ended."""
        for run in self._stack.api.found(f"schedule:{self._schedule_id}"):
            if run["id"] not in self._by_clock:
                self._by_clock.append(run["id"])
                self._people.look_after(run["id"])
        left = set(self._by_clock).intersection(self._people.open_runs())
        return bool(self._stack.api.scheduled(self._schedule_id)["last"]) and bool(self._by_clock) and not left

    def _act_as_operators(self) -> None:
        """Pause and resume, or cancel; acts that come too late are rightly refused."""
        for run_id, job in self._runs:
            if job.act:
                self._stack.api.steer(run_id, job.act)
        for run_id, job in self._runs:
            if job.act == "pause":
                self._stack.api.steer(run_id, "resume")

    def _waits_for_quiet(self) -> bool:
        deadline = time.monotonic() + QUIET_SECONDS
        while time.monotonic() < deadline:
            self._begin_again()
            ours = set(self._all())
            left = ours.intersection(self._people.open_runs())
            if self._has_fired() and not left and self._again.is_over and self._all_is_told(ours):
                return True
            for run_id, job in self._runs:
                # A pause takes effect at a step's end, perhaps after the resume was refused.
                if job.act == "pause" and run_id in left and self._stack.api.run(run_id)["state"] == "paused":
                    self._stack.api.steer(run_id, "resume")
            time.sleep(0.1)
        return False

    def _all_is_told(self, ours: set[str]) -> bool:
        with self._stack.database() as connection:
            query = "SELECT 1 FROM runs_run WHERE parent = ANY(%s::uuid[]) AND NOT is_told LIMIT 1"
            return connection.execute(query, [list(ours)]).fetchone() is None

    def _judge(self) -> Iterator[Finding]:
        for run_id, job in self._runs:
            whole = expected_of(job.steps)
            expected = replace(whole, may_be_cancelled=job.act == "cancel")
            yield from judge_family(self._stack.facts(run_id), self._stack.children(run_id), expected)
        yield from self._judge_forks()
        for run_id, guest in self._guests:
            facts, children = self._stack.facts(run_id), self._stack.children(run_id)
            yield from judge_family(facts, children, guest.expected, guest.childs)
        for key in {job.key for _, job in self._runs if job.key}:
            yield from judge_key([self._stack.api.run(run_id) for run_id, job in self._runs if job.key == key])
        for run_id in self._by_clock:
            yield from judge(self._stack.facts(run_id), expected_of(BY_CLOCK))
        of_clock = [self._stack.api.run(run_id) for run_id in self._by_clock]
        yield from judge_schedule(self._stack.api.scheduled(self._schedule_id), of_clock)

    def _judge_forks(self) -> Iterator[Finding]:
        jobs = dict(self._runs)
        for fork, (origin, value) in self._again.made.items():
            facts, of = self._stack.facts(fork), self._stack.facts(origin)
            expected = expected_of_fork(facts, expected_of(left_of(jobs[origin].steps, value.visit)))
            yield from judge_family(facts, self._stack.children(fork), expected)
            wrong = (*judge_forked(facts, of, value), *judge_origin(of))
            yield from (Finding(kind, fork, what) for kind, what in wrong)
        for run_id, job in self._runs:
            if job.is_moved:
                yield from judge_moved(self._stack.facts(run_id), self._stack.row(run_id))
        yield from (Finding("broken", run_id, what) for run_id, what in self._again.odd)

    def _interruptions(self) -> int:
        return sum(event["kind"] == "WorkerLost" for run_id in self._all() for event in self._stack.api.events(run_id))

    # --- faults -------------------------------------------------------------------------------------------------------

    def _do(self, fault: Fault) -> None:
        match fault.act:
            case "cut":
                self._cut_connections()
            case "freeze":
                self._freeze()
            case "up":
                self._stack.kill_up_and_start_again()
                self.kills += 1
            case "drain":
                self._stack.drain_and_start_again()
            case _:
                pids = [pid for pid in self._stack.pids(fault.kind) if fault.title in cmdline(pid)]
                self.kills += bool(pids) and kill(pids[0])

    def _cut_connections(self) -> None:
        query = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name LIKE 'durableagents%%'"
        )
        with self._stack.database() as connection:
            connection.execute(query)

    def _freeze(self) -> None:
        """Suspend a worker for less than its supervisor's patience."""
        for pid in self._stack.pids("worker")[:1]:
            if kill(pid, signal.SIGSTOP):
                time.sleep(1.0)
                kill(pid, signal.SIGCONT)


def everybody_is_back(stack: Stack) -> None:
    """Wait until the installation is complete again, so that schedules start equally."""
    eventually(stack.api.is_ready, "readiness", seconds=90)
    stack.all_workers(1)


def describe(schedule: Schedule) -> str:
    lines = [f"schedule {schedule.seed}: sandbox {schedule.sandbox or 'without faults'}"]
    lines += [
        f"  {AGENT} {' '.join(job.steps)} | {' '.join(job.points) or 'no points'} | {job.act or 'left alone'}"
        f"{f' | {job.budget}' if job.budget else ''}{f' | key {job.key}' if job.key else ''}"
        f"{f' | forked at {job.fork}' if job.fork else ''}{' | moved' if job.is_moved else ''}"
        for job in schedule.jobs
    ]
    lines += [
        f"  {guest.agent} | {' '.join(points) or 'no points'}"
        for guest, points in zip(GUESTS, schedule.guests, strict=True)
    ]
    lines += [
        f"  after {fault.after_seconds:.2f} s {fault.act} {fault.kind} {fault.title}" for fault in schedule.faults
    ]
    return "\n".join(lines)
