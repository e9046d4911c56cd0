"""What runs are found by: see runs/sql/0022_attributes.sql."""

from django.db import migrations, models

from ledger.sqlfiles import sql_file

SQL = sql_file(__file__, "0022_attributes.sql")
UNDO = """
DROP TRIGGER runs_attributes_set ON ledger_event;
DROP FUNCTION runs_set_attributes();
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
        migrations.RunSQL(SQL, UNDO),
    ]
