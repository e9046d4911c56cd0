"""By which tags a run is seen that was started in the very moment of 0054: its parent's rows were not to be read yet, so
it got none. Said again until nothing is missing, each time in a transaction of its own: what is started meanwhile under a
run that has just got its rows is found the next time. It may be run again at any time; `ledger verify` names a run that
lacks a row."""

from typing import Any

from django.db import migrations

MISSING = """
WITH RECURSIVE of_origin(run_id, tag, created_at) AS (
    SELECT r.id, o.tag, r.created_at FROM runs_run r JOIN runs_runtag o ON o.run_id IN (r.parent, r.came_from)
    WHERE NOT EXISTS (SELECT FROM runs_runtag t WHERE t.run_id = r.id AND t.tag = o.tag)
    UNION
    SELECT r.id, o.tag, r.created_at FROM of_origin o JOIN runs_run r ON r.parent = o.run_id OR r.came_from = o.run_id
)
INSERT INTO runs_runtag (run_id, tag, created_at) SELECT run_id, tag, created_at FROM of_origin ON CONFLICT DO NOTHING
"""


def repair(apps: Any, schema_editor: Any) -> None:
    """Until a run through finds nothing."""
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(MISSING)
        while cursor.rowcount > 0:
            cursor.execute(MISSING)


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("runs", "0055_by_creator")]
    operations = [migrations.RunPython(repair, migrations.RunPython.noop, elidable=False)]
