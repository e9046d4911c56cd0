"""Archived runs and their events, for pages and API."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q

from durableagents.contrib.retention import register
from durableagents.contrib.retention.models import Archive
from ledger import events as e
from ledger.codec import unpack
from ledger.erasure import Erased
from ledger.errors import DurableAgentsError
from ledger.verification.archives import ArchiveDamaged, ListedRun, Sought
from ledger.verification.runs import UNREADABLE
from ledger.web.seeing.viewers import viewer


class ArchiveUnreadable(DurableAgentsError):
    """The archive is missing or damaged."""

    status, code, title = 409, "archive-damaged", "The archive can't be read"


@dataclass(frozen=True, slots=True)
class EventLine:
    """An event as shown to people. `payload` is None if they may not read it, or once it was erased."""

    seq: int
    at: datetime
    kind: str
    slot: str | None
    attempt: int
    payload: Any


def archived(*, agent: str = "", tag: str = "", before: int | None = None, limit: int = 100) -> list[Archive]:
    """Return archived runs that the viewer may see, most recently archived first.

    Runs whose archive was deleted are included."""
    rows = Archive.objects.filter(restoration__isnull=True).select_related("deletion").order_by("-pk")
    if agent:
        rows = rows.filter(agent=agent)
    if tag:
        rows = rows.filter(tags__contains=[tag])
    if before is not None:
        rows = rows.filter(pk__lt=before)
    who = viewer()
    if not who.sees_all:
        own = Q(creator=who.person) if who.person is not None else Q(pk__in=[])
        for each in sorted(who.tags):
            own |= Q(tags__contains=[each])
        rows = rows.filter(own)
    return [row for row in rows[:limit] if row.is_authentic]


def search(sought: Sought, limit: int) -> list[ListedRun]:
    """Return archived runs that match a search, newest first. Runs whose archive was deleted are included."""
    given = {"business_key": sought.business_key, "agent": sought.agent}
    rows = Archive.objects.filter(restoration__isnull=True, **{name: text for name, text in given.items() if text})
    if sought.tag:
        rows = rows.filter(tags__contains=[sought.tag])
    if sought.before is not None:
        at, run_id = sought.before
        rows = rows.filter(Q(created_at__lt=at) | Q(created_at=at, run_id__lt=run_id))
    found = rows.select_related("deletion").order_by("-created_at", "-run_id")[:limit]
    return [
        ListedRun(
            run_id=row.run_id,
            agent=row.agent,
            version=row.version,
            state=row.state,
            business_key=row.business_key,
            created_at=row.created_at,
            archived_at=row.at,
            deleted_at=register.deleted_at(row),
        )
        for row in found
        if row.is_authentic
    ]


def lines(row: Archive, *, after: int = 0, limit: int = 100) -> list[EventLine]:
    """Return events read from the archive of a run. Raises ArchiveUnreadable, StorageUnavailable."""
    if register.deleted_at(row) is not None:
        return []
    is_read = viewer().reads(row.creator, row.tags or ())
    found: list[EventLine] = []
    try:
        for event in register.events_of(row):
            if event.seq > after and len(found) < limit:
                payload = _payload(event) if is_read else None
                found.append(EventLine(event.seq, event.at, event.kind, event.slot, event.attempt, payload))
    except ArchiveDamaged as error:
        raise ArchiveUnreadable(f"{str(error).capitalize()}.") from error
    return found


def _payload(event: Any) -> Any:
    try:
        return e.decode(bytes(event.clear), unpack(event.sealed)).payload
    except Erased:
        return None
    except UNREADABLE as error:
        return f"(unreadable: {type(error).__name__})"
