"""Runs on the real database, claimed, driven, killed and answered in this process, by product code throughout."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar
from uuid import uuid4

import pytest
from django.db import OperationalError, connection
from psycopg.errors import LockNotAvailable

from approvals.models import Approval
from approvals.services import decide
from durableagents import Context, End
from ledger import events as e
from ledger.codec import unpack
from ledger.events import decode
from ledger.models import Event, Head, LedgerEntry, OverrideRecord
from ledger.verification.runs import verify
from runs import features
from runs.engine.agents import Agent, registry
from runs.engine.content.hooks import Screen
from runs.engine.content.reads import NoReads, Reads
from runs.engine.driver import Driver
from runs.engine.halts import Halts
from runs.engine.outcomes import LateAnswer
from runs.engine.runtime import Control, RetryPolicy, Runtime
from runs.fleet import members, version_changes
from runs.fleet.agent_versions import Loaded
from runs.fleet.procfs import boot, host
from runs.journal.asked.policies import InForce
from runs.journal.claims import Claim, Worker, claim
from runs.journal.libpq import Pool
from runs.journal.postgres import PgJournal
from runs.journal.telling import Teller
from runs.models import NEVER, Process, Run, Wait
from runs.overheard.texts import Texts
from runs.services import lifecycle, reconciling
from runs.workers import timers
from runs.workers.engine_runtime import runtime
from tests import kept
from tests.world import AT_ONCE, FIONA, LENA, OLGA, SHOP, Item, Killed, Notes, Toolbox, agent_of

T = TypeVar("T")
TABLES = (
    "ledger_head",
    "ledger_event",
    "ledger_ledgerentry",
    "ledger_overriderecord",
    "ledger_actrecord",
    "ledger_accountrecord",
    "ledger_register",
    "runs_run",
    "runs_wait",
    "runs_signal",
    "runs_checkpoint",
    "runs_incident",
    "approvals_approval",
    "approvals_decision",
    "approvals_policy",
    "runs_policyrevision",
    "django_q_ormq",
)


class Stage:
    """A fleet without processes. Use `drive` to let its one worker take the best ready run and drive it once."""

    def __init__(self) -> None:
        self.loop = kept.borrow_loop()
        self.pool: Pool | None = None
        self.retry: RetryPolicy = AT_ONCE
        self.kill_at: list[tuple[str, str]] = []
        self.late: list[LateAnswer] = []
        self.is_strict = False  # as in production, which settings may say too
        self.teller = Teller()
        self.texts = Texts()
        self.screens: tuple[Screen, ...] = ()
        self.reads: Reads = NoReads()
        self.policies: InForce | None = None  # what its worker knows; None: read again
        self.halts = Halts()
        self.control = Control()
        self.ask_model = runtime().request_model
        self.at: Callable[[str, str], None] = lambda point, tool: None
        self.worker = self.hire()

    def close(self) -> None:
        if self.pool is not None and self.pool is not self.loop.pool:
            self.wait(self.pool.close())
        self.loop.give_back()
        members.hang_up()

    def wait(self, doing: Coroutine[Any, Any, T]) -> T:
        return self.loop.runner.run(doing, context=self.loop.context)

    # --- workers ---

    def hire(self, *, is_dead: bool = False) -> Worker:
        """Register a worker: this process, or one with an impossible pid."""
        identity = members.identify(os.getpid())
        assert identity is not None
        pid = 2**22 + 1 if is_dead else identity.pid  # beyond the kernel's highest pid
        worker = Worker(uuid4(), host(), pid)
        with connection.cursor() as cursor:
            cursor.execute("SELECT clock_timestamp()")
            now = cursor.fetchone()[0]
        Process.objects.create(
            id=worker.id,
            kind="worker",
            host=worker.host,
            boot=boot(),
            pid=pid,
            born_ticks=identity.born_ticks,
            started_at=now,
            last_heartbeat_at=now,
        )
        return worker

    async def connected(self) -> Pool:
        if self.pool is None:
            self.pool = await self.loop.connected()
        return self.pool

    # --- driving ---

    def claim(self, worker: Worker | None = None, limit: int = 1, graphs: Sequence[str] | None = None) -> list[Claim]:
        async def take() -> list[Claim]:
            pool, by = await self.connected(), worker or self.worker
            versions = registry.graph_ids() if graphs is None else list(graphs)
            # These workers are idle, so they also take a run that must be driven alone.
            return await claim(pool, by, versions, limit) or await claim(pool, by, versions, 1, solo=True)

        return self.wait(take())

    def take(self, run: Run, worker: Worker | None = None) -> PgJournal:
        (claimed,) = self.claim(worker)
        assert claimed.run_id == run.id
        return self.journal(claimed, worker)

    def journal(self, claimed: Claim, worker: Worker | None = None) -> PgJournal:
        return PgJournal(self.wait(self.connected()), worker or self.worker, claimed)

    def drive(self, worker: Worker | None = None) -> str:
        """Drive the best ready run once. Return `killed` if the worker died, `idle` if no run is ready."""
        claimed = self.claim(worker)
        return self.drive_claimed(claimed[0], worker) if claimed else "idle"

    def drive_claimed(self, claimed: Claim, worker: Worker | None = None) -> str:
        self.control = Control()
        driver = Driver(
            registry.find(claimed.graph_id),
            self.journal(claimed, worker),
            self.runtime,
            self.control,
            trace_id=claimed.trace_id,
            generation=claimed.generation,
        )
        try:
            return self.wait(driver.drive())
        except Killed:
            return "killed"

    @property
    def runtime(self) -> Runtime:
        return replace(
            runtime(),
            hit=self._hit,
            retry=self.retry,
            request_model=self.ask_model,
            record_late=self.late.append,
            keep=self.teller.keep,
            overhear=self.texts.overhear,
            screens=self.screens,
            reads=self.reads,
            price_patience=0.0,
            code_of=self._code_of,
            policies=self._policies(),
            halts=self.halts,
            refuses_other_code=self.is_strict or runtime().refuses_other_code,
        )

    def _policies(self) -> InForce:
        if self.policies is None:
            self.policies = InForce(features.only(lambda each: each.policies), self.pool)
        return self.policies

    async def _code_of(self, graph_id: str, fingerprint: str) -> Any:
        return await version_changes.code_of(await self.connected(), graph_id, fingerprint)

    def _hit(self, point: str, tool: str) -> None:
        self.at(point, tool)
        if (point, tool) in self.kill_at:
            self.kill_at.remove((point, tool))
            raise Killed(f"{point} {tool}")

    def send_told(self) -> None:
        """Send the nodes' progress to the database, as hosts do several times a second."""

        async def send() -> None:
            await self.teller.send(await self.connected())

        self.wait(send())

    def settle(self, run: Run, *, worker: Worker | None = None) -> str:
        """Drive until it ends or needs a person; fire timers, and take back runs of dead workers."""
        from runs.workers import failover

        for _ in range(200):
            how = self.drive(worker)
            if how == "killed":
                failover.worker_died((worker or self.worker).id, "the test says so")
                Process.objects.update(ended_at=None)
                Run.objects.filter(ready_at__lt=NEVER).update(ready_at=now())
            timers.sweep()
            if how != "killed" and not Run.objects.filter(pk=run.id, ready_at__lt=NEVER).exists():
                return how
        raise AssertionError("it goes round in circles")

    # --- people ---

    def start(self, agent: Agent, **input: Any) -> Run:
        return lifecycle.start(agent.graph_id, input, by=SHOP)

    def decide(self, run: Run, verdict: str = "approve", *, why: str = "as quoted") -> Approval:
        approval = Approval.objects.get(run=run, state="open")
        by = {"finance_po": FIONA, "legal": LENA}[approval.queue]
        return decide(approval.id, verdict=verdict, plan_hash=approval.plan_hash, justification=why, by=by)

    def reconcile(self, run: Run, verdict: str, receipt: Any = None, *, sender_is_gone: bool = False) -> Run:
        fields = {"verdict": verdict, "receipt": receipt, "sender_is_gone": sender_is_gone}
        reconciling.reconcile(run.id, **fields, justification="looked it up", by=OLGA)
        return fresh(run)


def announce(stage: Stage, worker: Worker | None = None) -> None:
    """Announce loaded agents, as a worker process does at its start and for each new one."""
    by = worker or stage.hire()

    async def act() -> None:
        async with (await stage.connected()).connection() as link:
            await Loaded(by.id).announce(link)

    stage.wait(act())


class Mood:
    """A condition outside of the journal, which a repaired agent or changed world would change."""

    is_bad = True


def calling(tools: Toolbox, tool: str, item: str = "a", amount: int = 1, **more: Any) -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(getattr(tools, tool), Item(name=item, amount=amount))).ref)

    return agent_of(node, tools=tools.all(), **more)


# --- looking ---


def now() -> Any:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        return cursor.fetchone()[0]


def fresh(run: Run) -> Run:
    return Run.objects.get(pk=run.pk)


def head(run: Run) -> Head:
    return Head.objects.get(pk=run.pk)


def events(run: Run, kind: type[Any] | None = None) -> list[Any]:
    rows = Event.objects.filter(run_id=run.pk).order_by("seq").values_list("clear", "sealed")
    every = [decode(clear, unpack(packed)) for clear, packed in rows]
    return [x for x in every if kind is None or isinstance(x, kind)]


def kinds(run: Run) -> list[str]:
    return list(Event.objects.filter(run_id=run.pk).order_by("seq").values_list("kind", flat=True))


def facts(run: Run) -> list[str]:
    return list(LedgerEntry.objects.filter(run_id=run.pk).order_by("id").values_list("fact", flat=True))


def overrides(run: Run) -> list[OverrideRecord]:
    return list(OverrideRecord.objects.filter(run_id=run.pk).order_by("id"))


def waiting(run: Run) -> list[Wait]:
    return list(Wait.objects.filter(run=run, resolved_at__isnull=True).order_by("opened_at"))


def problems(run: Run) -> list[str]:
    """Return verification's problems except for deadlines, which tests move instead of waiting."""
    return [found for found in verify(run.id).problems if ": deadline says" not in found]


def output(run: Run) -> Any:
    return events(run, e.RunCompleted)[-1].payload


def dump() -> dict[str, list[Any]]:
    """Return every row of every table that a service could change, to compare before and after."""
    found: dict[str, list[Any]] = {}
    with connection.cursor() as cursor:
        for table in sorted({*TABLES} & {*connection.introspection.table_names(cursor)}):
            cursor.execute(f"SELECT t::text FROM {table} t ORDER BY 1")
            found[table] = [row[0] for row in cursor.fetchall()]
    return found


# --- several at once ---


def at_once(*acts: Callable[[], Any]) -> list[Any]:
    """Start all acts together on separate connections; return answers or exceptions. Failed checks fail the test."""
    gate = threading.Barrier(len(acts))
    answers: list[Any] = [None] * len(acts)

    def perform(i: int, act: Callable[[], Any]) -> None:
        try:
            connection.ensure_connection()
            gate.wait(60)
            answers[i] = in_turn(act)
        except (Exception, pytest.fail.Exception) as error:
            answers[i] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=perform, args=(i, act)) for i, act in enumerate(acts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads), "an act does not end"
    for answer in answers:
        if isinstance(answer, (AssertionError, pytest.fail.Exception)):
            raise answer
    return answers


def in_turn(act: Callable[[], T]) -> T:
    """Retry `act` while the lock times out: under load twenty in a row may wait longer than allowed."""
    while True:
        try:
            return act()
        except OperationalError as error:
            if not isinstance(error.__cause__, LockNotAvailable):
                raise


def in_thread(act: Callable[[], T]) -> T:
    """Run `act` concurrently, on its own connection; return its result."""
    (answer,) = at_once(act)
    if isinstance(answer, Exception):
        raise answer
    return answer  # type: ignore[no-any-return]


def follow_actions(patch: pytest.MonkeyPatch, *hooks: Callable[[str, Run], None], is_all: bool = False) -> None:
    """Call hooks in the transaction of each action, after those of features, or (`is_all`) instead of them."""
    each = {name: replace(one, on_action=()) if is_all else one for name, one in features.installed.items()}
    patch.setattr(features, "installed", each | {"test": features.Feature(name="test", on_action=hooks)})
