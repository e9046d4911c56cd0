"""Current figures, such as open waits. They are counted using indexes that cover only rows that have not ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.db import connection

from runs.fleet import agent_versions
from runs.models import ACTIVE, ENDED, State

Sample = tuple[str, Sequence[str], float]

_RUNS = "SELECT state, agent, count(*) FROM runs_run WHERE state = ANY(%s) GROUP BY 1, 2"
_WAITS = """
    SELECT kind, coalesce(CASE kind WHEN 'approval' THEN detail ->> 'queue' WHEN 'input' THEN detail ->> 'of' END, ''),
           count(*), count(*) FILTER (WHERE deadline < statement_timestamp()),
           greatest(extract(epoch FROM statement_timestamp() - min(opened_at)), 0)::float
    FROM runs_wait WHERE resolved_at IS NULL GROUP BY 1, 2"""
_READY = """
    SELECT count(*), greatest(extract(epoch FROM statement_timestamp() - min(ready_at)), 0)::float
    FROM runs_run WHERE ready_at <= statement_timestamp() AND owner IS NULL"""
_RECOVERING = """
    SELECT count(*), greatest(extract(epoch FROM statement_timestamp() - min(coalesce(i.last_sign_at, i.at))), 0)::float
    FROM metrics_fact f JOIN runs_incident i ON i.run_id = f.run_id AND i.seq = f.seq
    WHERE f.kind IN ('incident', 'recovering')"""


def take_stock() -> Iterator[Sample]:
    """Yield the current figures as tuples of name, label values and value, without the numbers of ended runs."""
    yield from _runs([*ACTIVE, State.PAUSED])
    overdue: dict[str, int] = {}
    for kind, queue, n, late, oldest in _rows(_WAITS):
        yield "waits", (kind, queue), n
        yield "wait_oldest_seconds", (kind, queue), oldest
        overdue[kind] = overdue.get(kind, 0) + late
    for kind, late in overdue.items():
        yield "waits_overdue", (kind,), late
    for name, oldest_name, sql in (
        ("ready_runs", "ready_oldest_seconds", _READY),
        ("recoveries_open", "recovery_oldest_seconds", _RECOVERING),
    ):
        ((n, oldest),) = _rows(sql)
        yield name, (), n
        yield oldest_name, (), oldest or 0.0
    yield "unserved_versions", (), len(agent_versions.unserved())


def count_ended() -> Iterator[Sample]:
    """Yield the numbers of ended runs. This reads a whole index."""
    yield from _runs(ENDED)


def _runs(states: Sequence[str]) -> Iterator[Sample]:
    for state, agent, n in _rows(_RUNS, [list(map(str, states))]):
        yield "runs", (state, agent), n


def _rows(sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return list(cursor.fetchall())
