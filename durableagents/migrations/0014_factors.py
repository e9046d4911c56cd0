"""Second factors and ways to sign in are on record: see durableagents/sql/0014_factors.sql."""

from django.db import migrations

from ledger.sqlfiles import sql_file

SQL = sql_file(__file__, "0014_factors.sql")
UNDO = """
DROP TRIGGER accounts_are_recorded ON socialaccount_socialaccount;
DROP TRIGGER accounts_are_recorded ON mfa_authenticator;
DROP FUNCTION accounts_on_link();
DROP FUNCTION accounts_on_factor();
DROP FUNCTION accounts_codes_left(jsonb);
DROP FUNCTION accounts_reason();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("durableagents", "0012_sessions_by_digest"),
        ("mfa", "0003_authenticator_type_uniq"),
        ("socialaccount", "0006_alter_socialaccount_extra_data"),
    ]
    operations = [migrations.RunSQL(SQL, UNDO)]
