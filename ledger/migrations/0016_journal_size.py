"""How large a run's journal is: see ledger/sql/0016_journal_size.sql.

Of journals that exist it stays unknown: to add all of them up could take an upgrade hours."""

from django.db import migrations, models

from ledger.sqlfiles import as_before, sql_file

SQL = sql_file(__file__, "0016_journal_size.sql")
UNDO = as_before(__file__, "0004_codes.sql", "ledger_append") + as_before(__file__, "0012_budgets.sql", "ledger_store")
HELP = "Of its events as they are stored; null: it is from before they were counted."


class Migration(migrations.Migration):
    dependencies = [("ledger", "0012_budgets")]
    operations = [
        migrations.AddField("head", "bytes", models.BigIntegerField(null=True, help_text=HELP)),
        migrations.AlterField("head", "bytes", models.BigIntegerField(null=True, db_default=0, help_text=HELP)),
        migrations.RunSQL(SQL, UNDO),
    ]
