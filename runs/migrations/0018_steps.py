"""The step functions with budgets: see runs/sql/0018_steps.sql."""

from django.db import migrations

from ledger.sqlfiles import as_before, sql_file

SQL = sql_file(__file__, "0018_steps.sql")
UNDO = as_before(__file__, "0016_steps.sql", "runs_intend", "runs_record", "runs_leave")


class Migration(migrations.Migration):
    dependencies = [("runs", "0017_budgets")]
    operations = [migrations.RunSQL(SQL, UNDO)]
