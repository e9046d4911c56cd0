"""Patterns of limits have an index: see runs/sql/0033_limit_patterns.sql."""

from django.db import migrations, models

from ledger.sqlfiles import as_before, sql_file

SQL = sql_file(__file__, "0033_limit_patterns.sql")
UNDO = as_before(__file__, "0027_limits.sql", "runs_limit_rule")


class Migration(migrations.Migration):
    dependencies = [("runs", "0032_cached_reads")]
    operations = [
        migrations.AddIndex(
            model_name="limit",
            index=models.Index(condition=models.Q(("key__endswith", "*")), fields=["key"], name="runs_limit_pattern"),
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
