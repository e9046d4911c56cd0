"""Runs are claimed by shares and caps: see runs/sql/0028_shares.sql."""

import django.db.models.expressions
from django.db import migrations, models

from ledger.sqlfiles import as_before, sql_file

SQL = sql_file(__file__, "0028_shares.sql")
UNDO = as_before(__file__, "0024_planned.sql", "runs_claim")


class Migration(migrations.Migration):
    dependencies = [("runs", "0027_limits")]
    operations = [
        migrations.RemoveIndex(
            model_name="run",
            name="runs_run_wanted",
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                models.F("graph_id"),
                models.F("is_solo"),
                models.F("lane"),
                django.db.models.expressions.CombinedExpression(models.F("priority"), "*", models.Value(-1)),
                models.F("ready_at"),
                condition=models.Q(("ready_at__isnull", False)),
                name="runs_run_wanted",
            ),
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
