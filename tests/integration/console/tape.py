"""Builds a journal of real events with a clock that the test moves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ledger import events as e
from runs.story import EventLine, Fold, Story, line_of, tell

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


class Tape:
    """Consecutive events; `after` seconds pass before each."""

    def __init__(self) -> None:
        self.at = NOON
        self.lines: list[EventLine] = []

    def add(self, event: e.Event, after: float = 1.0) -> Tape:
        self.at += timedelta(seconds=after)
        self.lines.append(line_of(event, seq=len(self.lines) + 1, at=self.at))
        return self

    def story(self, later: float = 0.0) -> Story:
        return tell(self.lines, self.at + timedelta(seconds=later))

    def fold(self) -> Fold:
        fold = Fold()
        for line in self.lines:
            fold.take(line)
        return fold

    # The first events of every run, and common steps.

    def created(self) -> Tape:
        return self.add(e.RunCreated(agent="a", version="1.0.0", by="user:ina", payload={"legal_name": "Acme"}), 0)

    def claimed(self, cause: str = "start", pid: int = 7, after: float = 1.0) -> Tape:
        return self.add(e.RunClaimed(epoch=1, worker="w", host="h", pid=pid, cause=cause), after)

    def visit(self, node: str, after: float = 1.0) -> Tape:
        return self.add(e.VisitEntered(node=node, visit=1), after)

    def invoked(
        self,
        slot: str = "0.1/1",
        tool: str = "order",
        *,
        replay_class: str = "idempotent_with_key",
        grant: str | None = None,
        attempt: int = 0,
    ) -> Tape:
        payload = {"arguments": {"amount": 5}, "key": "k-1", "callback_token": "sesame"}
        return self.add(
            e.ToolInvoked(
                slot=slot,
                attempt=attempt,
                tool=tool,
                replay_class=replay_class,
                requested_hash="h",
                executed_hash="h",
                grant=grant,
                payload=payload,
            )
        )

    def returned(
        self, slot: str = "0.1/1", tool: str = "order", external_id: str | None = "PO-1", after: float = 1.0
    ) -> Tape:
        return self.add(
            e.ToolReturned(slot=slot, tool=tool, external_id=external_id, payload={"result": {"ref": "PO-1"}}), after
        )

    def parked(self, state: str = "waiting_human") -> Tape:
        return self.add(e.RunParked(state=state, waits=[]))

    def lost(self, pid: int = 7, after: float = 1.0) -> Tape:
        return self.add(
            e.WorkerLost(worker="w", epoch=1, pid=pid, proof="process 7 has ended", is_counted=True, deaths=1), after
        )

    def gate(self, slot: str = "0.1/1", tool: str = "order", n: int = 0) -> Tape:
        plan = {"arguments": {"amount": 5}, "headline": "$5"}
        return self.add(
            e.ApprovalRequested(
                slot=slot,
                approval_id=f"id-{slot}" if n == 0 else f"id-{slot}-{n}",
                n=n,
                queue="finance_po",
                tool=tool,
                requested_hash="h",
                plan_hash="p",
                rule="r",
                deadline="",
                payload=plan,
            )
        )

    def decided(self, verdict: str, slot: str = "0.1/1", why: str = "because", after: float = 60.0) -> Tape:
        return self.add(
            e.ApprovalDecided(
                slot=slot,
                approval_id=f"id-{slot}",
                verdict=verdict,
                plan_hash="p",
                by="user:fiona",
                role="approver_finance",
                payload={"justification": why},
            ),
            after,
        )
