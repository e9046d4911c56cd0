"""A run that another one starts as a step: what is written beside the step's intent, in its transaction."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from ledger import events as e
from ledger.append import lines
from runs import search
from runs.engine.journal import ChildSpec

_START = "SELECT runs_start_child(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s::text[], {lines}, %s, %s)"


def child_statement(spec: ChildSpec) -> tuple[str, list[Any]]:
    """The statement that makes a child, with its journal's first events."""
    run_id, by = UUID(spec.run_id), f"run:{spec.parent}"
    events: list[e.Event] = [
        e.RunCreated(agent=spec.agent, version=spec.version, by=by, payload=spec.input),
        e.ChildOf(parent=spec.parent, parent_slot=spec.slot, parent_attempt=spec.attempt, depth=spec.depth),
    ]
    caps = spec.caps.stated()
    if caps or spec.time is not None:
        events.append(e.BudgetSet(by=by, caps=caps, until=""))
    if spec.attributes is not None:
        events.append(spec.attributes)
    placeholders, values = lines(events, run_id, 0)
    words = search.terms(run_id, by=by, tags=spec.tags, input=spec.input)
    about = search.subject(spec.input)[: search.ABOUT_LENGTH]
    seconds = None if spec.time is None else int(spec.time.total_seconds())
    return _START.format(lines=placeholders), [
        UUID(spec.parent), spec.slot, spec.attempt, spec.depth, run_id, spec.agent, spec.version,
        f"{spec.agent}@{spec.version}", Jsonb(list(spec.tags)), spec.trace_id, about, words, *values, Jsonb(caps),
        seconds,
    ]  # fmt: skip
