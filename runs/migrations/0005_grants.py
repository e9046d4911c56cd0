"""A grant is used once for each attempt at its call: see runs/sql/0005_grants.sql."""

from django.db import migrations, models

from ledger.sqlfiles import as_before, sql_file

SQL = sql_file(__file__, "0005_grants.sql")
UNDO = (
    as_before(__file__, "steps.sql", "runs_intend", "runs_record")
    + "DROP FUNCTION runs_use_grant(uuid, text, text, text, int); DROP FUNCTION runs_is_undone(uuid, text, int);"
)


class Migration(migrations.Migration):
    dependencies = [("runs", "0004_functions_anew")]
    operations = [
        migrations.AddField(
            "wait", "consumed_by", models.TextField(null=True, help_text="The slot of the call that used the grant.")
        ),
        migrations.AddField(
            "wait", "consumed_attempt", models.SmallIntegerField(null=True, help_text="The attempt that used it last.")
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
