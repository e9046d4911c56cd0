"""Deadlines under halts: see runs/sql/0072_standing_still.sql."""

from django.db import migrations

from ledger.sqlfiles import as_before, sql_file

SQL = sql_file(__file__, "0072_standing_still.sql")
UNDO = as_before(__file__, "0007_claims.sql", "runs_fire_due") + """
DROP FUNCTION runs_pull_back(int);
DROP FUNCTION runs_put_off(uuid, uuid, timestamptz, timestamptz);
DROP FUNCTION runs_count_still(uuid, uuid, timestamptz);
DROP FUNCTION runs_stood_still(uuid, timestamptz, timestamptz);
"""


class Migration(migrations.Migration):
    dependencies = [("runs", "0071_claims_under_halts")]
    operations = [migrations.RunSQL(SQL, UNDO)]
