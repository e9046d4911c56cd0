"""Recoveries. Incidents (lost workers) are recorded together with their event, and read with their consequences."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from django.db import connection
from pydantic import Field

from ledger import events as e
from ledger.clock import database_now
from ledger.web.fields import Attempt, RunId, Slot
from ledger.web.shapes import Shape
from runs.models import Incident

Reached = Incident.Reached
CallClass = Literal["pure", "idempotent_with_key", "unsafe_on_replay", "model"]
Fate = Literal["repeated", "refused", "found", "answered", "late", "told", "open"]

# Calls and model requests since the newest checkpoint that have a recorded intent but no outcome.
_IN_DOUBT = """
    WITH since AS (SELECT coalesce(max(seq), 0) AS seq FROM runs_checkpoint WHERE run_id = %(run)s)
    SELECT i.slot, i.attempt, i.kind, i.clear, i.at, i.seq FROM ledger_event i, since
    WHERE i.run_id = %(run)s AND i.seq > since.seq AND i.fact = 'intent'
    AND NOT EXISTS (SELECT 1 FROM ledger_event o WHERE o.run_id = i.run_id AND o.slot = i.slot AND o.attempt = i.attempt
                    AND (o.fact IN ('result', 'accepted', 'unknown') OR o.kind = 'ToolReconciled'))
    AND (SELECT o.kind FROM ledger_event o WHERE o.run_id = i.run_id AND o.slot = i.slot AND o.attempt = i.attempt
         AND o.kind IN ('ToolRedispatched', 'ToolNotDispatched')
         ORDER BY o.seq DESC LIMIT 1) IS DISTINCT FROM 'ToolNotDispatched'
    ORDER BY i.seq"""
_ANSWERED = """
    SELECT count(*),
           (SELECT kind FROM ledger_event WHERE run_id = %(run)s AND seq > %(claimed)s AND kind = ANY(%(marks)s)
            ORDER BY seq DESC LIMIT 1),
           EXISTS (SELECT 1 FROM ledger_event WHERE run_id = %(run)s AND seq > %(claimed)s AND kind = ANY(%(further)s))
    FROM ledger_event
    WHERE run_id = %(run)s AND fact = 'result'
      AND seq > (SELECT coalesce(max(seq), 0) FROM runs_checkpoint WHERE run_id = %(run)s)"""
# A run's progress is the newest of these events since its claim. Other events don't count.
_BY_FACT = {"intent": Reached.INTENT, "result": Reached.RESULT}
_MARKS: dict[str, Reached] = {
    **{kind: _BY_FACT[what.FACT] for kind, what in e.KINDS.items() if what.FACT in _BY_FACT},
    "ToolRedispatched": Reached.INTENT,
    "ToolReconciled": Reached.RESULT,
    "VisitEntered": Reached.VISIT,
    "WaitOpened": Reached.WAIT,
    "ApprovalRequested": Reached.WAIT,
    "ToolAccepted": Reached.WAIT,
}
# Events that prove progress since the claim, because each is recorded only once. All other events may be repeated
# without progress: those that accompany a resent call or request (route, price, policies), people's requests, and
# outside events.
FURTHER = sorted(
    {*_MARKS, "ChildStarted", "BranchesOpened", "UndoBegun", "EffectUndone", "EffectLeft"}
    - {"ToolRedispatched", "ToolReconciled"}
)
# Events that aren't written by the run's worker as a step, so they don't count as its next step.
_EXTRA_FIELDS = [
    "RunClaimed",
    "PauseRequested",
    "CancelRequested",
    "RunResumed",
    "SignalReceived",
    "MessageReceived",
    "BudgetSet",
    "ModelsChosen",
    "ForkMade",
    "ContentErased",
    "CallbackArrivedLate",
    "ToolAnsweredLate",
]


class UnknownOutcome(Shape):
    """A call or model request whose intent is recorded, but not its outcome."""

    slot: Slot
    attempt: Attempt
    tool: str = Field(description="Tool or model that was called.")
    replay_class: CallClass = Field(description="Replay class of the call.")
    intent_at: datetime = Field(description="Time when the intent was recorded.")


@dataclass(frozen=True, slots=True)
class ProgressAtLoss:
    """A run's progress when its worker was lost."""

    reached: Reached
    in_doubt: list[UnknownOutcome]
    replayed: int
    has_progressed: bool

    @property
    def call(self) -> str | None:
        return self.in_doubt[-1].slot if self.in_doubt else None

    @property
    def stored_calls(self) -> list[dict[str, Any]]:
        return [{**call.shown(), "intent_at": call.intent_at.isoformat()} for call in self.in_doubt]


def progress_at_loss(run_id: UUID, *, claimed_seq: int) -> ProgressAtLoss:
    """Return the progress of a run claimed at `claimed_seq`, in two queries over the current visit."""
    fields: dict[str, Any] = {"run": run_id, "claimed": claimed_seq, "marks": list(_MARKS), "further": FURTHER}
    with connection.cursor() as cursor:
        cursor.execute(_IN_DOUBT, fields)
        rows = cursor.fetchall()
        cursor.execute(_ANSWERED, fields)
        replayed, mark, has_progressed = cursor.fetchone()
    in_doubt = [_call(slot, attempt, kind, clear, at) for slot, attempt, kind, clear, at, _ in rows]
    is_sending = any(seq > claimed_seq for *_, seq in rows)
    reached = Reached.INTENT if is_sending else _MARKS.get(mark, Reached.CLAIMED)
    return ProgressAtLoss(reached, in_doubt, replayed, has_progressed)


def _call(slot: str, attempt: int, kind: str, clear: bytes, at: datetime) -> UnknownOutcome:
    fields = json.loads(bytes(clear))
    name = fields["tool"] if kind == "ToolInvoked" else fields["model"]
    replay_class: CallClass = fields["replay_class"] if kind == "ToolInvoked" else "model"
    return UnknownOutcome.model_construct(
        slot=slot, attempt=attempt, tool=name, replay_class=replay_class, intent_at=at
    )


def note_cut(run_id: UUID, seq: int, epoch: int, by: tuple[UUID, str, int], stood: ProgressAtLoss) -> None:
    """Record an incident for a run that was cut off at its worker's drain deadline.
    Such an incident isn't counted as a death."""
    now = database_now()
    worker, host, pid = by
    Incident.objects.create(
        run_id=run_id,
        seq=seq,
        at=now,
        cause=Incident.Cause.DRAIN_CUT,
        proof="the drain's deadline passed while a call was in progress",
        worker=worker,
        host=host,
        pid=pid,
        epoch=epoch,
        reached=stood.reached,
        in_doubt=stood.stored_calls,
        replayed=stood.replayed,
        is_counted=False,
        deaths=0,
        is_stopped=False,
        last_sign_at=now,
        detected_at=now,
    )


# --- reading ----------------------------------------------------------------------------------------------------------

_AFTER = """
    SELECT i.id, c.epoch, c.at, n.at FROM runs_incident i
    LEFT JOIN LATERAL (SELECT seq, epoch, at FROM ledger_event e
                       WHERE e.run_id = i.run_id AND e.seq > i.seq AND e.kind = 'RunClaimed'
                       ORDER BY e.seq LIMIT 1) c ON true
    LEFT JOIN LATERAL (SELECT kind, at FROM ledger_event e WHERE e.run_id = i.run_id AND e.seq > c.seq
                       AND e.kind <> ALL(%s) ORDER BY e.seq LIMIT 1) n
        ON n.kind <> 'WorkerLost'
    WHERE i.id = ANY(%s)"""
# The first outcome of each call in doubt.
_FATES = """
    SELECT DISTINCT ON (i.id, d.slot, d.attempt) i.id, d.slot, d.attempt, e.kind, e.clear
    FROM runs_incident i
    CROSS JOIN LATERAL jsonb_to_recordset(
        CASE jsonb_typeof(i.in_doubt) WHEN 'array' THEN i.in_doubt ELSE '[]' END) AS d(slot text, attempt int)
    JOIN ledger_event e ON e.run_id = i.run_id AND e.slot = d.slot AND e.attempt = d.attempt AND e.seq > i.seq
    WHERE i.id = ANY(%s) AND e.kind = ANY(%s) ORDER BY i.id, d.slot, d.attempt, e.seq"""
_FATE: dict[str, Fate] = {
    "ToolRedispatched": "repeated",
    "ModelResponded": "repeated",
    "ModelFailed": "repeated",
    "ToolReturned": "repeated",
    "ToolFailed": "repeated",
    "ToolOutcomeUnknown": "refused",
    "CallbackReceived": "answered",
    "ToolAccepted": "repeated",
}
_REPEATED = {
    "model": "the request was sent and paid for again",
    "pure": "it only reads",
    "idempotent_with_key": "sent again with the same key and the same bytes",
    "unsafe_on_replay": "its hook reported that it had not happened",
}
_WHY = {
    "refused": "the outcome is unknown and the call must not be repeated automatically: a person was asked",
    "answered": "the answer arrived later",
    "found": "the upstream system reported that it had happened",
    "late": "the worker that had sent it reported its answer",
    "told": "a person settled it",
    "open": "not handled yet",
}


class DoubtedCall(UnknownOutcome):
    """A call or model request that was in progress when the worker was lost, and how it was resolved."""

    fate: Fate = Field(description="Result of the call after the recovery.")
    why: str = Field(description="Explanation of the result.")


class IncidentRow(Shape):
    """A recovery: the run was taken over from a worker that had not released it."""

    id: int = Field(description="Id of the recovery.")
    run_id: RunId
    seq: int = Field(description="Journal event of the recovery.")
    cause: Incident.Cause = Field(description="Cause of the recovery.")
    proof: str = Field(description="Proof that the worker is gone, or empty.")
    worker: UUID = Field(description="Id of the lost worker.")
    host: str = Field(description="Host of the lost worker.")
    pid: int = Field(description="Process id of the lost worker.")
    reached: Incident.Reached = Field(description="Progress of the run at that time.")
    epoch_before: int = Field(description="Epoch of the lost worker.")
    epoch_after: int | None = Field(description="Epoch of the worker that took over; null if there is none yet.")
    last_sign_at: datetime | None = Field(description="Time of the worker's last sign of life; null if unknown.")
    detected_at: datetime = Field(description="Time when the loss was detected.")
    freed_at: datetime = Field(description="Time when the run was freed for other workers.")
    claimed_at: datetime | None = Field(description="Time when another worker claimed it; null if none has.")
    stepped_at: datetime | None = Field(description="Time when the next step started.")
    silent_seconds: float | None = Field(description="Time from the last sign of life until the run was freed.")
    down_seconds: float | None = Field(description="Time from the freeing of the run until the next step started.")
    skipped: int = Field(description="Recorded outcomes of the visit that were replayed instead of executed again.")
    calls: list[DoubtedCall] = Field(description="Calls in progress when the worker was lost.")
    is_counted: bool = Field(description="Whether the worker's death counts for the limit that stops the run.")
    deaths: int = Field(description="Workers lost in a row while executing this run.")
    is_stopped: bool = Field(description="Whether the run was stopped for an operator.")


def described(rows: Sequence[Incident]) -> list[IncidentRow]:
    """Return incidents with their consequences, using two more queries."""
    ids = [row.id for row in rows]
    with connection.cursor() as cursor:
        cursor.execute(_AFTER, [_EXTRA_FIELDS, ids])
        after = {id: rest for id, *rest in cursor.fetchall()}
        cursor.execute(_FATES, [ids, [*_FATE, "ToolReconciled"]])
        fates = {(id, slot, attempt): _fate(kind, clear) for id, slot, attempt, kind, clear in cursor.fetchall()}
    return [_described(row, after[row.id], fates) for row in rows]


def _fate(kind: str, clear: bytes) -> Fate:
    if kind != "ToolReconciled":
        return _FATE[kind]
    by = json.loads(bytes(clear))["by"]
    return "found" if by == "hook" else "late" if by.startswith("worker:") else "told"


def _described(row: Incident, after: Sequence[Any], fates: dict[tuple[int, str, int], Fate]) -> IncidentRow:
    epoch, claimed_at, stepped_at = after
    calls = []
    for call in row.in_doubt if isinstance(row.in_doubt, list) else []:
        fate = fates.get((row.id, call["slot"], call["attempt"]), "open")
        why = _REPEATED[call["replay_class"]] if fate == "repeated" else _WHY[fate]
        calls.append(DoubtedCall.model_construct(**call, fate=fate, why=why))
    return IncidentRow.of(
        row,
        epoch_before=row.epoch,
        epoch_after=epoch,
        freed_at=row.at,
        claimed_at=claimed_at,
        stepped_at=stepped_at,
        silent_seconds=_between(row.last_sign_at, row.at),
        down_seconds=_between(row.at, stepped_at),
        skipped=row.replayed,
        calls=calls,
    )


def _between(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else round((end - start).total_seconds(), 3)
