"""The step functions: see runs/sql/steps.sql."""

from pathlib import Path

from django.db import migrations

SQL = (Path(__file__).resolve().parent.parent / "sql" / "steps.sql").read_text()
UNDO = """
DROP FUNCTION runs_reclaim(uuid, uuid, text, int);
DROP FUNCTION runs_claim(uuid, text, int, text[], int, boolean);
DROP FUNCTION runs_take(ledger_head, text, uuid, text, int, text);
DROP FUNCTION runs_leave(uuid, bigint, uuid, text, text, uuid[], text, ledger_line[]);
DROP FUNCTION runs_record(uuid, bigint, uuid, text, ledger_line[], ledger_fact[], runs_opening, runs_usage, runs_cut);
DROP FUNCTION runs_intend(uuid, bigint, uuid, text, ledger_line[], ledger_fact[], text, text, runs_opening);
DROP FUNCTION runs_is_answered(uuid, ledger_line[]);
DROP FUNCTION runs_reply_of(ledger_head, boolean);
DROP TYPE runs_claimed;
DROP TYPE runs_cut;
DROP TYPE runs_usage;
DROP TYPE runs_opening;
DROP TYPE runs_reply;
"""


class Migration(migrations.Migration):
    dependencies = [("runs", "0001_initial"), ("ledger", "0002_sql")]
    operations = [migrations.RunSQL(SQL, UNDO)]
