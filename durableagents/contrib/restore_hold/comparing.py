"""Compares a host's head with the database. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from durableagents.contrib.restore_hold.heads import Head, HeadDamaged

Reason = Literal["no-head", "damaged-head", "other-system", "other-database", "behind", "unconfirmed"]
DAMAGED: Reason = "damaged-head"


@dataclass(frozen=True, slots=True)
class Database:
    """The position of the database, and what the database knows about a host's head.

    `accepted` is set if the head's line of marks has ended in this database: heads up to this mark may continue.
    `is_accepted` says that the halt for which the head waits was lifted, and `is_vouched` that a live worker found the
    head of its own host in this database."""

    system: str
    timeline: int
    lsn: int
    line: UUID | None
    number: int
    host: UUID | None
    host_name: str
    mark_timeline: int
    is_empty: bool
    is_vouched: bool
    accepted: int | None
    is_accepted: bool

    def as_json(self) -> dict[str, Any]:
        """Return the fields that a finding stores."""
        fields = {"system": self.system, "timeline": self.timeline, "lsn": lsn_text(self.lsn), "number": self.number}
        return {**fields, "line": str(self.line or ""), "host": self.host_name}


@dataclass(frozen=True, slots=True)
class Found:
    """The database contains everything up to the head."""


@dataclass(frozen=True, slots=True)
class Adopt:
    """The host begins to follow this database.

    With `is_new_line`, the line of marks that it followed before has ended."""

    why: str
    is_new_line: bool = False
    is_promotion: bool = False


@dataclass(frozen=True, slots=True)
class Hold:
    """Nothing may be sent. `text` explains it in one sentence."""

    reason: Reason
    text: str


Verdict = Found | Adopt | Hold


def compare(head: Head | HeadDamaged | None, database: Database, *, sends: bool = True) -> Verdict:
    """Return the verdict for a host's head.

    `sends` tells whether the process sends calls; it is False for web processes. These send nothing, so a host without
    a head is no reason to hold."""
    verdict = _verdict(head, database, sends)
    if not isinstance(verdict, Hold):
        return verdict
    if database.is_empty:
        return Adopt("the database is empty", is_new_line=True)
    if isinstance(head, Head) and database.is_accepted:
        return Adopt("an operator accepted the database", is_new_line=True)
    return verdict


def _verdict(head: Head | HeadDamaged | None, database: Database, sends: bool) -> Verdict:
    if not isinstance(head, Head) or head.line is None:
        return _without_head(head, database, sends)
    if problem := _contradiction(head, database):
        return problem
    knows_last = database.line == head.line and database.number <= head.number
    if not sends or knows_last or database.host == head.host or database.is_vouched:
        if database.line == head.line and database.mark_timeline != database.timeline:
            return Adopt("the server was promoted", is_new_line=True, is_promotion=True)
        return Found()
    return Hold(
        "unconfirmed",
        f"Host {database.host_name} recorded more than this host knows: a worker must start on this host first.",
    )


def _without_head(head: Head | HeadDamaged | None, database: Database, sends: bool) -> Verdict:
    if isinstance(head, HeadDamaged):
        return Adopt("a living worker vouches") if database.is_vouched else Hold(DAMAGED, f"{head}.")
    if database.number == 0:
        return Adopt("no worker ever acknowledged anything in this database")
    if database.is_vouched:
        return Adopt("a living worker vouches")
    if not sends:
        return Found()
    return Hold(
        "no-head", "The database has runs but this host has no head file, so the database may be a restored backup."
    )


def _contradiction(head: Head, database: Database) -> Hold | None:
    if head.system != database.system:
        return Hold(
            "other-system",
            f"This is a different database cluster: its system identifier is {database.system}, not {head.system}.",
        )
    known = database.number if database.line == head.line else database.accepted
    if known is None:
        return Hold("other-database", "This database lacks the last commits of this host's workers.")
    if known < head.number:
        return Hold(
            "behind",
            f"The database lacks commits of workers: it has mark {known}, but this host saw mark {head.number}.",
        )
    if database.timeline < head.timeline:
        return Hold("behind", f"The database is on timeline {database.timeline}, but was on {head.timeline}.")
    if database.lsn < head.lsn:
        return Hold("behind", f"The database is at {lsn_text(database.lsn)}, but was at {lsn_text(head.lsn)}.")
    return None


def lsn_text(lsn: int) -> str:
    """Return a position in the write-ahead log in the form that PostgreSQL shows."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
