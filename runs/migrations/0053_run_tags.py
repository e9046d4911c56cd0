"""By which tags a run is seen: see runs/sql/0053_run_tags.sql. The runs from before get theirs by the next migration."""

from django.db import migrations, models

from ledger.sqlfiles import sql_file

SQL = sql_file(__file__, "0053_run_tags.sql")
UNDO = """
DROP TRIGGER runs_hand_tags_on ON runs_run;
DROP TRIGGER runs_keep_tags ON runs_run;
DROP FUNCTION runs_hand_tags_on();
DROP FUNCTION runs_keep_tags();
DROP FUNCTION runs_tags_of(jsonb);
"""


class Migration(migrations.Migration):
    dependencies = [("runs", "0052_moved")]
    operations = [
        migrations.CreateModel(
            name="RunTag",
            fields=[
                ("pk", models.CompositePrimaryKey("run_id", "tag", blank=True, editable=False, primary_key=True, serialize=False)),
                ("run_id", models.UUIDField()),
                ("tag", models.TextField(db_collation="C")),
                ("created_at", models.DateTimeField(help_text="The run's.")),
            ],
        ),
        migrations.AddIndex(
            model_name="runtag",
            index=models.Index(fields=["tag", "-created_at", "-run_id"], name="runs_runtag_by_time"),
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
