"""By which tags the runs from before are seen: their own, and those of the runs above them. In a transaction of its own,
so that the others go on starting runs meanwhile: theirs get their rows by the trigger, and none twice."""

from django.db import migrations

OWN = """
INSERT INTO runs_runtag (run_id, tag, created_at) SELECT r.id, t, r.created_at FROM runs_run r, runs_tags_of(r.tags) t
ON CONFLICT DO NOTHING
"""
FROM_ABOVE = """
WITH RECURSIVE of_origin(run_id, tag, created_at) AS (
    SELECT run_id, tag, created_at FROM runs_runtag
    UNION
    SELECT r.id, o.tag, r.created_at FROM of_origin o JOIN runs_run r ON r.parent = o.run_id OR r.came_from = o.run_id
)
INSERT INTO runs_runtag (run_id, tag, created_at) SELECT run_id, tag, created_at FROM of_origin ON CONFLICT DO NOTHING
"""


class Migration(migrations.Migration):
    dependencies = [("runs", "0053_run_tags")]
    operations = [migrations.RunSQL([OWN, FROM_ABOVE], migrations.RunSQL.noop)]
