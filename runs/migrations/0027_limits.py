"""What all workers share: see runs/sql/0027_limits.sql."""

import django.db.models.fields.json
from django.db import migrations, models

from ledger.sqlfiles import sql_file

SQL = sql_file(__file__, "0027_limits.sql")
UNDO = """
DROP TRIGGER runs_set_lane ON runs_run;
DROP FUNCTION runs_line_up(int);
DROP FUNCTION runs_set_lane();
DROP FUNCTION runs_lane_of(jsonb);
DROP FUNCTION runs_tell_limit(text, int, int, text, double precision, uuid, boolean);
DROP FUNCTION runs_give_back(uuid[], text);
DROP FUNCTION runs_take_permit(uuid, text[], uuid, uuid, text, double precision, double precision, int, double precision);
DROP TYPE runs_admission;
DROP FUNCTION runs_tokens(runs_limit, double precision, double precision, timestamptz);
DROP FUNCTION runs_drop_dead_permits(text);
DROP FUNCTION runs_declare_limits(jsonb, jsonb);
DROP FUNCTION runs_limit_rule(text);
"""


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0026_pools"),
    ]

    operations = [
        migrations.CreateModel(
            name="Limit",
            fields=[
                ("key", models.TextField(primary_key=True, serialize=False)),
                ("given", models.JSONField(help_text="What a person has set; null: nobody has.", null=True)),
                ("given_by", models.TextField(blank=True, db_default="", default="")),
                ("given_at", models.DateTimeField(null=True)),
                ("declared", models.JSONField(help_text="What the installation says.", null=True)),
                ("of_tool", models.JSONField(help_text="What the tool's own code says.", null=True)),
                ("tokens", models.FloatField(db_default=0.0, default=0.0)),
                ("filled_at", models.DateTimeField(null=True)),
                (
                    "held_until",
                    models.DateTimeField(help_text="The other side asked to be left alone until then.", null=True),
                ),
                (
                    "parked_until",
                    models.DateTimeField(help_text="When the last of those comes back that were sent away.", null=True),
                ),
                (
                    "breaker",
                    models.TextField(
                        choices=[("closed", "Closed"), ("open", "Open")], db_default="closed", default="closed"
                    ),
                ),
                ("is_by_hand", models.BooleanField(db_default=False, default=False)),
                ("opened_at", models.DateTimeField(null=True)),
                (
                    "rest_until",
                    models.DateTimeField(
                        help_text="From then on one try at a time finds out. Null: nobody.", null=True
                    ),
                ),
                ("openings", models.IntegerField(db_default=0, default=0)),
                ("window_at", models.DateTimeField(null=True)),
                ("ok", models.IntegerField(db_default=0, default=0)),
                ("failed", models.IntegerField(db_default=0, default=0)),
                ("ok_before", models.IntegerField(db_default=0, default=0)),
                ("failed_before", models.IntegerField(db_default=0, default=0)),
                ("last_error", models.TextField(blank=True, db_default="", default="")),
                ("last_error_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="LimitLine",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "key", "worker", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("key", models.TextField()),
                ("worker", models.UUIDField()),
                ("since", models.DateTimeField()),
                ("seen_until", models.DateTimeField()),
                ("waiting", models.IntegerField(default=1)),
            ],
        ),
        migrations.CreateModel(
            name="Permit",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "id", "key", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("id", models.UUIDField()),
                ("key", models.TextField()),
                ("worker", models.UUIDField()),
                ("run_id", models.UUIDField()),
                ("slot", models.TextField()),
                ("taken_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                ("is_probe", models.BooleanField(db_default=False, default=False)),
            ],
        ),
        migrations.AddField(
            model_name="run",
            name="lane",
            field=models.TextField(
                blank=True,
                db_collation="C",
                db_default="",
                default="",
                help_text="The tag by which it stands in line; the database fills it in.",
            ),
        ),
        migrations.AddIndex(
            model_name="wait",
            index=models.Index(
                django.db.models.fields.json.KeyTextTransform("limit", "detail"),
                models.F("deadline"),
                condition=models.Q(("detail__has_key", "limit"), ("kind", "timer"), ("resolved_at__isnull", True)),
                name="runs_wait_for_limit",
            ),
        ),
        migrations.AddIndex(
            model_name="permit",
            index=models.Index(fields=["key"], name="runs_permit_of_key"),
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
