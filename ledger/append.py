"""The services' way into the journal: one call of the append function, in the transaction that also changes the state.

Workers write through the step functions in `runs/sql/`, which call the same append function; the row lock on the head orders all.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any, Protocol
from uuid import UUID

from django.db import connection

from ledger.actors import Actor
from ledger.chain import body_hash, genesis
from ledger.clock import database_now
from ledger.errors import JustificationRequired, NotFound
from ledger.events import Event, encode_clear, seal
from ledger.models import Head, OverrideRecord

MAX_JUSTIFICATION = 4000
_BLANK_LETTERS = frozenset("\u115f\u1160\u3164\uffa0\u2800\u034f\u17b4\u17b5")


class Fact(Protocol):
    """What a ledger row is made of; `runs.engine.journal.Entry` is one."""

    @property
    def slot(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def fact(self) -> str: ...
    @property
    def tool(self) -> str: ...
    @property
    def replay_class(self) -> str: ...
    @property
    def key(self) -> str | None: ...
    @property
    def input_hash(self) -> str | None: ...
    @property
    def external_id(self) -> str | None: ...
    @property
    def digest(self) -> str | None: ...


def event_columns(events: Sequence[Event]) -> tuple[list[Any], ...]:
    """Events as the parallel arrays that the SQL functions take: kinds, slots, attempts, facts, clears, seals, bodies."""
    clears = [encode_clear(x) for x in events]
    seals = [seal(x.payload) for x in events]
    bodies = [body_hash(c, s) for c, s in zip(clears, seals, strict=True)]
    return (
        [x.KIND for x in events],
        [x.slot for x in events],
        [x.attempt for x in events],
        [x.fact for x in events],
        clears,
        seals,
        bodies,
    )


def entry_columns(entries: Sequence[Fact]) -> tuple[list[Any] | None, ...]:
    """Ledger facts as parallel arrays; nine nulls where there are none."""
    if not entries:
        return (None,) * 9
    names = ("slot", "attempt", "fact", "tool", "replay_class", "key", "input_hash", "external_id", "digest")
    return tuple([getattr(x, name) for x in entries] for name in names)


APPEND = """
SELECT ledger_append_as(%s, %s, %s::text[], %s::text[], %s::int[], %s::text[], %s::bytea[], %s::bytea[], %s::bytea[],
    %s::text[], %s::int[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[])
"""


def create_head(run_id: UUID) -> None:
    """The head of a new run; its chain begins at the run's id."""
    Head.objects.create(run_id=run_id, chain=genesis(run_id))


def append(run_id: UUID, *events: Event, by: Actor, entries: Sequence[Fact] = ()) -> int:
    """Append events in the caller's transaction, under the head's lock. Returns the last event's seq."""
    with connection.cursor() as cursor:
        cursor.execute(APPEND, [run_id, by.ref, *event_columns(events), *entry_columns(entries)])
        return int(cursor.fetchone()[0])


def locked_head(run_id: UUID) -> Head:
    """The run's head, locked: the first lock of every service. Raises NotFound."""
    head = Head.objects.select_for_update().filter(run_id=run_id).first()
    if head is None:
        raise NotFound("run", run_id)
    return head


def justified(action: str, justification: object) -> str:
    """The justification, trimmed. Raises JustificationRequired for a missing, blank or over-long one."""
    text = justification.strip() if isinstance(justification, str) else ""
    if not any(map(_is_visible, text)) or len(text) > MAX_JUSTIFICATION or "\x00" in text:
        raise JustificationRequired(action)
    return text


def _is_visible(character: str) -> bool:
    """Whether a reader sees anything of it: not a blank, a control, a format character, or a letter that is drawn as nothing."""
    return unicodedata.category(character)[0] not in "ZC" and character not in _BLANK_LETTERS


def override(
    head: Head, action: str, *, by: Actor, justification: str, before: dict[str, Any], after: dict[str, Any]
) -> OverrideRecord:
    """Put on record that a person changed the run's course, on the exact state they did it on."""
    return OverrideRecord.objects.create(
        run_id=head.run_id, action=action, by=by.ref, role=by.role, auth=by.auth, address=by.address, justification=justification, seq=head.seq,
        chain=bytes(head.chain), before=before, after=after, at=database_now(),
    )  # fmt: skip
