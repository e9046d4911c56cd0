"""The step functions in one file, as they were: see runs/sql/0015_steps.sql. And a help text that names the module of today."""

from django.db import migrations, models

from ledger.sqlfiles import as_before, sql_file

SQL = sql_file(__file__, "0015_steps.sql")
UNDO = "\n".join(
    (
        as_before(__file__, "steps.sql", "runs_reply_of", "runs_leave"),
        as_before(__file__, "0004_functions_anew.sql", "runs_is_answered"),
        as_before(__file__, "0005_grants.sql", "runs_is_undone", "runs_use_grant", "runs_intend", "runs_record"),
    )
)


class Migration(migrations.Migration):
    dependencies = [("runs", "0014_starts")]
    operations = [
        migrations.RunSQL(SQL, UNDO),
        migrations.AlterField(
            model_name="run",
            name="about",
            field=models.TextField(
                blank=True,
                db_default="",
                default="",
                help_text="Whom or what its input is about, for lists: see runs/search.py.",
            ),
        ),
    ]
