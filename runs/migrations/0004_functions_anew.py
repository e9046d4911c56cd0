"""Today's step functions for databases that were made before they were final: see runs/sql/0004_functions_anew.sql.

And no index for forgetting Idempotency-Keys.

Taken back, they stay: what stands in the older file now is the same.
"""

from django.db import migrations

from ledger.sqlfiles import as_before, sql_file

SQL = sql_file(__file__, "0004_functions_anew.sql")
UNDO = as_before(__file__, "steps.sql", "runs_is_answered", "runs_intend", "runs_record")


class Migration(migrations.Migration):
    dependencies = [("runs", "0003_signals")]
    operations = [
        migrations.RunSQL(SQL, UNDO),
        # Keys are kept for ever: nothing looks for old ones any more.
        migrations.RemoveIndex(model_name="idempotencyrecord", name="runs_idempotency_by_time"),
    ]
