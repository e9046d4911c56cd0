"""Starts under halts: see runs/sql/0073_starts_under_halts.sql."""

from django.db import migrations

from ledger.sqlfiles import as_before, sql_file

SQL = sql_file(__file__, "0073_starts_under_halts.sql")
UNDO = as_before(__file__, "0038_releases.sql", "runs_release")


class Migration(migrations.Migration):
    dependencies = [("runs", "0072_standing_still")]
    operations = [migrations.RunSQL(SQL, UNDO)]
