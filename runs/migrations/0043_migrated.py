"""Runs that move to another version of their agent: see runs/sql/0043_migrated.sql."""

from django.db import migrations

from ledger.sqlfiles import as_before, sql_file

SQL = sql_file(__file__, "0043_migrated.sql")
UNDO = as_before(__file__, "0039_drains.sql", "runs_claim") + """
DROP TRIGGER IF EXISTS runs_version_moved ON ledger_event;
DROP FUNCTION IF EXISTS runs_move_version();
"""


class Migration(migrations.Migration):
    dependencies = [("runs", "0041_probes")]
    operations = [migrations.RunSQL(SQL, UNDO)]
