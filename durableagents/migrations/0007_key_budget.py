"""The most that an API key may give to a run; its record tells it (durableagents/sql/0007_key_budget.sql)."""

from django.db import migrations, models

from ledger.sqlfiles import as_before, sql_file

SQL = sql_file(__file__, "0007_key_budget.sql")
UNDO = as_before(__file__, "0002_accounts.sql", "accounts_on_key")


class Migration(migrations.Migration):
    dependencies = [("durableagents", "0006_masterkey")]

    operations = [
        migrations.AddField(
            model_name="apikey",
            name="budget",
            field=models.JSONField(
                blank=True,
                help_text='The most that it may give to a run: {"usd": "5.00", "steps": 200}. Empty: as much as it likes.',
                null=True,
            ),
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
