"""Rebuilds the rows of attributes that were set while this app was not installed."""

from __future__ import annotations

from typing import Any

from django.db import connections

# If the trigger is missing, the database was used without this app, or it is new. A new database has no events.
_WAS_LEFT_OUT = """
    SELECT to_regclass('runs_attribute') IS NOT NULL
        AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgname = 'runs_attributes_set')"""
_FORGET = """
    DELETE FROM runs_attribute a USING ledger_event e WHERE e.kind = 'AttributesSet' AND e.run_id = a.run_id"""
# This does the same as runs_set_attributes. If several events name an attribute, the last one counts.
_INDEX = """
    INSERT INTO runs_attribute (run_id, name, n, kind, word, number, created_at)
    SELECT r.id, v.name, row_number() OVER (PARTITION BY r.id, v.name ORDER BY v.place) - 1, v.kind,
           CASE WHEN v.kind NOT IN ('number', 'money') THEN v.value END,
           CASE WHEN v.kind IN ('number', 'money') THEN v.value::numeric END, r.created_at
    FROM (
        SELECT DISTINCT ON (e.run_id, named.name) e.run_id, named.name, t.told
        FROM ledger_event e, LATERAL (SELECT convert_from(e.clear, 'UTF8')::jsonb) AS t (told),
             jsonb_array_elements_text(t.told -> 'named') AS named (name)
        WHERE e.kind = 'AttributesSet' ORDER BY e.run_id, named.name, e.seq DESC
    ) AS last JOIN runs_run r ON r.id = last.run_id, ROWS FROM (
        jsonb_array_elements_text(told -> 'names'), jsonb_array_elements_text(told -> 'kinds'),
        jsonb_array_elements_text(told -> 'values')
    ) WITH ORDINALITY AS v (name, kind, value, place) WHERE v.name = last.name"""


def reindex(*, using: str, **_: Any) -> None:
    """Rebuild the rows, after migrations but before the trigger is installed again."""
    with connections[using].cursor() as cursor:
        cursor.execute(_WAS_LEFT_OUT)
        if cursor.fetchone()[0]:
            cursor.execute(f"{_FORGET}; {_INDEX}")
