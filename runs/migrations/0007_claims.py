"""Claims and due waits that one damaged run can't hold up: see runs/sql/0007_claims.sql."""

from django.db import migrations

from ledger.sqlfiles import as_before, sql_file

SQL = sql_file(__file__, "0007_claims.sql")
UNDO = f"""
DROP FUNCTION runs_fire_due(bigint, text[], text[], uuid[], int);
DROP FUNCTION runs_claim(uuid, text, int, text[], int, boolean);
DROP FUNCTION runs_is_everybodys(text);
DROP TYPE runs_fired;
DROP TYPE runs_candidate;
{as_before(__file__, "steps.sql", "runs_claim")}
"""


class Migration(migrations.Migration):
    dependencies = [("runs", "0005_grants")]
    operations = [migrations.RunSQL(SQL, UNDO)]
