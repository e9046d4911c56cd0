"""A lane: a warm process that performs light schedules on forked workers and plays everything around them.
It uses the real services on the real database, and is single-threaded while it forks.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID, uuid4

import psycopg
from django.db import InterfaceError, OperationalError, connection

from durableagents.contrib.limits.models import Limit
from ledger.errors import DurableAgentsError
from ledger.verification.runs import verify
from runs.engine.agents import registry
from runs.engine.assistants import SCRIPTED
from runs.engine.budget import Budget
from runs.engine.limits import keys_of_model
from runs.failpoints import marker_name
from runs.models import Run
from runs.services import lifecycle
from runs.workers import failover
from tests.system.crash.checker import ENDED, Expected, Facts, Finding, judge
from tests.system.crash.families import judge_family
from tests.system.crash.forked import expected_of_fork, judge_forked, judge_origin, left_of
from tests.system.crash.halted import judge_halted
from tests.system.crash.light import evidence
from tests.system.crash.light.child import own_keys
from tests.system.crash.light.crew import Crew, Member, describe, is_killed
from tests.system.crash.light.forks import Forks
from tests.system.crash.light.halting import Halts
from tests.system.crash.light.letterbox import Letterbox
from tests.system.crash.light.moves import Moves
from tests.system.crash.light.outside import Outside
from tests.system.crash.light.people import People
from tests.system.crash.light.plan import Act, Beginning, Schedule
from tests.system.crash.light.ramps import Ramps
from tests.system.crash.light.rules import Rules
from tests.system.crash.light.sharing import Sharing
from tests.system.crash.moved import judge_moved, row_of
from tests.system.crash.policed import judge_policed
from tests.system.crash.released import expected_of_start, judge_released
from tests.system.crash.shared import judge_shared
from tests.system.crash.stack import expected_of
from tests.system.crash.tally import Tally
from tests.system.crash.undone import undoes
from tests.world import SHOP

T = TypeVar("T")
# For a restarting database.
PATIENCE_SECONDS = 60.0
LOOK_SECONDS = 0.25
# A stopped worker resumes this long after its run was taken over, if nothing needs it earlier.
ZOMBIE_SECONDS = 0.3
# As a worker does now and then: runs of the dead that were locked as they died are freed.
ENDED_SECONDS = 2.0


class Lane:
    """The parts that outlive a schedule: sandbox, letterbox, connections, the folder of crash points."""

    def __init__(
        self, graph_id: str, folder: Path, dsn: str, outside: Outside, letterbox: Letterbox, patience_seconds: float
    ) -> None:
        self.graph_id, self.folder, self.outside, self.letterbox = graph_id, folder, outside, letterbox
        self.patience_seconds, self._dsn = patience_seconds, dsn
        self.ramped: tuple[str, tuple[str, str]] = ("", ("", ""))
        self.twins: tuple[str, str] = (graph_id, graph_id)
        self._link: psycopg.Connection[Any] | None = None
        self._wakeup, wakes = os.pipe()
        os.set_blocking(self._wakeup, False)
        os.set_blocking(wakes, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)

    def reader(self) -> psycopg.Connection[Any]:
        if self._link is None or self._link.closed:
            self._link = psycopg.connect(self._dsn, autocommit=True, application_name="crash evidence")
        return self._link

    def wait(self, crew: Crew, seconds: float) -> list[int]:
        """Sleep until a worker writes or dies, or a letter arrives; return the readable descriptors."""
        with selectors.DefaultSelector() as selector:
            for end in (self._wakeup, self.letterbox.socket.fileno(), *(m.says for m in crew.members)):
                selector.register(end, selectors.EVENT_READ)
            found = [key.fd for key, _ in selector.select(seconds)]
        with suppress(BlockingIOError):
            os.read(self._wakeup, 4096)
        return found

    def arm(self, points: list[str]) -> None:
        """Arm these in every worker forked from now on, and forget which have acted before."""
        for marker in self.folder.iterdir():
            marker.unlink()
        self.arm_these(points)

    def arm_these(self, points: list[str]) -> None:
        """Arm these in every worker, running ones too. The file appears whole, so none reads a part."""
        draft = self.folder / "armed.draft"
        draft.write_text("\n".join(points))
        draft.replace(self.folder / "armed")

    def acted(self, points: list[str]) -> list[str]:
        names = [marker_name(point, points[:i].count(point)) for i, point in enumerate(points)]
        return [point for point, name in zip(points, names, strict=True) if (self.folder / name).exists()]


def patiently(act: Callable[[], T]) -> T:
    """Repeat the act while the database restarts; it must notice if it was done already."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return act()
        except (OperationalError, InterfaceError, psycopg.OperationalError):
            with suppress(Exception):
                connection.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


class Performance:
    def __init__(self, lane: Lane, schedule: Schedule) -> None:
        self._lane, self._schedule = lane, schedule
        self.crew = Crew(schedule)
        self._tag = uuid4().hex
        self._sharing = Sharing(schedule, self._tag)
        self._ramps = Ramps(schedule, *lane.ramped, self._tag)
        self._moves = Moves(schedule, lane.twins)
        self._rules = Rules(schedule, lane.graph_id, self._tag)
        self._halts = Halts(schedule, lane.graph_id, self._tag)
        self._forks = Forks(schedule, lane.twins)
        self._ids: list[str] = []
        self._points: list[str] = []
        self._armed: list[Beginning] = []
        self._acts: list[Act] = list(schedule.acts)
        self._seq: dict[str, int] = {}
        self._freed_at = time.monotonic()
        self._woken_at: dict[int, float] = {}
        self.kills = self.refused = 0

    def perform(self) -> Tally:
        lane, schedule = self._lane, self._schedule
        if schedule.sandbox:
            lane.outside.faults(**schedule.sandbox)
        try:
            patiently(self._sharing.make)
            if schedule.limits:
                patiently(self._limit)
            self._ids = [patiently(lambda n=n: self._start(n)) for n in range(len(schedule.jobs))]  # type: ignore[misc]
            self._points = [point.format(*self._ids) for point in schedule.points]
            lane.arm(self._points)
            # Retried, because another lane's schedule may stop the database during the set-up of rules.
            self._people = patiently(lambda: People(lane.outside, schedule, self._ids, self._sharing))
            if schedule.ramp:
                patiently(self._ramps.put_away)  # of a failed schedule
            if schedule.tells_early:
                patiently(self._people.tell_early)
            for _ in range(schedule.workers):
                self.crew.hire()
            is_quiet = self._live()
        finally:
            self.crew.dismiss()
            if schedule.halts:
                patiently(self._halts.put_away)
            if schedule.sandbox:
                lane.outside.no_faults()
        patiently(self._rules.put_away)
        findings = self._judge()
        patiently(self._sharing.put_away)
        patiently(self._ramps.put_away)
        if schedule.limits:
            patiently(Limit.objects.filter(key__in=self._limited()).delete)
        runs, verdicts = len(self._known()) + len(self._ramps.ids), len(self._people.verdicts)
        return Tally(
            1,
            runs,
            self.kills,
            self._interruptions(),
            self.refused,
            verdicts,
            findings,
            [] if is_quiet and not findings else [schedule.seed],
            self._moves.done,
            len(self._forks.made),
            self._halts.done,
        )

    def _known(self) -> list[str]:
        return [*self._ids, *filter(None, self._forks.ids)]

    def _limit(self) -> None:
        keys = self._limited()
        Limit.objects.filter(key__in=keys).delete()
        for key in keys:
            Limit.objects.create(key=key, given=self._schedule.limits)

    def _limited(self) -> list[str]:
        agent = registry.find(self._lane.graph_id)
        names = [
            *(f"tool:{tool.name}" for tool in agent.all_tools()),
            *(key for a in agent.assistants for key in keys_of_model(f"{SCRIPTED}{a.name}")),
        ]
        return list(own_keys(self._schedule.seed, dict.fromkeys(names)))

    def _start(self, n: int) -> str:
        """Start a run once even if the answer is lost: its tag identifies it."""
        tag = f"{self._tag}.{n}"
        found = Run.objects.filter(graph_id=self._lane.graph_id, tags=[tag, self._tag]).first()
        given = {"steps": list(self._schedule.jobs[n]), "sleep_seconds": 0.02}
        budget = Budget.model_validate(self._schedule.budget)
        return str(
            (found or lifecycle.start(self._lane.graph_id, given, by=SHOP, tags=[tag, self._tag], budget=budget)).id
        )

    # --- from start to quiet ---

    def _live(self) -> bool:
        """Wait until every run has ended. Return False when out of patience: then some run is stuck."""
        deadline = time.monotonic() + self._lane.patience_seconds
        look_at = 0.0
        while time.monotonic() < deadline:
            ready = self._lane.wait(self.crew, max(0.0, min(look_at - time.monotonic(), LOOK_SECONDS)))
            is_news = self._hear(ready)
            is_news |= self._bury_the_dead()
            self._do_due_acts()
            if patiently(lambda: self._moves.do_due([*self._ids, *self._forks.ids], self._seq)):
                self.crew.ring()
                is_news = True
            is_news |= patiently(lambda: self._rules.do_due(self._seq.get(self._ids[0], 0)))
            is_news |= patiently(lambda: self._halts.do_due(self._seq.get(self._ids[0], 0), self.crew))
            is_news |= self._begin_again()
            self._raise_zombies()
            if begun := self._ramps.do_due():
                self._people.also(begun)
                self.crew.ring()
                is_news = True
            if is_news or time.monotonic() >= look_at:
                if self._schedule.halts:
                    patiently(lambda: self._halts.let_go(self.crew))
                is_over, seconds = patiently(lambda: self._people.attend(self.crew))
                is_over = is_over and self._ramps.is_over and self._forks.is_over
                if is_over and not any(m.is_stopped or m.is_leaving for m in self.crew.members):
                    return True
                if is_over:
                    self._raise_zombies(at_once=True)
                look_at = time.monotonic() + min(LOOK_SECONDS, seconds)
        return False

    def _begin_again(self) -> bool:
        """Make the forks that are due. Return True if one was made."""
        patiently(lambda: self._forks.do_due(self._ids, self._seq, self._people.ended, self._ready))
        is_new = False
        for n, (run_id, *_) in self._forks.made.items():
            is_new |= self._people.also_fork(run_id, self._schedule.forks[n].words)
        self._people.begun_again = self._forks.origins
        if is_new:
            self.crew.ring()
        return is_new

    def _ready(self, what: Beginning) -> None:
        """Arm the new run's crash points, from its first claim on."""
        if what.points and what not in self._armed:
            self._armed.append(what)
            self._points += what.points
            self._lane.arm_these(self._points)

    def _hear(self, ready: list[int]) -> bool:
        """Read the workers' messages and the letters. Return True if someone should look."""
        is_news = False
        for member in list(self.crew.members):
            for word, *rest in member.words() if member.says in ready else []:
                match word:
                    case "at":
                        self._seq[rest[0]] = max(self._seq.get(rest[0], 0), int(rest[1]))
                    case "backend":
                        member.backends.append(int(rest[0]))
                    case "refused":
                        self.refused += 1
                    case _:
                        is_news = True
        for token, body in self._lane.letterbox.letters():
            patiently(lambda token=token, body=body: self._people.deliver(token, body))  # type: ignore[misc]
            self.crew.ring()
            is_news = True
        return is_news

    def _bury_the_dead(self) -> bool:
        """Report dead workers and replace them, as the supervisor does."""
        dead = self.crew.look()
        for member, status in dead:
            self.kills += is_killed(status)
            if self._schedule.is_watched:
                patiently(failover.watch)
            else:
                patiently(lambda m=member, s=status: failover.worker_died(m.id, describe(s)))  # type: ignore[misc]
            member.words()
            member.close()
        for member in self.crew.members:
            if member.is_stopped and not member.is_declared_dead:
                # The one lie: it is alive and will return.
                member.is_declared_dead = True
                patiently(lambda m=member: failover.worker_died(m.id, "the schedule says so"))  # type: ignore[misc]
                self._woken_at[member.pid] = time.monotonic() + ZOMBIE_SECONDS
        if time.monotonic() - self._freed_at >= ENDED_SECONDS:
            self._freed_at = time.monotonic()
            patiently(lambda: failover.watch_with(None, is_thorough=True))
        while len(self.crew.at_work()) < self._schedule.workers:
            self.crew.hire()
        if dead:
            self.crew.ring()
        return bool(dead)

    def _raise_zombies(self, *, at_once: bool = False) -> None:
        """Resume stopped workers before anybody settles a call that they may still be sending."""
        for member in self.crew.members:
            if member.is_stopped and member.is_declared_dead and (at_once or self._is_time_for(member)):
                self.crew.wake(member)

    def _is_time_for(self, member: Member) -> bool:
        return self._people.is_waiting_for_zombies or time.monotonic() >= self._woken_at[member.pid]

    def _do_due_acts(self) -> None:
        ids = [*self._ids, *self._forks.ids]
        for act in list(self._acts):
            if self._seq.get(ids[act.run], 0) >= act.event:
                self._acts.remove(act)
                self._do(act, ids[act.run])

    def _do(self, act: Act, run_id: str) -> None:
        workers = self.crew.at_work()
        match act.what:
            case "pause" | "cancel" | "requeue":
                with suppress(DurableAgentsError):  # too late, and refused
                    patiently(lambda: self._people.steer(run_id, act.what))
            case "postgres":
                self._lane.outside.restart_database()
            case "sandbox":
                self._lane.outside.kill_sandbox()
            case "cut":
                pids = [pid for member in workers for pid in member.backends]
                patiently(
                    lambda: self._lane.reader().execute(
                        "SELECT pg_terminate_backend(p) FROM unnest(%s::int[]) p", [pids]
                    )
                )
            case "drain":
                for member in workers[:1]:
                    self.crew.drain(member)
            case _:
                for member in workers[:1]:
                    member.signal(signal.SIGKILL if act.what == "kill" else signal.SIGSTOP)

    # --- judging ---

    def _judge(self) -> list[Finding]:
        found: list[Finding] = []
        journals: dict[str, list[dict[str, Any]]] = {}
        state: dict[str, str] = {}
        whole = {run_id: self._facts(run_id) for run_id in self._known()}
        for n, run_id in enumerate(self._ids):
            found += self._judge_run(whole[run_id], self._expected(n, whole[run_id]))
            wrong_by_rule = judge_policed(whole[run_id].events, self._rules.turns, self._people.shown.how)
            found += [Finding("broken", run_id, what) for what in wrong_by_rule]
            found += self._judge_halts(whole[run_id]) if self._schedule.halts else []
            found += self._verified(run_id) if self._schedule.policies or self._schedule.halts else []
        for run_id, origin, question in self._forks.made.values():
            rest = left_of(self._schedule.jobs[self._ids.index(origin)], question.visit)
            found += self._judge_run(whole[run_id], self._expected_of_fork(whole[run_id], rest))
            wrong = judge_forked(whole[run_id], whole[origin], question)
            found += [Finding(kind, run_id, what) for kind, what in wrong]
        for origin in sorted(self._forks.origins):
            found += [Finding(kind, origin, what) for kind, what in judge_origin(whole[origin])]
        for run_id in (*filter(None, self._forks.ids), *sorted(self._forks.origins)):
            found += self._verified(run_id)
        for run_id, facts in whole.items():
            journals[run_id], state[run_id] = facts.events, facts.run.get("state", "")
        found += [Finding("broken", run_id, what) for run_id, what in (*self._moves.odd, *self._forks.odd)]
        if self._schedule.pools:
            ended = frozenset(run_id for run_id in whole if state[run_id] in ENDED)
            found += judge_shared(patiently(lambda: self._sharing.told(self._lane.reader())), journals, ended)
        if self._schedule.ramp:
            found += self._judge_starts()
        return found

    def _judge_halts(self, facts: Facts) -> list[Finding]:
        """Judge a run and its children, which have its tags but other agents."""
        there = self._halts.stretches
        below = [one for one in there if one.scope != "version"]
        found = [(facts.run_id, what) for what in judge_halted(facts.events, there)]
        for child in self._children(facts.run_id):
            found += [(child.run_id, what) for what in judge_halted(child.events, below)]
        return [Finding("broken", run_id, what) for run_id, what in found]

    def _judge_run(self, facts: Facts, expected: Expected) -> list[Finding]:
        run_id = facts.run_id
        children = self._children(run_id)
        below = {child.run_id: self._children(child.run_id) for child in children if undoes(child)}
        found = judge_family(facts, children, expected, below=below)
        for child, theirs in below.items():
            for each in (child, *(facts.run_id for facts in theirs)):
                found += self._verified(each)
        return [*found, *judge_moved(facts, patiently(lambda: row_of(self._lane.reader(), run_id)))]

    def _verified(self, run_id: str) -> list[Finding]:
        """Return the app's own verification problems; faults alone must cause none."""
        problems = patiently(lambda: verify(UUID(run_id))).problems
        if self._schedule.sharing == "refill":  # it ends months at will, which the calendar doesn't know
            problems = [
                problem for problem in problems if "in a period other than the one in which it began" not in problem
            ]
        return [Finding("broken", run_id, f"verification: {problem}") for problem in problems]

    def _children(self, run_id: str) -> list[Facts]:
        ids = patiently(lambda: evidence.children(self._lane.reader(), run_id))
        return [self._facts(child) for child in ids]

    def _judge_starts(self) -> list[Finding]:
        released = patiently(lambda: self._ramps.told(self._lane.reader()))
        facts = {start["run"]: self._facts(start["run"]) for start in released.starts}
        found = [*judge_released(released, facts, self._ramps.ids)]
        for start in released.starts:
            expected = expected_of_start(start["version"], released.ramps[0])
            found += judge(facts[start["run"]], replace(expected, may_send_late=self._schedule.has_zombies))
        return found

    def _facts(self, run_id: str) -> Facts:
        effects = self._lane.outside.effects(run_id)
        return patiently(lambda: evidence.facts(self._lane.reader(), run_id, effects))

    def _expected(self, n: int, facts: Facts) -> Expected:
        return self._with_people(facts, self._schedule.jobs[n])

    def _expected_of_fork(self, facts: Facts, rest: Sequence[str]) -> Expected:
        return expected_of_fork(facts, self._with_people(facts, rest))

    def _with_people(self, facts: Facts, steps: Sequence[str]) -> Expected:
        return replace(
            expected_of(steps),
            may_be_cancelled=facts.run_id in self._people.cancelled,
            # Where another run does the same work, nobody may retry it.
            may_be_left=facts.run_id in self._forks.origins or facts.run_id in self._people.left,
            may_send_late=self._schedule.has_zombies,
        )

    def _interruptions(self) -> int:
        query = "SELECT count(*) FROM ledger_event WHERE run_id = ANY(%s::uuid[]) AND kind = 'WorkerLost'"
        row = patiently(lambda: self._lane.reader().execute(query, [self._known()])).fetchone()
        return int(row[0]) if row else 0
