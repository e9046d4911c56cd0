"""One run on an in-memory journal, driven, killed, answered and inspected step by step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from ledger import events as e
from runs.engine import memory
from runs.engine.agents import Agent
from runs.engine.assistants import SCRIPTED
from runs.engine.budget import UNLIMITED, Caps, Price, Route
from runs.engine.canonical import keyed_hasher
from runs.engine.content.hooks import Screen
from runs.engine.content.reads import NoReads, Reads
from runs.engine.driver import Driver
from runs.engine.gating.timing import QueueTiming
from runs.engine.limits import Limits
from runs.engine.memory import MemoryJournal, MemoryRun, MemoryWait
from runs.engine.pipeline import GUARDS
from runs.engine.policy import NoPolicies, Policies
from runs.engine.runtime import Control, RetryPolicy, Runtime
from runs.engine.tape import Tape
from runs.engine.thinking.request import request_model
from runs.engine.threads import ToolThreads
from tests.world import AT_ONCE, Killed

HASHER = keyed_hasher(b"a key for tests")


class Begun(ToolThreads):
    """Threads for a call that has surely begun when it times out: a caller continues once the call sets `begun`."""

    def __init__(self, size: int) -> None:
        self.begun = threading.Event()
        super().__init__(size, lambda tool, size: _BegunPool(size, self.begun))


class _BegunPool(ThreadPoolExecutor):
    def __init__(self, size: int, begun: threading.Event) -> None:
        super().__init__(size)
        self._begun = begun

    def submit(self, *args: Any, **more: Any) -> Any:
        future = super().submit(*args, **more)
        assert self._begun.wait(60)
        return future


@dataclass
class Story:
    """A run of `agent`. `kill_at` names crash points, as (point, tool), each of which kills the worker once."""

    agent: Agent
    input: dict[str, Any] = field(default_factory=dict)
    retry: RetryPolicy = AT_ONCE
    kill_at: list[tuple[str, str]] = field(default_factory=list)
    model: Callable[..., Any] = request_model
    journal: type[MemoryJournal] = MemoryJournal
    threads: ToolThreads = field(default_factory=ToolThreads)
    caps: Caps = UNLIMITED
    prices: dict[str, Price] = field(default_factory=dict)
    screens: tuple[Screen, ...] = ()
    reads: Reads = field(default_factory=NoReads)
    limits: Limits = field(default_factory=Limits)
    policies: Policies = field(default_factory=NoPolicies)
    queues: Collection[str] | None = None
    queue_timing: QueueTiming | None = None
    generation: int = 0  # number of migrations
    heard: list[str] | None = None  # collects live model output, as if someone watched the run

    def __post_init__(self) -> None:
        self.run: MemoryRun = memory.start(self.agent, self.input, caps=self.caps)
        self.control = Control()
        self.commits = [len(self.run.events)]
        append = self.run.append

        def commit(events: Sequence[e.Event]) -> None:
            append(events)
            self.commits.append(len(self.run.events))

        self.run.append = commit  # type: ignore[method-assign]

    @property
    def runtime(self) -> Runtime:
        return Runtime(
            guards=GUARDS,
            hasher=HASHER,
            call_secret=b"a key for tests",
            request_model=self.model,
            callback_url=lambda token: f"https://here.example/callbacks/{token}",
            hit=self._hit,
            threads=self.threads,
            retry=self.retry,
            models=lambda assistant: assistant.models or [f"{SCRIPTED}{assistant.name}"],
            route=lambda model: Route(model, self.prices.get(model.removeprefix(SCRIPTED))),
            model_rest=0.0,
            budget_queue="finance_po",
            price_patience=0.0,
            screens=self.screens,
            reads=self.reads,
            limits=self.limits,
            policies=self.policies,
            queues=self.queues,
            queue_timing=self.queue_timing,
            limit_patience=0.0,
            overhear=lambda *place: nullcontext(None if self.heard is None else self.heard.append),
        )

    def _hit(self, point: str, tool: str) -> None:
        if (point, tool) in self.kill_at:
            self.kill_at.remove((point, tool))
            raise Killed(f"{point} {tool}")

    # --- driving ---

    async def drive(self, agent: Agent | None = None) -> str:
        """Claim and drive it once; return `killed` after a crash. `agent` replaces it by changed code."""
        self.control = Control()
        claimed = self.run.claim()
        journal = self.journal(self.run, claimed.lease)
        try:
            driver = Driver(
                agent or self.agent, journal, self.runtime, self.control, trace_id="0" * 32, generation=self.generation
            )
            return await driver.drive()
        except Killed:
            return "killed"

    async def settle(self, agent: Agent | None = None) -> str:
        """Drive until it ends or needs a person; timers fire at once, and crashes are followed by a new claim."""
        for _ in range(1000):
            how = await self.drive(agent)
            if how == "killed":
                continue
            timers = self.waiting("timer")
            if how != "parked" or not timers:
                return how
            for wait_id, _ in timers:
                self.run.resolve(wait_id, "fired")
        raise AssertionError("it goes round in circles")

    # --- people and the outside ---

    def waiting(self, kind: str) -> list[tuple[UUID, MemoryWait]]:
        return [(i, w) for i, w in self.run.waits.items() if w.resolution is None and w.spec.kind == kind]

    def one_waiting(self, kind: str, slot: str = "") -> tuple[UUID, MemoryWait]:
        ((wait_id, wait),) = [(i, w) for i, w in self.waiting(kind) if slot in ("", w.spec.slot)]
        return wait_id, wait

    def decide(self, verdict: str = "approved", justification: str = "as quoted", slot: str = "") -> None:
        self.run.decide(verdict, justification=justification, slot=slot)

    def reconcile(self, verdict: str, receipt: Any = None, result: Any = None, slot: str = "") -> None:
        wait_id, wait = self.one_waiting("reconcile", slot)
        payload = {"receipt": receipt} | ({} if result is None else {"result": result})
        s = wait.spec
        tool_reconciled = e.ToolReconciled(
            slot=s.slot,
            attempt=s.attempt,
            tool=s.detail["tool"],
            verdict=verdict,
            by="user:olga",
            n=s.n,
            payload=payload,
        )
        self.run.resolve(wait_id, verdict, event=tool_reconciled)

    def call_back(self, body: Any, slot: str = "") -> None:
        wait_id, wait = self.one_waiting("webhook", slot)
        s = wait.spec
        came = e.CallbackReceived(slot=s.slot, attempt=s.attempt, tool=s.detail["tool"], payload=body)
        self.run.resolve(wait_id, "received", event=came)

    def retry_run(self) -> None:
        """Write what `runs.services.lifecycle.retry` writes for a failed run."""
        since = self.run.snapshots[-1][0] if self.run.snapshots else 0
        reopened = Tape(self.run.events[since:]).to_reopen()
        self.run.append([e.RunRetried(by="user:olga", reopened=reopened)])

    # --- looking ---

    @property
    def output(self) -> Any:
        last = self.events(e.RunCompleted)[-1]
        return last.payload

    @property
    def failure(self) -> e.RunFailed:
        return self.events(e.RunFailed)[-1]

    @property
    def found(self) -> e.OperatorNeeded:
        return self.events(e.OperatorNeeded)[-1]

    def events(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.run.events if isinstance(event, kind)]

    def kinds(self) -> list[str]:
        return [event.KIND for event in self.run.events]

    def facts(self, slot: str = "") -> list[str]:
        return [entry.fact for entry in self.run.entries if slot in ("", entry.slot)]


def successor_of(run: MemoryRun) -> MemoryRun:
    successor = run.successor
    assert successor is not None
    made = MemoryRun(
        successor.run_id, f"{successor.agent}@{successor.version}", caps=successor.caps, skew=run.skew, depth=run.depth
    )
    made.append(successor.events)
    made.kept = [event for event in made.events if isinstance(event, e.SignalCarried)]
    return made
