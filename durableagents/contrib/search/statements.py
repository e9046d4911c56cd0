"""SQL of a search: every value is a parameter.
Subqueries on one run's rows have a LIMIT, so that the planner can't turn them into a walk over all matching rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db import connection

from durableagents.contrib.search.conditions import Condition, Rows
from durableagents.contrib.search.order import AttributeOrder, Position
from runs.queries.expressions import Both, Either, Not

Sql = tuple[str, list[Any]]
Arm = Mapping[str, str]
_TRUE: Sql = "true", []


def joined(parts: Sequence[Sql], word: str) -> Sql:
    """Join conditions or statements, each in brackets."""
    return f" {word} ".join(f"({text})" for text, _ in parts), [value for _, values in parts for value in values]


def fits(condition: Condition | None, run: str) -> Sql:
    """Return the SQL condition that a run matches; `run` is the expression of its id."""
    match condition:
        case None:
            return _TRUE
        case Rows() as rows:
            text, values = rows.condition("a")
            look = f"SELECT true FROM runs_attribute AS a WHERE a.run_id = {run} AND {text} LIMIT 1"
            return f"coalesce(({look}), false)", values
        case Not(part):
            text, values = fits(part, run)
            return f"NOT ({text})", values
        case Both(parts):
            return joined([fits(part, run) for part in parts], "AND")
        case Either(parts):
            return joined([fits(part, run) for part in parts], "OR")


def _of_run(arms: Sequence[Arm], table: str) -> Sql:
    if not all(arms) or not arms:
        return _TRUE
    return joined([joined([(f"{table}.{c} = %s", [v]) for c, v in arm.items()], "AND") for arm in arms], "OR")


# --- counting and selecting -------------------------------------------------------------------------------------------


def counted(rows: Rows, most: int) -> Sql:
    """Count these rows, up to `most`."""
    text, values = rows.condition("a")
    return f"SELECT count(*) FROM (SELECT 1 FROM runs_attribute AS a WHERE {text} LIMIT %s) AS found", [*values, most]


def runs_of(rows: Rows) -> Sql:
    text, values = rows.condition("a")
    return f"SELECT a.run_id FROM runs_attribute AS a WHERE {text}", values


def runs_in(arm: Arm, most: int) -> Sql:
    text, values = _of_run([arm], "r")
    return f"SELECT r.id FROM runs_run AS r WHERE {text} LIMIT %s", [*values, most]


def among(
    ids: Sequence[UUID],
    condition: Condition | None,
    arms: Sequence[Arm],
    by: AttributeOrder | None,
    start: Position | None,
    limit: int,
    seen: Sql = _TRUE,
) -> Sql:
    """Select those of these runs that match and are visible (`seen`), in order, after a position."""
    whole, values = joined([fits(condition, "r.id"), _of_run(arms, "r"), seen], "AND")
    if by is None:
        after, more = _after("r.created_at, r.id", start, by)
        return (
            f"SELECT r.id, r.created_at, NULL FROM runs_run AS r WHERE r.id = ANY (%s::uuid[]) AND {whole} AND {after} "
            "ORDER BY r.created_at DESC, r.id DESC LIMIT %s"
        ), [list(ids), *values, *more, limit]
    own, named = by.rows.condition("s")
    after, more = _after(f"s.{by.column}, r.created_at, r.id", start, by)
    return (
        f"SELECT r.id, r.created_at, s.{by.column}::text FROM runs_run AS r JOIN runs_attribute AS s "
        f"ON s.run_id = r.id AND {own} WHERE r.id = ANY (%s::uuid[]) AND {whole} AND {after} "
        f"ORDER BY {_order(by, 's', 'r.created_at, r.id')} LIMIT %s"
    ), [*named, list(ids), *values, *more, limit]


# --- walks ------------------------------------------------------------------------------------------------------------


def by_time(arms: Sequence[Arm], start: Position | None, size: int, condition: Condition | None) -> Sql:
    """Select the next runs, newest first."""
    after, more = _after("r.created_at, r.id", start, None)
    parts = []
    for arm in arms:
        own, values = _of_run([arm], "r")
        text = f"SELECT r.id AS run_id, r.created_at FROM runs_run AS r WHERE {own} AND {after} "
        parts.append((text + _NEWEST.format("r.id"), [*values, *more, size]))
    return _window(parts, size, condition, [])


def by_walks(
    walks: Callable[[Sql], Sequence[Sql]], start: Position | None, size: int, condition: Condition | None
) -> Sql:
    """Select the next runs of several walks, newest first; each is given the position, and takes its limit last."""
    parts = [(text, [*values, size]) for text, values in walks(_after("r.created_at, r.id", start, None))]
    return _window(parts, size, condition, [])


def by_equality(
    each: Sequence[Rows], start: Position | None, size: int, condition: Condition | None, arms: Sequence[Arm]
) -> Sql:
    """Select the next runs that have one of these values, newest first."""
    after, more = _after("a.created_at, a.run_id", start, None)
    parts = []
    for rows in each:
        own, values = rows.condition("a")
        text = f"SELECT a.run_id, a.created_at FROM runs_attribute AS a WHERE {own} AND {after} "
        parts.append((text + _NEWEST.format("a.run_id"), [*values, *more, size]))
    return _window(parts, size, condition, arms)


_NEWEST = "ORDER BY created_at DESC, {} DESC LIMIT %s"


def _window(parts: Sequence[Sql], size: int, condition: Condition | None, arms: Sequence[Arm]) -> Sql:
    inner = " UNION ".join(f"({text})" for text, _ in parts)  # UNION: each run once, whichever of its values matched
    judged, more = _judged(condition, arms)
    return (
        f"WITH w AS MATERIALIZED (SELECT run_id, created_at FROM ({inner}) AS each ORDER BY created_at DESC, "
        f"run_id DESC LIMIT %s) SELECT w.run_id, w.created_at, NULL, {judged} FROM w "
        "ORDER BY w.created_at DESC, w.run_id DESC"
    ), [*(value for _, values in parts for value in values), size, *more]


def by_value(
    by: AttributeOrder,
    bounds: Sequence[Rows],
    start: Position | None,
    size: int,
    condition: Condition | None,
    arms: Sequence[Arm],
    seen: Sql = _TRUE,
) -> Sql:
    """Select the next visible runs within the bounds, in the order of an attribute's values."""
    own, values = joined([*(rows.condition("s") for rows in (by.rows, *bounds)), seen], "AND")
    after, more = _after(f"s.{by.column}, s.created_at, s.run_id", start, by)
    judged, judging = _judged(condition, arms)
    return (
        f"WITH w AS MATERIALIZED (SELECT s.run_id, s.created_at, s.{by.column} FROM runs_attribute AS s "
        f"WHERE {own} AND {after} ORDER BY {_order(by, 's', 's.created_at, s.run_id')} LIMIT %s) "
        f"SELECT w.run_id, w.created_at, w.{by.column}::text, {judged} FROM w "
        f"ORDER BY {_order(by, 'w', 'w.created_at, w.run_id')}"
    ), [*values, *more, size, *judging]


def _judged(condition: Condition | None, arms: Sequence[Arm]) -> Sql:
    judged = [fits(condition, "w.run_id")]
    if arms:
        own, values = _of_run(arms, "r")
        look = f"SELECT true FROM runs_run AS r WHERE r.id = w.run_id AND ({own}) LIMIT 1"
        judged.append((f"coalesce(({look}), false)", values))
    return joined(judged, "AND")


def _order(by: AttributeOrder, table: str, then: str) -> str:
    direction = "DESC" if by.is_descending else "ASC"
    return ", ".join(f"{column} {direction}" for column in (f"{table}.{by.column}", *then.split(", ")))


def _after(columns: str, start: Position | None, by: AttributeOrder | None) -> Sql:
    """Return the condition that a row comes after a position; newest first without an attribute."""
    if start is None:
        return _TRUE
    if by is None:
        return f"({columns}) < (%s, %s)", [start.at, start.id]
    cast = "numeric" if by.attribute.is_number else "text"
    return f"({columns}) {'<' if by.is_descending else '>'} (%s::{cast}, %s, %s)", [start.value, start.at, start.id]


# --- running ----------------------------------------------------------------------------------------------------------


def fetch(statement: Sql) -> list[Any]:
    """Run a statement and return its rows."""
    with connection.cursor() as cursor:
        cursor.execute(*statement)
        return cursor.fetchall()
