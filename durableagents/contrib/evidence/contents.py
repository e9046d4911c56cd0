"""Yield the files of one run in a bundle, row by row.

These are events with stored and readable content, and the run's tables.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from approvals.models import Decision
from durableagents.contrib.evidence.leaving_out import LeavingOut
from durableagents.contrib.evidence.verify import MALFORMED, EventLine, Facts
from ledger.codec import (
    ENCRYPTED,
    MAX_DEEP,
    REFERENCE,
    STORED,
    ContentUnavailable,
    disclose_key,
    is_too_deep,
    kept_content,
    unpack,
)
from ledger.contents import Stored
from ledger.models import ActRecord, Event, Head, LedgerEntry, OverrideRecord
from runs import features
from runs.models import Checkpoint, Run
from runs.queries.code_here import agent_here
from runs.queries.manifest import manifest_of

# How many rows are in memory at a time. A payload may have 64 MB.
CHUNK = 50


class RunContents:
    """One run's content at one point in time. `facts` is filled while reading `events`."""

    def __init__(self, run: Run, head: Head, leaving_out: LeavingOut) -> None:
        self.run, self.head, self.leaving_out = run, head, leaving_out
        self.facts = Facts()
        self.external_ids: dict[tuple[str | None, int], Any] = {}
        self._open_ids: set[str] = set()  # external ids that are metadata of events, as the chain covers
        self.key: bytes | None = None
        self.key_problem = ""
        try:
            self.key = disclose_key(run.id)
        except ContentUnavailable:
            raise
        except ValueError as error:
            self.key_problem = str(error)

    @property
    def disclosed_key(self) -> bytes | None:
        """Return the key to include in the bundle; None if anything is left out on request.

        A person with the key and a copy of the database could read the values that are left out.
        """
        return None if self.leaving_out.choice.is_any else self.key

    def about(self) -> dict[str, Any]:
        """Return the run's own columns, and its agent's manifest if this process has it."""
        run, agent = self.run, agent_here(self.run.graph_id)
        return {
            "id": str(run.id),
            "agent": run.agent,
            "version": run.version,
            "state": str(run.state),
            "created_by": run.created_by,
            "created_at": run.created_at.isoformat(),
            "ended_at": None if run.ended_at is None else run.ended_at.isoformat(),
            "parent": None if run.parent is None else str(run.parent),
            "continues": None if run.came_from is None else str(run.came_from),
            "forked_from": None if run.forked_from is None else str(run.forked_from),
            "manifest": None if agent is None else manifest_of(agent).model_dump(),
        }

    def learn(self) -> None:
        """Collect the private values in all payloads, if only some fields are left out. Raises InvalidInput."""
        if self.leaving_out.has_to_learn and not self.key_problem:
            for row in self._stored():
                try:
                    self.leaving_out.learn(unpack(row.sealed))
                except ContentUnavailable:
                    raise
                except (ValueError, RecursionError):
                    continue  # an unreadable payload is marked as unreadable in the export
            self.leaving_out.prepare()

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the events up to the run's head."""
        return map(self._event, self._stored())

    def _stored(self) -> Iterator[Event]:
        rows = Event.objects.filter(run_id=self.run.id, seq__lte=self.head.seq).order_by("seq")
        return rows.iterator(chunk_size=CHUNK)

    def _event(self, row: Event) -> dict[str, Any]:
        stored = None if row.sealed is None else bytes(row.sealed)
        line: dict[str, Any] = {
            "seq": row.seq,
            "epoch": row.epoch,
            "at": row.at.isoformat(timespec="microseconds"),
            "clear": bytes(row.clear).decode("ascii", "backslashreplace"),
            "stored_sha256": None if stored is None else hashlib.sha256(stored).hexdigest(),
            "prev": bytes(row.prev_hash).hex(),
            "hash": bytes(row.hash).hex(),
        }
        line |= {"payload": None} if stored is None else self._content(row.kind, stored)
        self._learn(line)
        return line

    def _content(self, kind: str, stored: bytes) -> dict[str, Any]:
        """Return an event's content, or the reason why it can't be read.

        The stored bytes are included if nothing is left out on request.
        """
        try:
            if self.key_problem and ENCRYPTED in (stored[:1], _codec_kept(stored)):
                raise ValueError(self.key_problem)
            payload = unpack(stored)
            kept = kept_content(stored)
            if is_too_deep(payload):
                raise ValueError(f"nested deeper than {MAX_DEEP} levels")
        except ContentUnavailable:
            raise
        except (ValueError, RecursionError) as error:
            return {"stored": base64.b64encode(stored).decode(), "unreadable": str(error)}
        visible_content = self.leaving_out.payload(payload, kind)
        if pointers := self.leaving_out.pointers:
            return {"payload": visible_content, "left_out": pointers}
        content = {} if kept is None else {"kept": base64.b64encode(kept).decode()}
        return {"stored": base64.b64encode(stored).decode(), **content, "payload": payload}

    def _learn(self, line: dict[str, Any]) -> None:
        try:
            event = EventLine(line["seq"], line["at"], json.loads(line["clear"]), line.get("payload"), "stored" in line)
            self.facts.take(event)
            if event["external_id"]:
                self._open_ids.add(event["external_id"])
            elif event["kind"] == "CallbackReceived" and (named := self._external_id(event)) is not None:
                self.external_ids[event["slot"], event.clear.get("attempt", 0)] = named
        except MALFORMED:
            pass  # A damaged event is exported unchanged, and verification reports it.

    def _external_id(self, answer: EventLine) -> Any:
        """Return the external id in a callback's body. Older releases made no ledger entry for it."""
        agent = agent_here(self.run.graph_id)
        tool = None if agent is None else agent.tool(answer["tool"])
        if tool is None or not tool.external_id or not isinstance(answer.payload, dict):
            return None
        value = answer.payload.get(tool.external_id)
        return value if isinstance(value, dict) else tool.external_id_of(answer.payload)

    # --- tables ---

    def decisions(self) -> Iterator[dict[str, Any]]:
        seen = Q(seq__lte=self.head.seq) | Q(seq__isnull=True)  # events of old decisions lack the state
        rows = Decision.objects.filter(seen, approval__run_id=self.run.id).order_by("id")
        names = "id approval_id verdict plan_hash justification by person role auth seq chain standing proof closes at"
        for row in _rows(rows, names):
            row["approval"] = row.pop("approval_id")
            yield self.leaving_out.row(row)

    def overrides(self) -> Iterator[dict[str, Any]]:
        """Yield what people did to the run: overrides first, then other acts."""
        names = "id action by person role auth justification seq chain before after at"
        tables: Iterable[tuple[str, QuerySet[Any]]] = (
            ("overrides", OverrideRecord.objects.all()),
            ("acts", ActRecord.objects.all()),
        )
        for table, records in tables:
            rows = records.filter(run_id=self.run.id, seq__lte=self.head.seq).order_by("id")
            for row in _rows(rows, names):
                yield {"table": table, **self.leaving_out.row(row, "before", "after")}

    def ledger(self) -> Iterator[dict[str, Any]]:
        rows = LedgerEntry.objects.filter(run_id=self.run.id, seq__lte=self.head.seq).order_by("id")
        names = "id seq slot attempt fact tool replay_class key input_hash external_id digest actor at"
        for row in _rows(rows, names):
            call, named = (row["slot"], row["attempt"]), row["external_id"]
            if named is None and row["fact"] == "committed":
                row["external_id"] = self.external_ids.get(call)
            elif named is not None:
                row["external_id"] = named if named in self._open_ids else self.leaving_out.text(named)
                self.external_ids[call] = row["external_id"]
            yield self.leaving_out.row(row, "key")

    def checkpoints(self) -> Iterator[dict[str, Any]]:
        rows = Checkpoint.objects.filter(run_id=self.run.id, seq__lte=self.head.seq).order_by("seq")
        yield from _rows(rows, "seq generation node visit schema_version fingerprint checksum at")
        if (expired := features.expired_checkpoints(self.run.id)) is not None:
            yield {
                "expired_up_to": expired.last_seq,
                "number": expired.number,
                "policy": expired.policy,
                "at": _plain(expired.at),
            }

    def decided(self) -> list[int]:
        """Return the sequence numbers of decisions. The bundle needs the first seal after each."""
        return [line.seq for line in self.facts.decisions.values()]


def _codec_kept(stored: bytes) -> bytes:
    """Return the codec of a large payload that is in a store; empty if the payload is in the row."""
    return REFERENCE.unpack(stored)[3] if stored[:1] == STORED and len(stored) == REFERENCE.size else b""


def _rows(rows: QuerySet[Any], names: str) -> Iterator[dict[str, Any]]:
    columns = names.split()
    for values in rows.values_list(*columns).iterator(chunk_size=1000):
        yield {name: _plain(value) for name, value in zip(columns, values, strict=True)}


def _plain(value: Any) -> Any:
    match value:
        case Stored():  # the row contains the same content in encrypted form
            return _plain(value.content)
        case bytes() | memoryview():
            return bytes(value).hex()
        case datetime():
            return value.isoformat(timespec="microseconds")
        case UUID():
            return str(value)
        case _:
            return value


def as_lines(rows: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    """Yield each row as a line of JSON in ASCII."""
    for row in rows:
        yield json.dumps(row, separators=(",", ":")).encode() + b"\n"


def as_json(value: Any) -> list[bytes]:
    return [json.dumps(value, indent=1).encode() + b"\n"]
