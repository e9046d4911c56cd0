"""A cap that is exceeded by now holds up only what counts against it: see runs/sql/0021_afford.sql."""

from django.db import migrations

from ledger.sqlfiles import as_before, sql_file

SQL = sql_file(__file__, "0021_afford.sql")
UNDO = as_before(__file__, "0020_children.sql", "runs_afford")


class Migration(migrations.Migration):
    dependencies = [("runs", "0020_children")]
    operations = [migrations.RunSQL(SQL, UNDO)]
