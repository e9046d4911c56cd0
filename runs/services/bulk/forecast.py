"""What would become of an act on many runs, by their rows as they are now and the services' own rules: how many, in
which states, which would be refused and in which words. Locks nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any
from uuid import UUID

from django.db import connection

from ledger import events as e
from ledger.actors import Actor
from ledger.errors import NotFound
from ledger.models import Event, Head
from runs import seen
from runs.models import Run, Wait
from runs.services import authority
from runs.services.allowed.rules import NOT_ONE, OVER, stand_of, why_not
from runs.services.command import refusal

CHUNK = 500
NAMED = 20  # of each reason
_KINDS = """
    SELECT run_id, array_agg(kind) FROM runs_wait WHERE run_id = ANY(%s) AND resolved_at IS NULL GROUP BY run_id"""


def forecast(action: str, ids: Sequence[UUID], *, by: Actor, held: frozenset[str]) -> dict[str, Any]:
    """As JSON: `states` with how many runs each, `may` how many it would be done to, `refused` by code and words with
    how many and some of them, `undoable` how many have effects that a cancel has to say something about."""
    states: Counter[str] = Counter()
    refused: Counter[tuple[str, str]] = Counter()
    named: dict[tuple[str, str], list[str]] = {}
    undoable = 0
    for chunk in _chunks(ids):
        for run_id, state, why in _looked_at(action, chunk, by=by, held=held):
            states[state] += 1
            if why is not None:
                refused[why] += 1
                named.setdefault(why, []).append(str(run_id))
        if action == "cancel":
            undoable += _undoable(chunk)
    return {
        "states": dict(states), "may": len(ids) - sum(refused.values()), "undoable": undoable,
        "refused": [
            {"code": code, "why": why, "runs": number, "some": named[code, why][:NAMED]}
            for (code, why), number in refused.most_common()
        ],
    }  # fmt: skip


def _undoable(chunk: list[UUID]) -> int:
    return Event.objects.filter(run_id__in=chunk, kind=e.UndoRegistered.KIND).values("run_id").distinct().count()


def _chunks(ids: Iterable[UUID]) -> Iterable[list[UUID]]:
    some = iter(ids)
    while chunk := list(islice(some, CHUNK)):
        yield chunk


def _looked_at(
    action: str, chunk: list[UUID], *, by: Actor, held: frozenset[str]
) -> Iterable[tuple[UUID, str, tuple[str, str] | None]]:
    """Each run with its state, and code and words of what would be said to it; None: it would be done."""
    shown = seen.among(chunk)
    runs = Run.objects.in_bulk(list(shown))
    heads = Head.objects.only("run_id", "is_pause_requested", "is_cancel_requested").in_bulk(list(runs))
    with connection.cursor() as cursor:
        cursor.execute(_KINDS, [list(runs)])
        kinds: dict[UUID, list[str]] = dict(cursor.fetchall())
    standings = authority.standings(runs.values())
    for run_id in chunk:
        run, head = runs.get(run_id), heads.get(run_id)
        if run is None or head is None:
            yield run_id, "unknown", (NotFound.code, "There is no such run, or you may not see it.")
            continue
        yield run_id, str(run.state), _why(action, run, head, kinds.get(run_id, []), standings[run_id], by, held)


def _why(
    action: str, run: Run, head: Head, kinds: list[str], stands: authority.Standing, by: Actor, held: frozenset[str]
) -> tuple[str, str] | None:
    if stands.role(action, held, by.person) is None:
        no = stands.refusal(action, held)
        return no.code, no.detail
    stand = stand_of(
        run, pause_asked=head.is_pause_requested, cancel_asked=head.is_cancel_requested, kinds=kinds,
        is_held=Wait.Kind.BUDGET in kinds,  # whoever has paused it besides is told at its turn
    )  # fmt: skip
    hint = why_not(action, stand)
    if hint is None and action == "reconcile" and kinds.count(Wait.Kind.RECONCILE) != 1:
        hint = NOT_ONE
    if hint is None:
        return None
    return ("illegal-state", OVER) if action == "priority" else ("illegal-state", refusal(action, run, hint).detail)
