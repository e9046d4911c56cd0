"""Starts in few statements: see runs/sql/0014_starts.sql."""

from django.db import migrations

from ledger.sqlfiles import sql_file

SQL = sql_file(__file__, "0014_starts.sql")
UNDO = """
DROP FUNCTION runs_start(uuid, text, text, text, jsonb, text, text, bigint, text, text[], ledger_line[], float8);
DROP FUNCTION runs_call(text, uuid, float8);
DROP FUNCTION runs_answer_to(bigint, text, text);
DROP FUNCTION runs_drivable(float8);
DROP TYPE runs_started;
DROP TYPE runs_kept_answer;
"""


class Migration(migrations.Migration):
    dependencies = [("runs", "0013_search_backfill"), ("ledger", "0010_registers")]
    operations = [migrations.RunSQL(SQL, UNDO)]
