"""Judges migrated runs: row and journal agree, and nothing was repeated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg

from tests.system.crash.checker import Facts, Finding

# The name and version of a run's row, and its generation.
Row = tuple[str, int] | None
_ROW = "SELECT graph_id, generation FROM runs_run WHERE id = %s"


def row_of(link: psycopg.Connection[Any], run_id: str) -> Row:
    """Return a run's version and its number of migrations by its row."""
    found = link.execute(_ROW, [run_id]).fetchone()
    return None if found is None else (str(found[0]), int(str(found[1])))


def judge_moved(facts: Facts, row: Row) -> Iterator[Finding]:
    if row is None or not facts.events:
        return
    created = facts.events[0]["data"]
    version, moved = f"{created['agent']}@{created['version']}", 0
    how = "unbegun"
    for event in facts.events:
        data = event["data"]
        if event["kind"] == "VisitEntered":
            how = "replayed"
        elif event["kind"] == "RunForked" and data["node"]:
            how = "reentered"  # it begins before a node, with a state
        if event["kind"] != "RunMigrated":
            continue
        moved += 1
        if (data["of"], data["generation"]) != (version, moved):
            yield Finding("broken", facts.run_id, f"its move {moved} says {data['of']}, and it was {version}")
        if data["how"] != how:
            yield Finding("broken", facts.run_id, f"its move {moved} is {data['how']}, between versions of one code")
        version = data["to"]
    if row != (version, moved):
        yield Finding("broken", facts.run_id, f"its row says {row}, and its journal {(version, moved)}")
