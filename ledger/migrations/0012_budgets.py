"""What a run may use, and how many of its model requests have no price: see runs/sql/0017_budgets.sql.

Money was not counted before, so nobody knows what the model requests of runs that exist have cost."""

from django.db import migrations, models

from ledger.sqlfiles import as_before, sql_file

SQL = sql_file(__file__, "0012_budgets.sql")
UNDO = as_before(__file__, "append.sql", "ledger_store")
COUNT = "UPDATE ledger_head SET unpriced_calls = model_calls WHERE model_calls > 0"


def _cap(name: str, field: models.Field) -> migrations.AddField:
    return migrations.AddField(model_name="head", name=f"cap_{name}", field=field)


class Migration(migrations.Migration):
    dependencies = [("ledger", "0011_code_once")]
    operations = [
        migrations.AddField(
            model_name="head",
            name="unpriced_calls",
            field=models.IntegerField(
                default=0,
                db_default=0,
                help_text="Model requests of whose cost nobody knows anything: the model has no price.",
            ),
        ),
        _cap("steps", models.IntegerField(null=True)),
        _cap("tokens_in", models.BigIntegerField(null=True)),
        _cap("tokens_out", models.BigIntegerField(null=True)),
        _cap("usd_micro", models.BigIntegerField(null=True)),
        _cap("tool_calls", models.IntegerField(null=True)),
        _cap("model_calls", models.IntegerField(null=True)),
        migrations.RunSQL(COUNT, migrations.RunSQL.noop),
        migrations.RunSQL(SQL, UNDO),
    ]
