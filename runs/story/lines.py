"""A journal event for the console: columns, unencrypted fields, and the payload, which is opened on demand."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime
from functools import cache, cached_property
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from pydantic_core import from_json

from ledger.api.present import MASK, masked
from ledger.codec import MAX_DEEP, is_too_deep, pack, unpack, unpack_head
from ledger.events import KINDS, Event, encode_clear
from ledger.redacted import without_redacted
from ledger.web.seeing.payloads import ERASED, HIDDEN, Hidden, is_open

# Actions whose payload contains more than the reason.
_WITH_REASON = frozenset({"ContextInjected", "InputAnswered", "OutcomeProposed", "ToolReconciled"})


@dataclass(slots=True)
class Stored:
    """A stored event's columns, in order."""

    seq: int
    at: datetime
    kind: str
    slot: str | None
    attempt: int
    epoch: int
    clear: Any
    sealed: Any
    hash: Any
    prev_hash: Any
    code: Any


class Bare:
    """An event without its payload, for folds over tens of thousands of events."""

    __slots__ = ("at", "attempt", "clear", "damage", "kind", "seq", "slot")

    def __init__(
        self, seq: int, at: datetime, kind: str, slot: str | None, attempt: int, clear: dict[str, Any], damage: str
    ) -> None:
        self.seq, self.at, self.kind, self.slot, self.attempt, self.clear, self.damage = (
            seq,
            at,
            kind,
            slot,
            attempt,
            clear,
            damage,
        )

    @property
    def is_known(self) -> bool:
        return self.kind in KINDS


@dataclass
class EventLine:
    """One event. `clear` contains its unencrypted fields, for example `clear["tool"]`.
    `damage` tells why these can't be trusted, and `gap` which events are missing before it."""

    seq: int
    at: datetime
    kind: str
    slot: str | None
    attempt: int
    epoch: int
    clear: dict[str, Any]
    sealed: bytes | None = field(repr=False, default=None)
    hash: bytes = field(repr=False, default=b"")
    prev_hash: bytes = field(repr=False, default=b"")
    damage: str = ""
    gap: str = ""
    is_hidden: bool = False
    placeholder: Hidden = HIDDEN
    reason: str = ""
    is_head: bool = False
    """Only the beginning of a large payload is decoded, which is enough for a page."""

    @cached_property
    def payload(self) -> Any:
        """Return the payload, a placeholder if it is hidden, or an explanation if it is unreadable."""
        if self.is_hidden:
            return self.placeholder
        try:
            payload = unpack_head(self.sealed) if self.is_head else unpack(self.sealed)
        except (ValueError, RecursionError) as error:
            return {"unreadable": str(error)}
        return (
            {"unreadable": f"nested deeper than {MAX_DEEP} levels"}
            if is_too_deep(payload)
            else without_redacted(self.kind, self.clear, _in_whole_characters(payload))
        )

    @cached_property
    def shown(self) -> Any:
        """Return the payload without callback tokens, which would authorize an answer."""
        if self.kind == "ApprovalRequested":
            return self.payload  # A decision's payload is shown unchanged, because plans contain no tokens.
        if self.kind == "ToolInvoked" and isinstance(self.payload, dict) and self.payload.get("callback_token"):
            return masked({**self.payload, "callback_token": MASK})
        return masked(self.payload)

    def hide(self, placeholder: Hidden = HIDDEN) -> None:
        """Remove the payload unless it is public, but keep a person's reason.
        For an erased run, the reason is removed too."""
        if self.sealed is not None and (placeholder is ERASED or not is_open(self.kind)):
            self.placeholder = placeholder
            self.reason = self.get("justification", "") if self.kind in _WITH_REASON else ""
            self.sealed, self.is_hidden = None, True
            self.__dict__.pop("payload", None)

    @property
    def facts(self) -> dict[str, Any]:
        return {key: value for key, value in self.clear.items() if key not in ("kind", "slot", "attempt")}

    @property
    def is_known(self) -> bool:
        return self.kind in KINDS

    @property
    def face(self) -> int:
        """Return a key that changes with the event's HTML."""
        whole = (
            self.seq,
            self.at,
            self.kind,
            self.slot,
            self.attempt,
            self.epoch,
            repr(self.clear),
            self.sealed,
            self.hash,
            self.prev_hash,
            self.damage,
            self.gap,
            self.is_hidden,
        )
        return hash(whole)

    @property
    def hash_hex(self) -> str:
        return self.hash.hex()

    @property
    def prev_hex(self) -> str:
        return self.prev_hash.hex()

    def get(self, key: str, default: Any = None) -> Any:
        """Return a field of the payload; the default if the payload isn't an object with that field."""
        if self.is_hidden:
            return self.reason or default if key == "justification" else default
        return self.payload.get(key, default) if isinstance(self.payload, dict) else default


# Projections read these fields, and never the payload.
Fact = Bare | EventLine
# Events that may come between a claim and the worker's first step.
_NO_STEP = frozenset({"RunClaimed", "PauseRequested", "CancelRequested", "WorkerLost"})


def is_step(line: Fact) -> bool:
    """Return whether the event shows that the run is driven, according to the rules of `runs.fleet.incidents`."""
    return line.kind not in _NO_STEP


def read(rows: Iterable[Stored]) -> Iterator[EventLine]:
    """Yield stored events as lines."""
    for row in rows:
        clear, damage = clear_of(row.kind, bytes(row.clear))
        damage = damage or mislabelled(row.kind, row.slot, row.attempt, clear)
        yield EventLine(
            seq=row.seq,
            at=row.at,
            kind=row.kind,
            slot=row.slot,
            attempt=row.attempt,
            epoch=row.epoch,
            clear=clear,
            sealed=None if row.sealed is None else bytes(row.sealed),
            hash=bytes(row.hash),
            prev_hash=bytes(row.prev_hash),
            damage=damage,
        )


def clear_of(kind: str, stored: bytes) -> tuple[dict[str, Any], str]:
    """Return an event's unencrypted fields, and a description of the damage if they don't fit its kind."""
    try:
        clear = from_json(stored)
    except ValueError:
        # The fast parser is stricter (half surrogate pairs, depth), so text that it refuses is parsed by the usual one.
        try:
            clear = _in_whole_characters(json.loads(stored))
        except (ValueError, RecursionError) as error:
            return {}, f"its content can't be read: {error}"
    if not isinstance(clear, dict):
        return {}, "its content is not an object"
    known = _fields(kind)
    try:
        for name, surely, _, _ in known:
            if type(clear[name]) not in surely:
                break
        else:
            return clear, ""
    except KeyError:
        pass  # a missing field, or an optional one
    wrong = [
        name for name, _, hint, is_needed in known if (not _fits(clear[name], hint) if name in clear else is_needed)
    ]
    return clear, f"missing or invalid: {', '.join(wrong)}" if wrong else ""


def mislabelled(kind: str, slot: str | None, attempt: int, clear: dict[str, Any]) -> str:
    """Return a description of the damage if the columns, which no hash covers, contradict the content."""
    if not clear or (clear.get("kind", kind), clear.get("slot"), clear.get("attempt", 0)) == (kind, slot, attempt):
        return ""
    return f"its columns say {kind} at {slot or 'no slot'}, attempt {attempt}, which differs from its content"


@cache
def _fields(kind: str) -> tuple[tuple[str, frozenset[type], Any, bool], ...]:
    """Return a kind's unencrypted fields: name, types that certainly fit, full type hint, whether required."""
    cls = KINDS.get(kind)
    if cls is None:
        return ()
    hints = get_type_hints(cls)
    return tuple(
        (f.name, _surely(hints[f.name]), hints[f.name], f.default is MISSING and f.default_factory is MISSING)
        for f in fields(cls)
        if f.name != "payload"
    )


def _surely(hint: Any) -> frozenset[type]:
    several = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return frozenset(
        kind for one in several if (kind := get_origin(one) or one) in (str, int, bool, float, list, dict, NoneType)
    )


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(value, one) for one in get_args(hint))
    kind = get_origin(hint) or hint
    if kind is Any:
        return True
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))


def _in_whole_characters(value: Any) -> Any:
    """Escape half surrogate pairs, which occur only in damaged rows and can't be sent."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return _escaped(value)
    return value


def _escaped(value: Any) -> Any:
    match value:
        case str():
            return value.encode(errors="backslashreplace").decode()
        case dict():
            return {_escaped(key): _escaped(inner) for key, inner in value.items()}
        case list():
            return [_escaped(inner) for inner in value]
        case _:
            return value


def line_of(event: Event, *, seq: int, at: datetime, epoch: int = 0) -> EventLine:
    """Return a line for an event that isn't stored, for previews and tests."""
    return EventLine(
        seq=seq,
        at=at,
        kind=event.KIND,
        slot=event.slot,
        attempt=event.attempt,
        epoch=epoch,
        clear=json.loads(encode_clear(event)),
        sealed=pack(event.payload, None),
    )
