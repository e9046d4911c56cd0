"""The step functions anew: what came late stops a further attempt, and of two outcomes the first stands. See runs/sql/0016_steps.sql.

And a help text that says what the column is for."""

from django.db import migrations, models

from ledger.sqlfiles import sql_file

SQL = sql_file(__file__, "0016_steps.sql")
UNDO = "\n".join(
    (
        sql_file(__file__, "0015_steps.sql"),
        "DROP FUNCTION runs_is_belied(uuid, text, int);",
        "DROP FUNCTION runs_has_outcome(uuid, text, int);",
    )
)


class Migration(migrations.Migration):
    dependencies = [("runs", "0015_steps")]
    operations = [
        migrations.RunSQL(SQL, UNDO),
        migrations.AlterField(
            model_name="run",
            name="is_woken",
            field=models.BooleanField(
                default=False,
                help_text="Drive it once it is resumed: something came, or its worker paused it in the middle.",
            ),
        ),
    ]
