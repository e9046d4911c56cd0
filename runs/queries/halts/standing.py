"""How halts stand: requested until every worker has confirmed, and what is still in flight in their scope."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Q

from ledger.web.seeing.viewers import viewer
from runs.fleet.members import FRESH_SECONDS
from runs.models import Halt, HaltNow, Held
from runs.queries.halts.unknown import Unknown, unknown
from runs.services.halts.acts import named, percent

COUNT_TO = 10_000
# Of each worker that is on record as alive what it has said of these rows of the record.
_WORKERS = """
    SELECT h.id, p.id, p.host, p.pid, p.last_heartbeat_at < clock_timestamp() - make_interval(secs => %s),
           s.seen_at, s.confirmed_at, s.running, s.calls
    FROM unnest(%s::bigint[]) h(id) CROSS JOIN runs_process p
    LEFT JOIN runs_haltseen s ON s.line = h.id AND s.worker = p.id
    WHERE p.kind = 'worker' AND p.ended_at IS NULL ORDER BY h.id, p.host, p.pid"""


@dataclass(frozen=True, slots=True)
class Hearing:
    """What a worker has said of a halt. `says`: confirmed; stopping (it has heard, and its runs come to their next
    step); unheard; silent (it has not confirmed, and gives no sign of life: nobody knows what it does)."""

    worker: UUID
    host: str
    pid: int
    says: str
    running: int = 0

    @property
    def name(self) -> str:
        return f"{self.host}/{self.pid}"


@dataclass(frozen=True, slots=True)
class InFlight:
    """A call that had left when its scope was halted: it may come back, and is recorded then."""

    run: UUID
    slot: str
    what: str
    since: datetime
    timeout: float
    worker: str


@dataclass(frozen=True, slots=True)
class Holding:
    """A halt, as the last row of its record says, with how it is kept to. `unknown`: names that it gives and nothing
    here has."""

    row: Halt
    began: Halt
    hearings: Sequence[Hearing] = ()
    in_flight: Sequence[InFlight] = ()
    held: int = 0
    unknown: Sequence[Unknown] = ()

    @property
    def what(self) -> str:
        return named(self.row)

    @property
    def is_lifted(self) -> bool:
        return self.row.stage == Halt.Stage.LIFTED

    @property
    def is_staged(self) -> bool:
        return self.row.stage == Halt.Stage.STAGED

    @property
    def unconfirmed(self) -> list[Hearing]:
        return [one for one in self.hearings if one.says != "confirmed"]

    @property
    def state(self) -> str:
        """requested, confirmed, or lifted."""
        return "lifted" if self.is_lifted else "requested" if self.unconfirmed else "confirmed"

    @property
    def share(self) -> str:
        return f"{percent(self.row.share):.2f}".rstrip("0").rstrip(".")

    @property
    def tags(self) -> list[str]:
        """Those that it lets through, of which whoever looks may know."""
        who = viewer()
        return [tag for tag in self.row.tags if who.sees_all or tag in who.tags]

    @property
    def is_genuine(self) -> bool:
        """Whether all that is on record of it was written by this installation."""
        return self.row.is_genuine and self.began.is_genuine


def holding() -> list[Holding]:
    """What is halted now, the oldest first."""
    return standing(_now())


def halts(*, limit: int, beyond: int | None = None) -> list[Holding]:
    """All halts, newest first, from below a first row's number on."""
    return standing(_newest(limit, beyond))


def holding_and_halts(*, limit: int, beyond: int | None = None) -> tuple[list[Holding], list[Holding]]:
    """Both, by one look at how they stand."""
    now, newest = _now(), _newest(limit, beyond)
    found = {one.row.halt: one for one in standing(list(dict.fromkeys([*now, *newest])))}
    return [found[halt] for halt in now if halt in found], [found[halt] for halt in newest if halt in found]


def _now() -> list[UUID]:
    return list(HaltNow.objects.filter(_is_told()).order_by("since", "id").values_list("halt", flat=True))


def _is_told() -> Q:
    """Of which halts whoever looks is told: of a tag's where they see every run, or the tag is their own."""
    who = viewer()
    return Q() if who.sees_all else ~Q(scope=Halt.Scope.TAG) | Q(key__in=who.tags)


def _newest(limit: int, beyond: int | None) -> list[UUID]:
    first = Halt.objects.filter(_is_told(), n=0).order_by("-id")
    return list((first if beyond is None else first.filter(id__lt=beyond)).values_list("halt", flat=True)[:limit])


def standing(ids: Sequence[UUID]) -> list[Holding]:
    """These halts, in this order: those of which whoever looks is told."""
    rows: dict[UUID, list[Halt]] = {}
    for row in Halt.objects.filter(_is_told(), halt__in=ids).order_by("n"):
        rows.setdefault(row.halt, []).append(row)
    last = {halt: some[-1] for halt, some in rows.items()}
    holds = [row for row in last.values() if row.stage != Halt.Stage.LIFTED]
    open_ = [row.id for row in holds if row.kind != Halt.Kind.STARTS]
    heard = _hearings(open_) if open_ else {}
    strange = unknown(holds) if holds else {}
    found = []
    for halt in ids:
        if halt in rows:
            row = last[halt]
            hearings, in_flight = heard.get(row.id, ([], []))
            found.append(Holding(row, rows[halt][0], hearings, in_flight, _held(halt), strange.get(row.id, ())))
    return found


def banner() -> list[HaltNow]:
    """What stands on every page: what is halted now."""
    return list(HaltNow.objects.filter(_is_told()).order_by("since", "id")[:20])


def _held(halt: UUID) -> int:
    return Held.objects.filter(pk__in=Held.objects.filter(halt=halt).values("pk")[: COUNT_TO + 1]).count()


def _hearings(ids: Sequence[int]) -> dict[int, tuple[list[Hearing], list[InFlight]]]:
    with connection.cursor() as cursor:
        cursor.execute(_WORKERS, [FRESH_SECONDS, list(ids)])
        told = cursor.fetchall()
    found: dict[int, tuple[list[Hearing], list[InFlight]]] = {}
    for halt, worker, host, pid, is_silent, seen_at, confirmed_at, running, calls in told:
        hearings, in_flight = found.setdefault(halt, ([], []))
        calls_now = _in_flight(calls, f"{host}/{pid}")
        if confirmed_at is not None and not running and calls_now is not None:
            says = "confirmed"
        else:
            is_heard = seen_at is not None and calls_now is not None
            says = "silent" if is_silent else "stopping" if is_heard else "unheard"
        hearings.append(Hearing(worker, host, pid, says, running or 0))
        in_flight += calls_now or []
    return found


def _in_flight(told: Any, worker: str) -> list[InFlight] | None:
    """What a worker has said of its calls; None: it can't be read, so it has said nothing."""
    try:
        read = json.loads(told) if isinstance(told, str) else told
        return [_call(each, worker) for each in read or ()]
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None


def _call(told: dict[str, Any], worker: str) -> InFlight:
    since, timeout = datetime.fromisoformat(told["since"]), float(told["timeout"])
    if since.tzinfo is None or not isfinite(timeout):
        raise ValueError(told)
    return InFlight(UUID(told["run"]), str(told["slot"]), str(told["what"]), since, timeout, worker)
