"""How long a run stood still that was moved: see runs/sql/0121_stood_in_its_version.sql."""

from django.db import migrations

from ledger.sqlfiles import as_before, sql_file

SQL = sql_file(__file__, "0121_stood_in_its_version.sql")
UNDO = as_before(__file__, "0072_standing_still.sql", "runs_stood_still") + (
    "DROP FUNCTION runs_stood_during(uuid, timestamptz, timestamptz);\nDROP FUNCTION runs_was_of(uuid);\n"
)


class Migration(migrations.Migration):
    dependencies = [("runs", "0120_requeues")]
    operations = [migrations.RunSQL(SQL, UNDO)]
