"""Moves recorded times into the past, journal included, with the installation's key and the owner's database rights."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from approvals.models import Decision
from ledger import events as e
from ledger.chain import body_hash, link_hash
from ledger.clock import database_now
from ledger.codec import decode, pack, unpack
from ledger.codes import event_code, place_of
from ledger.keys import code_key
from ledger.models import Event
from runs.models import Wait
from tests.tampering import without_triggers

Timed = (
    e.ApprovalRequested | e.ApprovalTimed | e.ApprovalReminded | e.ApprovalEscalated | e.InquiryMade | e.InquiryEnded
)
# Columns with the time when something happened or is due.
_WHEN = {
    "ledger_event": ("at",),
    "ledger_ledgerentry": ("at",),
    "ledger_overriderecord": ("at",),
    "runs_run": ("created_at", "started_at", "ended_at", "updated_at"),
    "runs_wait": ("opened_at", "deadline", "resolved_at"),
    "approvals_approval": ("opened_at", "deadline", "decided_at"),
}
TIMED = [kind.KIND for kind in Timed.__args__]


def earlier(run_id: UUID, by: timedelta, approval_id: str = "", *, besides: Sequence[str] = ()) -> None:
    """Move the recorded times of a run's questions (or one's), and of events of other kinds, into the past."""
    for row in Event.objects.filter(run_id=run_id, kind__in=[*TIMED, *besides]).order_by("seq"):
        event = decode(bytes(row.clear), unpack(row.sealed))
        if not approval_id or getattr(event, "approval_id", "") == approval_id:
            written_as(row, _moved(event, by))


def runs_out(run_id: UUID, kind: str) -> None:
    for wait in Wait.objects.filter(run_id=run_id, kind=kind, resolved_at=None):
        by = wait.deadline - database_now() + timedelta(seconds=1)
        if kind == "approval":
            earlier(run_id, by)
        Wait.objects.filter(pk=wait.pk).update(deadline=wait.deadline - by)


def all_earlier(run_id: UUID, by: timedelta, *, but: Collection[str] = ()) -> None:
    """Move a run's events and rows, except those of some tables, and the times in them into the past."""
    with without_triggers() as cursor:
        for table, columns in ((table, columns) for table, columns in _WHEN.items() if table not in but):
            moved = ", ".join(f"{column} = {column} - %s" for column in columns)
            mine = "id" if table == "runs_run" else "run_id"
            cursor.execute(f"UPDATE {table} SET {moved} WHERE {mine} = %s", [*[by] * len(columns), run_id])
        first = Event.objects.filter(run_id=run_id).order_by("seq")[1]
        chain = _chained(run_id, first.seq - 1, cursor.execute)
        cursor.execute("UPDATE ledger_head SET chain = %s WHERE run_id = %s", [chain, run_id])
    earlier(run_id, by, besides=[e.WaitOpened.KIND, e.RunRetried.KIND])


def _moved(event: Any, by: timedelta) -> e.Event:
    """Return the event with every moment this much earlier; a plan stays as hashed."""

    def shift(value: Any) -> Any:
        match value:
            case dict():
                return {name: shift(each) for name, each in value.items()}
            case list():
                return [shift(each) for each in value]
            case str() if _is_moment(value):
                return (datetime.fromisoformat(value) - by).isoformat()
        return value

    deadline = getattr(event, "deadline", "")
    payload = event.payload if isinstance(event, e.ApprovalRequested) else shift(event.payload)
    return replace(event, payload=payload, **({"deadline": shift(deadline)} if deadline else {}))


def _is_moment(text: str) -> bool:
    try:
        return len(text) > 18 and datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def written_as(row: Event, event: e.Event) -> None:
    """Replace a row's event, with its code, the chain and the decisions that follow."""
    clear, packed, place = e.encode_clear(event), pack(event.payload, row.run_id), place_of(bytes(row.code))
    assert place is not None
    code = event_code(code_key(), row.run_id, place, body_hash(clear, packed))
    longer = len(clear) + len(packed or b"") - len(bytes(row.clear)) - len(bytes(row.sealed or b""))
    with without_triggers() as cursor:
        cursor.execute(
            "UPDATE ledger_event SET clear = %s, sealed = %s, code = %s WHERE run_id = %s AND seq = %s",
            [clear, packed, code, row.run_id, row.seq],
        )
        chain = _chained(row.run_id, row.seq, cursor.execute)
        cursor.execute(
            "UPDATE ledger_head SET chain = %s, bytes = bytes + %s WHERE run_id = %s", [chain, longer, row.run_id]
        )


def _chained(run_id: UUID, since: int, execute: Callable[..., Any]) -> bytes:
    before_it = Event.objects.filter(run_id=run_id, seq=since - 1).first()
    first = Event.objects.get(run_id=run_id, seq=since)
    chain = bytes(first.prev_hash if before_it is None else before_it.hash)
    for each in Event.objects.filter(run_id=run_id, seq__gte=since).order_by("seq"):
        body = body_hash(bytes(each.clear), None if each.sealed is None else bytes(each.sealed))
        before, chain = chain, link_hash(chain, each.seq, each.epoch, each.at, body)
        execute(
            "UPDATE ledger_event SET prev_hash = %s, hash = %s WHERE run_id = %s AND seq = %s",
            [before, chain, run_id, each.seq],
        )
        for decision in Decision.objects.filter(approval__run_id=run_id, seq=each.seq):
            decision.chain = chain
            decision.seal()
            execute(
                "UPDATE approvals_decision SET chain = %s, code = %s WHERE id = %s",
                [chain, decision.code, decision.pk],
            )
    return chain
