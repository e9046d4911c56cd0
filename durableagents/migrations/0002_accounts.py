"""What is done to accounts is a record: see durableagents/sql/0002_accounts.sql."""

from django.conf import settings
from django.db import migrations

from ledger.sqlfiles import sql_file

SQL = sql_file(__file__, "0002_accounts.sql")
UNDO = """
DROP TRIGGER accounts_are_recorded ON durableagents_apikey;
DROP TRIGGER accounts_are_recorded ON auth_group_permissions;
DROP TRIGGER accounts_are_recorded ON auth_user_user_permissions;
DROP TRIGGER accounts_are_recorded ON auth_group;
DROP TRIGGER accounts_are_recorded ON auth_user_groups;
DROP TRIGGER accounts_are_recorded ON auth_user;
DROP FUNCTION accounts_on_key();
DROP FUNCTION accounts_on_permission();
DROP FUNCTION accounts_on_role();
DROP FUNCTION accounts_on_membership();
DROP FUNCTION accounts_on_user();
DROP FUNCTION accounts_difference(jsonb, jsonb, text[]);
DROP FUNCTION accounts_name(bigint);
DROP FUNCTION accounts_record(text, text, bigint, jsonb, jsonb);
"""


class Migration(migrations.Migration):
    dependencies = [
        ("durableagents", "0001_initial"),
        ("ledger", "0005_acts"),
        ("auth", "0012_alter_user_first_name_max_length"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]
    operations = [migrations.RunSQL(SQL, UNDO)]
