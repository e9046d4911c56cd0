"""The append function: see ledger/sql/append.sql."""

from pathlib import Path

from django.db import migrations

SQL = (Path(__file__).resolve().parent.parent / "sql" / "append.sql").read_text()
UNDO = """
DROP FUNCTION ledger_append_as(uuid, text, ledger_line[], ledger_fact[]);
DROP FUNCTION ledger_enter(ledger_head, text, ledger_fact[]);
DROP FUNCTION ledger_store(ledger_head);
DROP FUNCTION ledger_append(ledger_head, ledger_line[]);
DROP FUNCTION ledger_lock(uuid, bigint, uuid);
DROP TYPE ledger_fact;
DROP TYPE ledger_line;
"""


class Migration(migrations.Migration):
    dependencies = [("ledger", "0001_initial")]
    operations = [migrations.RunSQL(SQL, UNDO)]
