"""Runs that are not to be begun yet: keys of the caller's business, times, and the claim that respects both, in
runs/sql/0024_planned.sql."""

from django.db import migrations, models

from ledger.sqlfiles import as_before, sql_file

SQL = sql_file(__file__, "0024_planned.sql")
UNDO = as_before(__file__, "0007_claims.sql", "runs_claim")
KEYED = models.Q(("business_key", ""), _negated=True)


class Migration(migrations.Migration):
    dependencies = [("runs", "0023_messages")]
    operations = [
        migrations.AddField(
            "run",
            "business_key",
            models.TextField(
                blank=True, db_default="", default="",
                help_text="What of the caller's business it is for.",
            ),
        ),
        migrations.AddField(
            "run",
            "is_queued",
            models.BooleanField(
                db_default=False, default=False,
                help_text="Not to be begun before others of its key have ended.",
            ),
        ),
        migrations.AddField(
            "run",
            "is_passed_on",
            models.BooleanField(
                db_default=False, default=False,
                help_text="It has ended, and whoever was queued behind it has been let in.",
            ),
        ),
        migrations.AddField("run", "start_at", models.DateTimeField(help_text="Not to be begun before.", null=True)),
        migrations.AddField(
            "run",
            "start_before",
            models.DateTimeField(help_text="Not begun by then, it ends as cancelled.", null=True),
        ),
        migrations.AddIndex(
            "run",
            models.Index(
                condition=models.Q(KEYED, ("ended_at__isnull", True)),
                fields=["agent", "business_key", "created_at", "id"], name="runs_run_of_key",
            ),
        ),
        migrations.AddIndex(
            "run",
            models.Index(
                condition=models.Q(KEYED, ("ended_at__isnull", False), ("is_passed_on", False)),
                fields=["ended_at"], name="runs_run_to_pass_on",
            ),
        ),
        migrations.AddIndex(
            "run",
            models.Index(
                condition=models.Q(
                    ("ended_at__isnull", True), ("start_before__isnull", False), ("started_at__isnull", True)
                ),
                fields=["start_before"], name="runs_run_start_before",
            ),
        ),
        migrations.AddConstraint(
            "run",
            models.UniqueConstraint(
                condition=models.Q(KEYED, ("ended_at__isnull", True), ("is_queued", False)),
                fields=("agent", "business_key"), name="runs_run_one_of_key",
            ),
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
