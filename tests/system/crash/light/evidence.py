"""A run's record read by SQL in the API's terms, for the checker where no web process runs."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import psycopg

from ledger.codec import unpack
from tests.system.crash.checker import Facts, Link

_RUN = """
SELECT r.state, r.error_code, h.epoch, h.seq, ARRAY(SELECT w.kind FROM runs_wait w WHERE w.run_id = r.id AND
w.resolved_at IS NULL), jsonb_build_object('tokens_in', h.tokens_in, 'tokens_out', h.tokens_out,
'usd_micro', h.usd_micro, 'tool_calls', h.tool_calls, 'model_calls', h.model_calls),
coalesce((SELECT jsonb_object_agg(a.name, a.texts) FROM (
    SELECT name, jsonb_agg(coalesce(word, trim_scale(number)::text) ORDER BY n) AS texts FROM runs_attribute
    WHERE run_id = r.id GROUP BY name) AS a), '{}')
FROM runs_run r JOIN ledger_head h ON h.run_id = r.id WHERE r.id = %s"""
_EVENTS = """
SELECT seq, kind, epoch, slot, attempt, fact, at, clear, sealed, prev_hash, hash FROM ledger_event WHERE run_id = %s
ORDER BY seq"""
_LEDGER = (
    "SELECT slot, attempt, fact, tool, replay_class, key, at, digest FROM "
    "ledger_ledgerentry WHERE run_id = %s ORDER BY id"
)
# For questions and answers of people, the payloads too.
_READ_WHOLE = ("WaitOpened", "InputAnswered", "ApprovalDecided", "ToolReconciled")
_APPROVALS = "SELECT id::text, state FROM approvals_approval WHERE run_id = %s"


def facts(link: psycopg.Connection[Any], run_id: str, effects: list[dict[str, Any]]) -> Facts:
    """Return everything to judge a run by, in one snapshot of the database."""
    with link.transaction():
        link.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        run = link.execute(_RUN, [run_id]).fetchone()
        if run is None:
            return Facts(run_id, {}, [], [], [], effects)
        rows = link.execute(_EVENTS, [run_id]).fetchall()
        ledger = link.execute(_LEDGER, [run_id]).fetchall()
        approvals = link.execute(_APPROVALS, [run_id]).fetchall()
    state, error, epoch, seq, waits, usage, attributes = run
    fields = {
        "state": state,
        "error": error,
        "epoch": epoch,
        "seq": seq,
        "waiting_for": [{"kind": kind} for kind in waits],
        "usage": usage,
        "attributes": attributes,
    }
    return Facts(
        run_id,
        fields,
        [_event(row) for row in rows],
        [_entry(row) for row in ledger],
        [{"id": id, "state": state} for id, state in approvals],
        effects,
        [_link(row) for row in rows],
    )


def children(link: psycopg.Connection[Any], run_id: str) -> list[str]:
    return [id for (id,) in link.execute("SELECT id::text FROM runs_run WHERE parent = %s", [run_id]).fetchall()]


def _event(row: Any) -> dict[str, Any]:
    seq, kind, epoch, slot, attempt, fact, at, clear, sealed, prev_hash, link = row
    fields = {"payload": unpack(sealed)} if kind in _READ_WHOLE else {}
    return fields | {
        "seq": seq,
        "kind": kind,
        "epoch": epoch,
        "slot": slot,
        "attempt": attempt,
        "fact": fact,
        "at": _iso(at),
        "data": json.loads(clear),
        "prev_hash": prev_hash.hex(),
        "hash": link.hex(),
    }


def _entry(row: Any) -> dict[str, Any]:
    names = ("slot", "attempt", "fact", "tool", "replay_class", "key", "at", "digest")
    return {**dict(zip(names, row, strict=True)), "at": _iso(row[6])}


def _link(row: Any) -> Link:
    seq, _, epoch, _, _, _, at, clear, sealed, prev_hash, link = row
    return Link(seq, epoch, at, clear, sealed, prev_hash, link)


def _iso(at: datetime) -> str:
    return at.isoformat()
