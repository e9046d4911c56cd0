"""Claims and intents under halts: see runs/sql/0071_claims_under_halts.sql."""

from django.db import migrations

from ledger.sqlfiles import as_before, sql_file

SQL = sql_file(__file__, "0071_claims_under_halts.sql")
UNDO = as_before(__file__, "0043_migrated.sql", "runs_claim") + as_before(__file__, "0060_policies.sql", "runs_intend")


class Migration(migrations.Migration):
    dependencies = [("runs", "0070_halts")]
    operations = [migrations.RunSQL(SQL, UNDO)]
