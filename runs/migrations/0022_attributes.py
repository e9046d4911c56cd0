"""What runs are found by, and what their nodes say for people: see runs/sql/0022_attributes.sql."""

from django.db import migrations, models

from ledger.sqlfiles import sql_file

SQL = sql_file(__file__, "0022_attributes.sql")
UNDO = """
DROP TRIGGER runs_attributes_set ON ledger_event;
DROP FUNCTION runs_set_attributes();
DROP FUNCTION runs_keep_told(uuid, bigint, uuid, jsonb, int);
"""


class Migration(migrations.Migration):
    dependencies = [("runs", "0021_active_children")]
    operations = [
        migrations.CreateModel(
            name="Attribute",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "run_id", "name", "n", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("run_id", models.UUIDField()),
                ("name", models.TextField(db_collation="C")),
                ("n", models.SmallIntegerField(help_text="Its place among the values of a list.")),
                ("kind", models.TextField(db_collation="C")),
                ("word", models.TextField(db_collation="C", null=True)),
                ("number", models.DecimalField(decimal_places=9, max_digits=40, null=True)),
                ("created_at", models.DateTimeField(help_text="The run's.")),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("word__isnull", False)),
                        fields=["name", "kind", "word", "created_at", "run_id"],
                        name="runs_attribute_by_word",
                    ),
                    models.Index(
                        condition=models.Q(("number__isnull", False)),
                        fields=["name", "kind", "number", "created_at", "run_id"],
                        name="runs_attribute_by_number",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Telling",
            fields=[
                ("run_id", models.UUIDField(primary_key=True, serialize=False)),
                ("lines", models.IntegerField(help_text="Lines that are kept.")),
                ("lost", models.BigIntegerField(help_text="Lines that were said and aren't.")),
                ("seen", models.JSONField()),
                ("done", models.FloatField(null=True)),
                ("total", models.FloatField(null=True)),
                ("note", models.TextField()),
                ("at", models.DateTimeField(null=True)),
                (
                    "since_epoch",
                    models.BigIntegerField(help_text="The claim since which progress is counted.", null=True),
                ),
                ("since_at", models.DateTimeField(null=True)),
                ("since_done", models.FloatField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="LogLine",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("run_id", models.UUIDField()),
                ("at", models.DateTimeField()),
                ("level", models.TextField()),
                ("text", models.TextField()),
            ],
            options={"indexes": [models.Index(fields=["run_id", "id"], name="runs_logline_by_run")]},
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
