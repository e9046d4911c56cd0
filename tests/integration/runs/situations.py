"""Every situation of a run, produced by running it and not by writing rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from durableagents import Context, End, Failure, Grant, TransportError
from runs.engine.agents import Agent
from runs.models import Run
from runs.services import lifecycle, reconciling
from runs.workers import failover
from tests.integration.runs.stage import Stage, fresh
from tests.world import OLGA, Item, Notes, Toolbox, agent_of

FORGED = Grant("0.1/9", "nobody", "plan", "hash", "user:nobody", "finance_po")


def agent_for_all(tools: Toolbox) -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        match state.asked.text:
            case "gate":
                return End((await ctx.call(tools.pay, Item(name="po", amount=5000))).ref)
            case "unknown" | "doubt":
                return End((await ctx.call(tools.mail, Item(name="letter"))).ref)
            case "callback":
                return End((await ctx.call(tools.ask, Item(name="form"))).ref)
            case "sleep":
                await ctx.sleep(3600)
            case "away":
                await ctx.call(tools.order, Item(name="desk"))
            case "operator":
                await ctx.call(tools.pay, Item(name="po", amount=5000), grant=FORGED)
            case "fail":
                raise Failure("no luck", code="no_luck")
        return End("well")

    return agent_of(node, tools=tools.all())


class Situations:
    """Brings runs into situations. Each method leaves exactly one run, and nothing else ready."""

    def __init__(self, stage: Stage, tools: Toolbox) -> None:
        self.stage, self.tools, self.agent = stage, tools, agent_for_all(tools)

    def make(self, name: str) -> Run:
        made: Callable[[], Run] = getattr(self, name)
        return fresh(made())

    def _driven(self, text: str, how: str) -> Run:
        run = self.stage.start(self.agent, text=text)
        assert self.stage.drive() == how
        return run

    # not ended, without a worker

    def pending(self) -> Run:
        return self.stage.start(self.agent, text="end")

    def queued(self) -> Run:
        """Its worker died; another one will take it."""
        run = self.owned()
        worker = self.stage.hire(is_dead=True)
        Run.objects.filter(pk=run.pk).update(owner=worker.id)
        assert failover.worker_died(worker.id, "gone") == 1
        return run

    def at_gate(self) -> Run:
        return self._driven("gate", "parked")

    def unknown(self) -> Run:
        self.tools.outside.trouble("mail", TransportError("cut"), when="after")
        return self._driven("unknown", "parked")

    def stopped(self) -> Run:
        return self._driven("operator", "operator")

    def at_callback(self) -> Run:
        return self._driven("callback", "parked")

    def asleep(self) -> Run:
        return self._driven("sleep", "parked")

    def in_outage(self) -> Run:
        """A keyed call waits for a retry timer, its outcome unknown."""
        self.tools.outside.trouble("order", TransportError("away"))
        run = self._driven("away", "parked")
        self.stage.retry = type(self.stage.retry)(first=0, in_place=-1, timer_first=3600, timer_longest=3600)
        return run

    # with a worker

    def owned(self) -> Run:
        run = self.stage.start(self.agent, text="end")
        assert len(self.stage.claim()) == 1
        return run

    def asked_to_pause(self) -> Run:
        return lifecycle.pause(self.owned().id, by=OLGA, justification="hold on")

    def asked_to_cancel(self) -> Run:
        return lifecycle.cancel(self.owned().id, by=OLGA, justification="stop")

    def doomed_unknown(self) -> Run:
        """Cancelled, but a person has to settle a call first."""
        return lifecycle.cancel(self.unknown().id, by=OLGA, justification="stop")

    # paused

    def _paused(self, run: Run) -> Run:
        return lifecycle.pause(run.id, by=OLGA, justification="hold on")

    def paused_pending(self) -> Run:
        return self._paused(self.pending())

    def paused_queued(self) -> Run:
        return self._paused(self.queued())

    def paused_at_gate(self) -> Run:
        return self._paused(self.at_gate())

    def paused_unknown(self) -> Run:
        return self._paused(self.unknown())

    def paused_stopped(self) -> Run:
        return self._paused(self.stopped())

    def paused_at_callback(self) -> Run:
        return self._paused(self.at_callback())

    def paused_asleep(self) -> Run:
        return self._paused(self.asleep())

    def paused_woken(self) -> Run:
        """Its wait ended while it was paused."""
        run = self.paused_at_gate()
        self.stage.decide(run)
        return run

    # ended

    def completed(self) -> Run:
        return self._driven("end", "completed")

    def failed(self) -> Run:
        return self._driven("fail", "failed")

    def cancelled(self) -> Run:
        return lifecycle.cancel(self.pending().id, by=OLGA, justification="stop")


NOT_ENDED = [
    "pending",
    "queued",
    "at_gate",
    "unknown",
    "stopped",
    "at_callback",
    "asleep",
    "in_outage",
    "owned",
    "asked_to_pause",
    "asked_to_cancel",
    "doomed_unknown",
    "paused_pending",
    "paused_queued",
    "paused_at_gate",
    "paused_unknown",
    "paused_stopped",
    "paused_at_callback",
    "paused_asleep",
    "paused_woken",
]
ENDED = ["completed", "failed", "cancelled"]
ALL = [*NOT_ENDED, *ENDED]


def act(service: str, run: Run, justification: Any = "because I say so", **more: Any) -> Run:
    if service in ("happened", "did_not", "fail"):
        receipt = {"ref": "seen"} if service == "happened" else None
        reconciling.reconcile(run.id, verdict=service, receipt=receipt, justification=justification, by=OLGA, **more)
        return fresh(run)
    return getattr(lifecycle, service)(run.id, by=OLGA, justification=justification, **more)  # type: ignore[no-any-return]
