"""Legal holds, which prevent archiving, deletion, erasure and the expiry of checkpoints.

They are placed and lifted with a recorded reason."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import QuerySet
from pydantic import AwareDatetime, Field

from durableagents.contrib.retention.models import Archive, Hold, HoldEnd
from durableagents.contrib.retention.policies import FAMILY, Name, check_text, ended, may, store, wrong
from ledger.actors import Actor
from ledger.append import acted
from ledger.change_control import SUPERUSER, two_person
from ledger.clock import database_now
from ledger.errors import InvalidInput, NotFound
from ledger.web.bodies import Justified
from runs.models import Run, RunTag

MAX_HOLDS = 500
MAX_COUNTED = 10_000
MAX_COUNTED_IN_LISTS = 1000  # lower in lists, which count the runs of each hold
# Placing a hold takes this lock in exclusive mode, and removing runs takes it in shared mode, so that a hold is
# effective from its commit on.
LOCK = "hashtextextended('retention holds', 89)"
_FILTERS = ("agent", "tag", "business_key", "created_from", "created_to")


class LegalHoldBody(Justified):
    """One run with all runs related to it, or all runs that match every given field."""

    run_id: UUID | None = Field(
        default=None, description="The run; null if the other fields select the runs.", strict=False
    )
    agent: Name = Field(default="", description="Name of the agent, without version; empty: any.")
    tag: Name = Field(default="", description="Tag of the runs; empty: any.")
    business_key: Name = Field(default="", description="Business key of the runs; empty: any.")
    created_from: AwareDatetime | None = Field(
        default=None, description="Runs created at this time or later.", strict=False
    )
    created_to: AwareDatetime | None = Field(
        default=None, description="Runs created at this time or before.", strict=False
    )


def in_force() -> list[Hold]:
    """Return the holds that were not lifted, oldest first.

    Forged holds are included, because a hold can only keep runs."""
    lifted = {each.pk for each in HoldEnd.objects.all() if each.is_authentic}
    return [row for row in Hold.objects.order_by("pk") if row.pk not in lifted]


def forged() -> list[HoldEnd]:
    """Return liftings that this installation didn't write. Nothing is removed while there are any."""
    return [each for each in HoldEnd.objects.all() if not each.is_authentic]


@transaction.atomic
def place(body: LegalHoldBody, *, by: Actor) -> Hold:
    """Place a hold, effective immediately. Raises InvalidInput, Forbidden, JustificationRequired."""
    why = may("retention_hold", by, body.justification)
    given = [name for name in _FILTERS if getattr(body, name)]
    if (body.run_id is None) == (not given):
        fix = f"Give `run_id` alone, or at least one of {', '.join(_FILTERS)}"
        problem = "is given with other fields" if given else "is missing, as are all other fields"
        raise InvalidInput(f"{fix}.", errors=[{"field": "run_id", "problem": problem, "fix": fix}])
    for field in ("agent", "tag", "business_key"):
        check_text(field, getattr(body, field))
    if body.created_from and body.created_to and body.created_from > body.created_to:
        raise wrong("created_to", "is before created_from", "exchange them")
    if len(in_force()) >= MAX_HOLDS:
        raise wrong("run_id", f"there are {MAX_HOLDS} holds", "lift one first")
    if body.run_id is not None and not _is_known(body.run_id):
        raise NotFound("run", body.run_id)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
    row = Hold(**body.model_dump(exclude={"justification"}), reason=why, set_by=by.ref, at=database_now())
    store(row)
    acted("retention_hold", by=by, subject=str(row), justification=why, before={}, after=hold_values(row))
    return row


@two_person(FAMILY, needs=SUPERUSER)
@transaction.atomic
def lift(hold_id: int, *, by: Actor, justification: str) -> Hold:
    """Lift a hold. Raises NotInForce, NotFound, Forbidden, JustificationRequired."""
    why = may("retention_hold_lift", by, justification)
    row = ended(Hold, HoldEnd, hold_id, by, why)
    acted("retention_hold_lift", by=by, subject=str(row), justification=why, before=hold_values(row), after={})
    return row


def refusal(run_id: UUID) -> str | None:
    """Return why this run must be kept; None if there is no hold on it or on a related run.

    It is registered with the feature, and called before runs are removed."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT f.id, retention_hold_of(f.id) FROM retention_relatives(%s) f "
            "WHERE retention_hold_of(f.id) IS NOT NULL LIMIT 1",
            [run_id],
        )
        row = cursor.fetchone()
    if row is None:
        return None
    return f"Legal hold {row[1]} keeps the run" + ("" if row[0] == run_id else f", through the related run {row[0]}")


@dataclass(frozen=True, slots=True)
class Covered:
    """The numbers of runs that a hold keeps now: `live` ones in the database, and `archived` ones."""

    live: int
    archived: int

    def __str__(self) -> str:
        if not self.live and not self.archived:
            return "It matches no run now, but may match later ones. If you expected matches, check its fields"
        return f"It now keeps {_runs(self.live)} in the database and {_runs(self.archived)} in archives"


def covered(row: Hold, most: int = MAX_COUNTED) -> Covered:
    """Count the runs that a hold keeps, each kind up to `most` + 1.

    A hold keeps either one run with all related runs, or the runs that match its fields."""
    live: QuerySet[Run] = Run.objects.all()
    archived = Archive.objects.filter(restoration__isnull=True, deletion__isnull=True)
    if row.run_id is not None:
        related = _relatives(row.run_id)
        live, archived = live.filter(pk__in=related), archived.filter(run_id__in=related)
    given: dict[str, Any] = {
        "agent": row.agent,
        "business_key": row.business_key,
        "created_at__gte": row.created_from,
        "created_at__lte": row.created_to,
    }
    fields = {name: value for name, value in given.items() if value}
    live, archived = live.filter(**fields), archived.filter(**fields)
    if row.tag:
        live = live.filter(pk__in=RunTag.objects.filter(tag=row.tag).values("run_id"))
        archived = archived.filter(tags__contains=[row.tag])
    return Covered(*(found.order_by()[: most + 1].count() for found in (live, archived)))


def _runs(count: int) -> str:
    return f"more than {MAX_COUNTED:,} runs" if count > MAX_COUNTED else f"{count} run" + "s" * (count != 1)


def _relatives(run_id: UUID) -> list[UUID]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM retention_relatives(%s)", [run_id])
        return [found for (found,) in cursor.fetchall()]


def hold_values(row: Hold) -> dict[str, Any]:
    values = {name: getattr(row, name) for name in ("run_id", *_FILTERS)}
    return {
        name: str(value) if isinstance(value, UUID) else value.isoformat() if isinstance(value, datetime) else value
        for name, value in values.items()
        if value not in (None, "")
    }


def _is_known(run_id: UUID) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT FROM retention_facts(%s))", [run_id])
        return bool(cursor.fetchone()[0])
