"""Passkeys are on record by name and key: see durableagents/sql/0150_passkeys.sql."""

from django.db import migrations

from ledger.sqlfiles import as_before, sql_file

SQL = sql_file(__file__, "0150_passkeys.sql")
BEFORE = as_before(__file__, "0014_factors.sql", "accounts_on_factor")
UNDO = f"""
DROP INDEX durableagents_passkey_once;
{BEFORE}
DROP FUNCTION accounts_passkey(text, jsonb);
"""


class Migration(migrations.Migration):
    dependencies = [("durableagents", "0015_read_payloads")]
    operations = [migrations.RunSQL(SQL, UNDO)]
