"""The whole agent on an in-memory journal and the real sandbox: driven until it waits, then answered."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from durableagents.demo.vendor_onboard import agent
from ledger import events as e
from runs.engine import memory
from runs.engine.canonical import keyed_hasher
from runs.engine.pipeline import GUARDS
from runs.engine.runtime import RetryPolicy, Runtime
from runs.engine.thinking.request import request_model
from tests.system.sandbox.harness import Receiver, Sandbox

IMPATIENT = RetryPolicy(first=0.01, longest=0.02, in_place=0.2, timer_first=0.01, timer_longest=0.01)


class Killed(BaseException):
    """Raised at a crash point: the visit ends at once, as after SIGKILL."""


@dataclass
class Onboarding:
    """One run. `crash_at` names crash points, as (point, tool), at which the worker dies once."""

    sandbox: Sandbox
    receiver: Receiver
    input: dict[str, Any]
    crash_at: set[tuple[str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.run = memory.start(agent, self.input)
        self.runtime = Runtime(
            guards=GUARDS,
            hasher=keyed_hasher(b"test"),
            call_secret=b"test",
            request_model=request_model,
            callback_url=lambda token: f"{self.receiver.url}?{token}",
            hit=self._hit,
            retry=IMPATIENT,
        )

    def _hit(self, point: str, tool: str) -> None:
        if (point, tool) in self.crash_at:
            self.crash_at.discard((point, tool))
            raise Killed

    async def drive(self) -> str:
        """Drive until it ends or waits for a person; deliver callbacks, fire timers and claim again after crashes."""
        while True:
            try:
                how = await memory.drive(agent, self.run, self.runtime)
            except Killed:
                continue
            kinds = {wait.spec.kind for wait in self.run.open_waits()}
            if how != "parked" or kinds & {"approval", "reconcile", "input"}:
                return how
            await self._answer()

    async def _answer(self) -> None:
        for wait_id, wait in [*self.run.waits.items()]:
            if wait.resolution is not None:
                continue
            if wait.spec.kind == "webhook":
                body = await asyncio.to_thread(self.receiver.next)
                came = e.CallbackReceived(
                    slot=wait.spec.slot, attempt=wait.spec.attempt, tool="request_w9", payload=body
                )
                self.run.resolve(wait_id, "received", event=came)
            else:
                self.run.resolve(wait_id, "fired")

    def gate(self) -> Any:
        (wait,) = (wait for wait in self.run.open_waits() if wait.gate is not None)
        return wait.gate

    async def decide(self, verdict: str, justification: str, queue: str = "finance_po") -> str:
        assert self.gate().queue == queue
        role = {"finance_po": "approver_finance", "legal": "approver_legal"}[queue]
        self.run.decide(verdict, by=f"user:{queue}", role=role, justification=justification)
        return await self.drive()

    async def settle(self, verdict: str, receipt: Any = None) -> str:
        ((wait_id, wait),) = ((i, w) for i, w in self.run.waits.items() if w.resolution is None)
        assert wait.spec.kind == "reconcile"
        tool_reconciled = e.ToolReconciled(
            slot=wait.spec.slot,
            attempt=wait.spec.attempt,
            tool="send_welcome",
            verdict=verdict,
            by="user:operator",
            payload={"receipt": receipt},
        )
        self.run.resolve(wait_id, verdict, event=tool_reconciled)
        return await self.drive()

    @property
    def ended(self) -> Any:
        return self.run.events[-1].payload

    @property
    def path(self) -> list[str]:
        return [event.node for event in self.run.events if isinstance(event, e.VisitEntered)]

    def executed(self) -> list[str]:
        return [
            f"{row['system']}.{row['operation']}" for row in self.sandbox.executed() if row["run_id"] == self.run.id
        ]

    def requests(self, operation: str) -> list[dict[str, Any]]:
        return [row for row in self.sandbox.effects(operation) if row["run_id"] == self.run.id]
