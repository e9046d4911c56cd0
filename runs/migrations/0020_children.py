"""Runs that are steps of others: see runs/sql/0020_children.sql."""

from django.db import migrations, models

from ledger.sqlfiles import sql_file

SQL = sql_file(__file__, "0020_children.sql")
SIGNATURE = "uuid, text, int, int, uuid, text, text, text, jsonb, text, text, text[], ledger_line[], jsonb, bigint"
UNDO = f"DROP FUNCTION runs_start_child({SIGNATURE});"


class Migration(migrations.Migration):
    dependencies = [("runs", "0019_budget_waits")]
    operations = [
        migrations.AddField(
            model_name="run",
            name="parent",
            field=models.UUIDField(help_text="The run that started it as a step.", null=True),
        ),
        migrations.AddField(
            model_name="run", name="parent_slot", field=models.TextField(blank=True, db_default="", default="")
        ),
        migrations.AddField(
            model_name="run", name="parent_attempt", field=models.SmallIntegerField(db_default=0, default=0)
        ),
        migrations.AddField(
            model_name="run",
            name="depth",
            field=models.SmallIntegerField(db_default=0, default=0, help_text="How many runs are above it."),
        ),
        migrations.AddField(
            model_name="run",
            name="is_told",
            field=models.BooleanField(db_default=False, default=False, help_text="Its parent has heard of its end."),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("parent__isnull", False)), fields=["parent", "-created_at"], name="runs_run_children"
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("ended_at__isnull", False), ("is_told", False), ("parent__isnull", False)),
                fields=["ended_at"],
                name="runs_run_untold",
            ),
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
