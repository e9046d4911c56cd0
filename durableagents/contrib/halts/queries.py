"""Read halts together with the reports of workers, one row each, for the API, the page and the command."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from difflib import get_close_matches
from math import isfinite
from typing import Any, Literal
from uuid import UUID

from django.conf import settings
from django.core.management import get_commands
from django.db import connection
from django.db.models import Q
from pydantic import Field

from durableagents.contrib.halts.models import Halt, HaltNow, Held
from ledger.errors import NotFound
from ledger.web.fields import ActorName, RunId, Slot
from ledger.web.navigation import Notice
from ledger.web.seeing.viewers import viewer
from ledger.web.shapes import Shape
from runs.engine.agents import registry
from runs.fleet.members import FRESH_SECONDS
from runs.queries.halts import Halted, halt_of, is_put_aside, scope_name
from runs.queries.run_facts import RunFacts
from runs.queries.sentences import Sentence, name, write
from runs.queries.status import OPERATORS, FeatureReason
from runs.services.budgets.prices import models_of

Kind = Literal["halt", "quarantine", "starts"]
Scope = Literal["all", "tag", "agent", "version", "tool", "provider"]
MAX_COUNTED = 10_000
MAX_NOTICES = 20
# Selects the reports of each living worker on these rows of the record.
_WORKERS = """
    SELECT h.id, p.id, p.host, p.pid, p.last_heartbeat_at < clock_timestamp() - make_interval(secs => %s),
           s.seen_at, s.confirmed_at, s.running, s.calls
    FROM unnest(%s::bigint[]) h(id) CROSS JOIN runs_process p
    LEFT JOIN runs_haltseen s ON s.line = h.id AND s.worker = p.id
    WHERE p.kind = 'worker' AND p.ended_at IS NULL ORDER BY h.id, p.host, p.pid"""
# Of the names that this process doesn't know, selects those that are in no recorded version, tag or price either.
_UNKNOWN = """
    SELECT n.scope, n.key FROM unnest(%s::text[], %s::text[]) n(scope, key) WHERE NOT CASE n.scope
        WHEN 'tag' THEN EXISTS (SELECT 1 FROM runs_runtag t WHERE t.tag = n.key)
        WHEN 'agent' THEN EXISTS (SELECT 1 FROM runs_agentversion v WHERE split_part(v.graph_id, '@', 1) = n.key)
        WHEN 'version' THEN EXISTS (SELECT 1 FROM runs_agentversion v WHERE v.graph_id = n.key)
        WHEN 'tool' THEN EXISTS (SELECT 1 FROM runs_agentversion v WHERE v.parts -> 'tools' ? n.key)
            OR EXISTS (SELECT 1 FROM runs_agentcode c WHERE c.parts -> 'tools' ? n.key)
        ELSE EXISTS (SELECT 1 FROM runs_price p WHERE split_part(p.model, ':', 1) = n.key) END"""


class HearingRow(Shape):
    """A worker that has not confirmed the halt.

    `silent`: it has stopped sending heartbeats, so its state is unknown.
    """

    worker: UUID = Field(description="Id of the process.")
    name: str = Field(description="Host and process.")
    says: Literal["stopping", "unheard", "silent"] = Field(
        description="stopping (its runs are stopping), unheard (no confirmation yet) or silent (no heartbeat)."
    )
    running: int = Field(description="Its runs in the scope that have not reached their next step.")


class InFlightRow(Shape):
    """A call that was sent before its scope was halted. Its result is still recorded."""

    run: RunId
    slot: Slot
    what: str = Field(description="Tool or model that is called.")
    since: datetime = Field(description="Time when the call was sent.")
    timeout: float = Field(description="Seconds until the call is given up.")
    worker: str = Field(description="Worker that sent it.")


class UnknownName(Shape):
    """A name in a halt that matches nothing that exists or ever existed. The halt will apply to anything of that name
    that is added later."""

    scope: Scope = Field(description="Type of the scope.")
    key: str = Field(description="Name that matches nothing known.")
    like: list[str] = Field(description="Existing names of that kind, most similar first.")

    @property
    def meant(self) -> str:
        return f"Did you mean {' or '.join(self.like)}?" if self.like else ""


class HaltRow(Shape):
    """A halt: nothing starts in its scope."""

    id: UUID = Field(description="Id of the halt.")
    kind: Kind = Field(description="halt, quarantine, or starts (new starts only).")
    scope: Scope = Field(description="Type of the scope.")
    key: str = Field(
        description="Name within the scope; for the whole installation: empty, or the reason of a halt by the system."
    )
    refuse: bool = Field(description="New starts are refused instead of kept waiting.")
    state: Literal["requested", "confirmed", "lifted"] = Field(
        description="Requested until every live worker has confirmed that it starts nothing in the scope any "
        "more and that its runs in the scope have stopped, except for calls in flight."
    )
    is_staged: bool = Field(description="Whether the halt is lifted for some runs.")
    share: str = Field(description="Percentage of the runs that the halt lets through.")
    agents: list[str] = Field(description="Agents whose runs the halt lets through.")
    tags: list[str] = Field(description="Tags whose runs the halt lets through.")
    revision: int = Field(description="Increases with each change of the halt.")
    by: ActorName
    why: str = Field(description="Justification for the halt.")
    since: datetime = Field(description="Time when the halt was set.")
    changed_by: str = Field(description="Actor of the last change.")
    changed_at: datetime = Field(description="Time of the last change.")
    changed_why: str = Field(description="Justification for the last change.")
    workers: int = Field(description="Number of live workers; 0 if the halt is lifted or covers only new starts.")
    unconfirmed: list[HearingRow] = Field(description="Number of live workers that have not confirmed it.")
    unknown: list[UnknownName] = Field(
        description="Names in the scope or in the exceptions that match nothing known, perhaps misspelt. Tags "
        "are included only for callers who may see all runs."
    )
    in_flight: list[InFlightRow] | None = Field(description="Null if you may not see all runs in the scope.")
    held: int | None = Field(description="Number of runs held by it, counted up to 10,001; null if in_flight is null.")
    authentic: bool = Field(
        description="False if a row was not written by this installation. The halt is in force all the same."
    )

    @property
    def what(self) -> str:
        return scope_name(self.kind, self.scope, self.key)


def get_halt(halt: UUID) -> HaltRow:
    """Return a halt. Raises NotFound, even if the halt exists but the viewer may not see it."""
    found = find_halts([halt])
    if not found:
        raise NotFound("halt", halt)
    return found[0]


def halts_in_force() -> list[HaltRow]:
    """Return the halts in force that the viewer may see, oldest first."""
    return find_halts(_in_force())


def list_halts(*, limit: int, before: int | None = None) -> list[tuple[int, HaltRow]]:
    """Return the newest halts, including past ones, each with its number; with `before`, only lower numbers."""
    numbers = _newest(limit, before)
    return [(numbers[row.id], row) for row in find_halts(list(numbers))]


def halts_and_history(*, limit: int, before: int | None = None) -> tuple[list[HaltRow], list[tuple[int, HaltRow]]]:
    """Return the results of `halts_in_force` and `list_halts`, reading the workers' reports only once."""
    in_force, numbers = _in_force(), _newest(limit, before)
    rows = {row.id: row for row in find_halts(list(dict.fromkeys([*in_force, *numbers])))}
    return [rows[halt] for halt in in_force if halt in rows], [(n, rows[halt]) for halt, n in numbers.items()]


def find_halts(ids: Sequence[UUID]) -> list[HaltRow]:
    """Return those of these halts that the viewer may see, in the given order."""
    rows: dict[UUID, list[Halt]] = {}
    for row in Halt.objects.filter(_is_visible(), halt__in=ids).order_by("n"):
        rows.setdefault(row.halt, []).append(row)
    in_force = [some[-1] for some in rows.values() if some[-1].stage != Halt.Stage.LIFTED]
    read = [row.id for row in in_force if row.kind != Halt.Kind.STARTS]
    reports = _read_reports(read) if read else {}
    unknown = _find_unknown(in_force) if in_force else {}
    return [
        _row(rows[halt], *reports.get(rows[halt][-1].id, (0, [], [])), unknown.get(rows[halt][-1].id, []))
        for halt in ids
        if halt in rows
    ]


def notices() -> list[Notice]:
    """Return the halts of runs and calls as notices for the top of every page."""
    now = HaltNow.objects.filter(_is_visible()).order_by("since", "id")[:MAX_NOTICES]
    return [
        Notice(
            f"Halted: {scope_name(halt.kind, halt.scope, halt.key)}.",
            f"By {halt.by}, since {halt.since:%Y-%m-%d %H:%M} UTC: {halt.why}",
            "halts",
            "Halts",
        )
        for halt in now
        if halt.kind != Halt.Kind.STARTS
    ]


def start_notices() -> list[str]:
    """Return a line for each halt of the whole installation."""
    lines = []
    for halt in HaltNow.objects.filter(kind=Halt.Kind.HALT, scope=Halt.Scope.ALL).order_by("since"):
        # Only the halt of a restored database has a key in this scope.
        how = "manage.py restore_hold status" if halt.key and "restore_hold" in get_commands() else "the page Halts"
        some = "only what was let through" if halt.is_staged else "nothing"
        lines.append(f"HELD since {halt.since:%Y-%m-%d %H:%M} UTC: it executes {some}. See {how}")
    return lines


def known_names() -> dict[str, list[str]]:
    """Return the sorted names that this process knows and that can be halted, by scope. Tags are not included."""
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


def _is_visible() -> Q:
    """Return the condition for halts that the viewer may see.

    Viewers who don't see all runs see a halt of a tag only if they have that tag.
    """
    who = viewer()
    return Q() if who.sees_all else ~Q(scope=Halt.Scope.TAG) | Q(key__in=who.tags)


def _in_force() -> list[UUID]:
    return list(HaltNow.objects.filter(_is_visible()).order_by("since", "id").values_list("halt", flat=True))


def _newest(limit: int, before: int | None) -> dict[UUID, int]:
    first = Halt.objects.filter(_is_visible(), n=0).order_by("-id")
    return dict((first if before is None else first.filter(id__lt=before)).values_list("halt", "id")[:limit])


def _row(
    record: list[Halt],
    workers: int,
    unconfirmed: list[HearingRow],
    calls: list[InFlightRow],
    unknown: list[UnknownName],
) -> HaltRow:
    first, last, who = record[0], record[-1], viewer()
    is_lifted = last.stage == Halt.Stage.LIFTED
    held = Held.objects.filter(halt=last.halt).values("pk")[: MAX_COUNTED + 1]
    return HaltRow.of(
        last,
        id=last.halt,
        refuse=last.refuses,
        state="lifted" if is_lifted else "requested" if unconfirmed else "confirmed",
        is_staged=last.stage == Halt.Stage.STAGED,
        share=f"{last.share / 100:.2f}".rstrip("0").rstrip("."),
        tags=[tag for tag in last.tags if who.sees_all or tag in who.tags],
        revision=last.n,
        by=first.by,
        why=first.why,
        since=first.at,
        changed_by=last.by,
        changed_at=last.at,
        changed_why=last.why,
        workers=workers,
        unconfirmed=unconfirmed,
        unknown=[each for each in unknown if who.sees_all or each.scope != Halt.Scope.TAG],
        in_flight=calls if who.sees_all else None,
        held=Held.objects.filter(pk__in=held).count() if who.sees_all else None,
        authentic=last.is_authentic and first.is_authentic,
    )


def _read_reports(ids: Sequence[int]) -> dict[int, tuple[int, list[HearingRow], list[InFlightRow]]]:
    """Return the reports of workers by row of the record.

    Each has the number of live workers, the workers that haven't confirmed the row, and the calls in flight.
    """
    with connection.cursor() as cursor:
        cursor.execute(_WORKERS, [FRESH_SECONDS, list(ids)])
        reports = cursor.fetchall()
    found: dict[int, tuple[int, list[HearingRow], list[InFlightRow]]] = {}
    for line, worker, host, pid, is_silent, seen_at, confirmed_at, running, calls_in_flight in reports:
        name = f"{host}/{pid}"
        calls = _calls(calls_in_flight, name)
        workers, unconfirmed, in_flight = found.get(line, (0, [], []))
        if confirmed_at is None or running or calls is None:
            is_heard = seen_at is not None and calls is not None
            says: Any = "silent" if is_silent else "stopping" if is_heard else "unheard"
            unconfirmed.append(HearingRow(worker=worker, name=name, says=says, running=running or 0))
        found[line] = workers + 1, unconfirmed, in_flight + (calls or [])
    return found


def _calls(value: Any, worker: str) -> list[InFlightRow] | None:
    """Return the calls of a report; None if it is damaged.

    A worker with a damaged report counts as not having confirmed.
    """
    try:
        read = json.loads(value) if isinstance(value, str) else value
        return [_call(each, worker) for each in read or ()]
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None


def _call(fields: dict[str, Any], worker: str) -> InFlightRow:
    since, timeout = datetime.fromisoformat(fields["since"]), float(fields["timeout"])
    if since.tzinfo is None or not isfinite(timeout):
        raise ValueError(fields)
    slot, what = str(fields["slot"]), str(fields["what"])
    return InFlightRow(run=UUID(fields["run"]), slot=slot, what=what, since=since, timeout=timeout, worker=worker)


def _find_unknown(rows: Iterable[Halt]) -> dict[int, list[UnknownName]]:
    """Return the names in each halt that don't exist here and never did, by the row's number."""
    named = {row.pk: _names_in(row) for row in rows}
    known = known_names()
    names = sorted({name for some in named.values() for name in some if name[1] not in known.get(name[0], ())})
    if not names:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(_UNKNOWN, [[scope for scope, _ in names], [key for _, key in names]])
        missing = set(cursor.fetchall())
    return {
        pk: [
            UnknownName.model_construct(scope=scope, key=key, like=_similar(key, known.get(scope, ())))  # type: ignore[arg-type]
            for scope, key in some
            if (scope, key) in missing
        ]
        for pk, some in named.items()
    }


def _names_in(row: Halt) -> list[tuple[str, str]]:
    """Return the scope and name of everything that a halt names, including the parts for which it is lifted."""
    scope = [] if row.scope == Halt.Scope.ALL else [(str(row.scope), row.key)]
    lists = (("agent", row.agents), ("tag", row.tags))
    lifted = [(kind, name) for kind, names in lists for name in names or () if isinstance(name, str)]
    return list(dict.fromkeys([*scope, *lifted]))


def _similar(key: str, names: Iterable[str]) -> list[str]:
    known = {name.casefold(): name for name in names}
    return [known[each] for each in get_close_matches(key.casefold(), list(known), 3)]


def halt_reason(facts: RunFacts) -> FeatureReason | None:
    """Return the halt as the reason why a ready run isn't driven, even before a worker puts it aside; or None."""
    halt = halt_of(facts.head)
    if not is_put_aside(facts.run) and (halt is None or not facts.run.wants_driving):
        return None
    then = " It goes on within seconds when that is lifted; until then it holds no worker."
    since = None if halt is None else halt.since
    return FeatureReason(reason="halted", sentence=_halted(halt, then), who=OPERATORS, since=since)


def halt_note(facts: RunFacts) -> Sentence | None:
    """Return a note about the halt that covers a run in progress or a waiting run; otherwise None."""
    halt = halt_of(facts.head)
    if halt is None or halt_reason(facts) is not None:
        return None
    if facts.run.owner is not None:
        return _halted(halt, " It stops at its next step.")
    return _halted(halt, " What it waits for may come, its deadlines stand still, and nothing is sent.")


def _halted(halt: Halted | None, then: str) -> Sentence:
    if halt is None:
        return Sentence(write("The run was halted a moment ago"), write(f".{then}"))
    lead = write("Halted: {what}", what=name(halt.what, to=("halts",)))
    why = halt.why.removesuffix(".")
    return Sentence(lead, write(f", by {{by}} since {{at}}: {{why}}.{then}", by=name(halt.by), at=halt.since, why=why))
