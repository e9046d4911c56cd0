"""Codes at events: see ledger/sql/0004_codes.sql and docs/decisions/0012."""

from django.db import migrations

from ledger.sqlfiles import as_before, sql_file

SQL = sql_file(__file__, "0004_codes.sql")
UNDO = "DROP FUNCTION ledger_demand_codes(text[]);\n" + as_before(__file__, "append.sql", "ledger_append")
# A database that has events is being upgraded: processes of the version before may go on writing for a while.
OPEN = """
INSERT INTO ledger_uncoded (run_id, seq)
SELECT '00000000-0000-0000-0000-000000000000', extract(epoch FROM clock_timestamp())::bigint WHERE EXISTS (SELECT 1 FROM ledger_event)
"""


class Migration(migrations.Migration):
    dependencies = [("ledger", "0003_code_columns")]
    operations = [migrations.RunSQL(SQL, UNDO), migrations.RunSQL(OPEN, "DELETE FROM ledger_uncoded")]
