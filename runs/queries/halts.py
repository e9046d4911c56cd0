"""Halts and their status: requested until every worker has confirmed, with calls still in flight."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from math import isfinite
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.db.models import JSONField, Q
from django.db.models.expressions import RawSQL

from ledger.models import Head
from ledger.web.seeing.viewers import viewer
from runs.engine.agents import registry
from runs.fleet.members import FRESH_SECONDS
from runs.models import NEVER, Halt, HaltNow, Held, Run
from runs.services.budgets.prices import models_of
from runs.services.halts.acts import named, percent

# Names that this process doesn't know: workers may have other versions, and runs any tag.
_UNKNOWN = """
    SELECT n.scope, n.key FROM unnest(%s::text[], %s::text[]) n(scope, key) WHERE NOT CASE n.scope
        WHEN 'tag' THEN EXISTS (SELECT 1 FROM runs_runtag t WHERE t.tag = n.key)
        WHEN 'agent' THEN EXISTS (SELECT 1 FROM runs_agentversion v WHERE split_part(v.graph_id, '@', 1) = n.key)
        WHEN 'version' THEN EXISTS (SELECT 1 FROM runs_agentversion v WHERE v.graph_id = n.key)
        WHEN 'tool' THEN EXISTS (SELECT 1 FROM runs_agentversion v WHERE v.parts -> 'tools' ? n.key)
            OR EXISTS (SELECT 1 FROM runs_agentcode c WHERE c.parts -> 'tools' ? n.key)
        ELSE EXISTS (SELECT 1 FROM runs_price p WHERE split_part(p.model, ':', 1) = n.key) END"""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A name in a halt that matches nothing; `like` are similar names, best first."""

    scope: str
    key: str
    like: tuple[str, ...]

    @property
    def meant(self) -> str:
        return f"Did you mean {' or '.join(self.like)}?" if self.like else ""


def unknown(rows: Iterable[Halt]) -> dict[int, list[Unknown]]:
    """Return the names in each halt that nothing here has or ever had, by the row's number."""
    given = {row.pk: _given(row) for row in rows}
    offered = names()
    asked = sorted({name for some in given.values() for name in some if name[1] not in offered.get(name[0], ())})
    if not asked:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(_UNKNOWN, [[scope for scope, _ in asked], [key for _, key in asked]])
        missing = set(cursor.fetchall())
    found = {
        pk: [Unknown(scope, key, _like(key, offered.get(scope, ()))) for scope, key in some if (scope, key) in missing]
        for pk, some in given.items()
    }
    return {pk: some for pk, some in found.items() if some}


def names() -> dict[str, list[str]]:
    """Return what this process knows that can be halted, by scope, sorted; not tags."""
    agents = registry.agents()
    models = {model for agent in agents for assistant in agent.assistants for model in models_of(assistant)}
    models |= {*settings.DURABLEAGENTS.models}
    known = {
        "agent": {agent.name for agent in agents},
        "version": {agent.graph_id for agent in agents},
        "tool": {tool.name for agent in agents for tool in agent.all_tools()},
        "provider": {model.partition(":")[0] for model in models},
    }
    return {scope: sorted(some) for scope, some in known.items()}


def _given(row: Halt) -> list[tuple[str, str]]:
    scope = [] if row.scope == Halt.Scope.ALL else [(str(row.scope), row.key)]
    given = (("agent", row.agents), ("tag", row.tags))
    lets = [(kind, name) for kind, names in given for name in names or () if isinstance(name, str)]
    return list(dict.fromkeys([*scope, *lets]))


def _like(key: str, names: Iterable[str]) -> tuple[str, ...]:
    known = {name.casefold(): name for name in names}
    return tuple(known[each] for each in get_close_matches(key.casefold(), list(known), 3))


COUNT_TO = 10_000
# Reports of each living worker on these halts.
_WORKERS = """
    SELECT h.id, p.id, p.host, p.pid, p.last_heartbeat_at < clock_timestamp() - make_interval(secs => %s),
           s.seen_at, s.confirmed_at, s.running, s.calls
    FROM unnest(%s::bigint[]) h(id) CROSS JOIN runs_process p
    LEFT JOIN runs_haltseen s ON s.line = h.id AND s.worker = p.id
    WHERE p.kind = 'worker' AND p.ended_at IS NULL ORDER BY h.id, p.host, p.pid"""


@dataclass(frozen=True, slots=True)
class Hearing:
    """A worker's report on a halt.
    `says`: confirmed; stopping (its runs are reaching their next step); unheard; silent (not confirmed and no
    heartbeat)."""

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
    """A call that was sent before its scope was halted; its result will still be recorded."""

    run: UUID
    slot: str
    what: str
    since: datetime
    timeout: float
    worker: str


@dataclass(frozen=True, slots=True)
class Holding:
    """A halt by the last row of its record, with workers' reports. `unknown`: its names that match nothing."""

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
        """Return requested, confirmed, or lifted."""
        return "lifted" if self.is_lifted else "requested" if self.unconfirmed else "confirmed"

    @property
    def share(self) -> str:
        return f"{percent(self.row.share):.2f}".rstrip("0").rstrip(".")

    @property
    def tags(self) -> list[str]:
        who = viewer()
        return [tag for tag in self.row.tags if who.sees_all or tag in who.tags]

    @property
    def is_authentic(self) -> bool:
        return self.row.is_authentic and self.began.is_authentic


def holding() -> list[Holding]:
    return standing(_now())


def halts(*, limit: int, beyond: int | None = None) -> list[Holding]:
    return standing(_newest(limit, beyond))


def holding_and_halts(*, limit: int, beyond: int | None = None) -> tuple[list[Holding], list[Holding]]:
    """Return both with one query of their status."""
    now, newest = _now(), _newest(limit, beyond)
    found = {one.row.halt: one for one in standing(list(dict.fromkeys([*now, *newest])))}
    return [found[halt] for halt in now if halt in found], [found[halt] for halt in newest if halt in found]


def _now() -> list[UUID]:
    return list(HaltNow.objects.filter(_is_told()).order_by("since", "id").values_list("halt", flat=True))


def _is_told() -> Q:
    """Return the condition for halts the viewer may see; a tag's only with that tag, or for those who see all runs."""
    who = viewer()
    return Q() if who.sees_all else ~Q(scope=Halt.Scope.TAG) | Q(key__in=who.tags)


def _newest(limit: int, beyond: int | None) -> list[UUID]:
    first = Halt.objects.filter(_is_told(), n=0).order_by("-id")
    return list((first if beyond is None else first.filter(id__lt=beyond)).values_list("halt", flat=True)[:limit])


def standing(ids: Sequence[UUID]) -> list[Holding]:
    """Return those of these halts that the viewer may see, in this order."""
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
    """Return the halts in force, for the banner on every page."""
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


# The oldest halt of a run, or of the call at which it was deferred.
_HALTED = """(
    SELECT jsonb_build_object('kind', n.kind, 'scope', n.scope, 'key', n.key, 'by', n.by, 'why', n.why,
                              'since', n.since)
    FROM runs_run r LEFT JOIN runs_held x ON x.run_id = r.id
    CROSS JOIN LATERAL runs_halts_on(r.id, r.agent, r.graph_id, r.started_at IS NULL AND r.came_from IS NULL, x.keys) n
    WHERE EXISTS (SELECT 1 FROM runs_haltnow) AND r.id = ledger_head.run_id AND r.ended_at IS NULL LIMIT 1)"""


@dataclass(frozen=True, slots=True)
class Halted:
    """A halt that covers a run."""

    kind: str
    scope: str
    key: str
    by: str
    why: str
    since: datetime

    @property
    def what(self) -> str:
        return named(self)

    def __str__(self) -> str:
        return f"halted: {self.what}, by {self.by}, since {self.since:%Y-%m-%d %H:%M} UTC: {self.why}"


def halted() -> RawSQL:
    return RawSQL(_HALTED, (), output_field=JSONField())


def halt_of(head: Head | None) -> Halted | None:
    return of(getattr(head, "halted", None))


def of(told: Mapping[str, Any] | None) -> Halted | None:
    return None if not told else Halted(**{**told, "since": datetime.fromisoformat(told["since"])})


def is_put_aside(run: Run) -> bool:
    return run.owner is None and run.ready_at == NEVER
