"""A long-lived run: thousands of visits, turns, calls, gates and crashes, appended as services do."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice
from uuid import UUID

from ledger import events as e
from ledger.actors import Actor
from ledger.append import append
from ledger.events import Event

HANDS = Actor("system", "history", role="", auth="system")
AT_ONCE = 500


def lived(run_id: UUID, events: int, *, after: int = 0) -> int:
    """Append this many events to a run that has `after`; return the last one's seq."""
    last = 0
    coming = islice(life(), after, after + events)
    while some := list(islice(coming, AT_ONCE)):
        last = append(run_id, *some, by=HANDS)
    return last


def life() -> Iterator[Event]:
    """Yield the events of an endless loop; every hundredth visit is gated, every two hundredth loses its worker."""
    yield e.RunClaimed(epoch=1, worker="w", host="h", pid=7, cause="start")
    for n in count():
        yield e.VisitEntered(node=("think", "order")[n % 2], visit=n // 2 + 1)
        talk, slot = f"{n}.1/1", f"{n}.1/2"
        yield e.ModelRequested(
            slot=f"{talk}/0/0",
            conversation=talk,
            turn=0,
            model="scripted",
            request_hash="h",
            payload={"prompt": f"What of lot {n}?"},
        )
        answer = {
            "parts": [
                {"part_kind": "text", "content": f"I look at lot {n}."},
                {"part_kind": "tool-call", "tool_name": "look", "args": f'{{"lot": {n}}}'},
            ]
        }
        yield e.ModelResponded(
            slot=f"{talk}/0/0",
            conversation=talk,
            turn=0,
            tokens_in=30,
            tokens_out=12,
            payload={"model": "scripted:1", "response": answer},
        )
        yield e.ToolRead(
            slot=f"{talk}/0/1",
            tool="look",
            requested_hash="h",
            payload={"arguments": {"lot": n}, "result": {"lot": n, "text": "words " * 40}},
        )
        yield e.ValueRead(slot=f"{n}.1/3", what="now", payload="2026-03-02T12:00:00+00:00")
        if n % 100 == 99:
            yield from _gated(n, slot)
        yield e.ToolInvoked(
            slot=slot,
            tool="buy",
            replay_class="idempotent_with_key",
            requested_hash="h",
            executed_hash="h",
            grant=slot if n % 100 == 99 else None,
            payload={"arguments": {"lot": n, "amount": n * 3}, "key": f"k-{n}"},
        )
        if n % 200 == 150:
            yield e.WorkerLost(worker="w", epoch=1, pid=7, proof="process 7 has ended", is_counted=True, deaths=1)
            yield e.RunClaimed(epoch=2, worker="v", host="h", pid=8, cause="recovered")
            yield e.ToolRedispatched(slot=slot, tool="buy", n=1)
        if n % 50 == 25:
            yield e.ToolFailed(
                slot=slot, tool="buy", code="refused", requested_hash="h", payload={"message": f"lot {n} is sold"}
            )
        else:
            yield e.ToolReturned(slot=slot, tool="buy", external_id=f"PO-{n}", payload={"result": {"po": f"PO-{n}"}})


def _gated(n: int, slot: str) -> Iterator[Event]:
    plan = {"arguments": {"lot": n, "amount": n * 3}, "headline": "$5"}
    yield e.ApprovalRequested(
        slot=slot,
        approval_id=str(UUID(int=n)),
        queue="finance_po",
        tool="buy",
        requested_hash="h",
        plan_hash="p",
        rule="r",
        deadline="",
        payload=plan,
    )
    yield e.RunParked(state="waiting_human", waits=[])
    yield e.ApprovalDecided(
        slot=slot,
        approval_id=str(UUID(int=n)),
        verdict="approved",
        plan_hash="p",
        by="user:fiona",
        role="approver_finance",
        payload={"justification": "yes"},
    )
    yield e.RunClaimed(epoch=1, worker="w", host="h", pid=7, cause="resolved")
