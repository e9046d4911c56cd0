"""What the journal, the ledger and the override records look like from outside. One shape for API and console."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from ledger import events
from ledger.models import Event, LedgerEntry, OverrideRecord
from ledger.registers import Listed
from ledger.verification import Verification

MASK = "…"
MOST_PROBLEMS = 200
# A callback token is a capability: whoever holds it can complete the call. It is stored, since a repeat must
# send the same bytes, and it is shown to nobody.
_OUR_CALLBACK = re.compile(r"(/api/v1/callbacks/)[^\s\"'?#/]+")
_COLUMNS = ("kind", "slot", "attempt")


def present_event(event: Event) -> dict[str, Any]:
    """One line of a journal. `data` is the clear metadata, `payload` the sealed content."""
    # One damaged line must not hide the rest of the journal from the person who looks into it.
    clear: dict[str, Any] = {}
    try:
        clear = _clear_of(event)
        content = {"payload": payload_of(event)}
    except (ValueError, RecursionError) as error:
        content = {"payload": None, "damage": str(error)}
    return {
        "seq": event.seq,
        "kind": event.kind,
        "at": event.at,
        "epoch": event.epoch,
        "slot": event.slot,
        "attempt": event.attempt,
        "fact": event.fact,
        "data": {name: value for name, value in clear.items() if name not in _COLUMNS},
        **content,
        "hash": bytes(event.hash).hex(),
        "prev_hash": bytes(event.prev_hash).hex(),
    }


def _clear_of(event: Event) -> dict[str, Any]:
    """The clear metadata. Raises ValueError on bytes that were tampered with."""
    clear = json.loads(bytes(event.clear))
    if not isinstance(clear, dict):
        raise ValueError("the event's clear bytes are no object")
    return clear


def payload_of(event: Event) -> Any:
    """The sealed content without callback tokens. Raises ValueError on bytes that were tampered with."""
    payload = events.unseal(event.sealed)
    if event.kind == events.ApprovalRequested.KIND:
        return payload  # what a decision binds is shown byte for byte; a plan holds no token
    if event.kind == events.ToolInvoked.KIND and isinstance(payload, dict) and payload.get("callback_token"):
        payload = {**payload, "callback_token": MASK}
    return masked(payload)


def masked(value: Any) -> Any:
    """The same value with the token taken out of every callback address of ours."""
    if isinstance(value, dict):
        return {name: masked(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [masked(inner) for inner in value]
    if isinstance(value, str) and "/callbacks/" in value:
        return _OUR_CALLBACK.sub(rf"\g<1>{MASK}", value)
    return value


def payload_at(places: Sequence[tuple[UUID, int]]) -> dict[UUID, Any]:
    """The payloads of single events of several runs, in one query; `places` holds (run, seq)."""
    if not places:
        return {}
    found = Event.objects.filter(pk__in=list(places)).only("run_id", "seq", "kind", "sealed")
    return {event.run_id: payload_of(event) for event in found}


def present_entry(entry: LedgerEntry) -> dict[str, Any]:
    """One fact about one side effect."""
    return {
        "id": entry.id,
        "seq": entry.seq,
        "slot": entry.slot,
        "attempt": entry.attempt,
        "fact": entry.fact,
        "tool": entry.tool,
        "replay_class": entry.replay_class,
        "key": entry.key,
        "external_id": entry.external_id,
        "digest": entry.digest,
        "actor": entry.actor,
        "at": entry.at,
    }


def present_override(record: OverrideRecord) -> dict[str, Any]:
    """One act of a person on a run."""
    return {
        "id": record.id,
        "run_id": record.run_id,
        "action": record.action,
        "by": record.by,
        "role": record.role,
        "auth": record.auth,
        "address": record.address,
        "justification": record.justification,
        "seq": record.seq,
        "chain": bytes(record.chain).hex(),
        "before": record.before,
        "after": record.after,
        "at": record.at,
    }


def present_verification(found: Verification) -> dict[str, Any]:
    """What checking one run's record came to."""
    return {
        "run_id": found.run_id,
        **_verdict(found.problems),
        "events": found.events,
        "first_at": found.first_at,
        "last_at": found.last_at,
        "chain": found.head_hash,
    }


def present_list(found: Listed) -> dict[str, Any]:
    """What checking one list of records that belong to no run came to."""
    return {
        "name": found.name,
        **_verdict(found.problems),
        "records": found.records,
        "chain": found.hash,
    }


def _verdict(problems: list[str]) -> dict[str, Any]:
    return {"holds": not problems, "problems": problems[:MOST_PROBLEMS], "problem_count": len(problems)}
