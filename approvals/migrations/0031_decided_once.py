"""One decision closes a question; votes and abstentions stand beside it. The new constraint is built beside the old one,
while others write, and takes its name."""

from django.db import migrations, models

ONCE = models.UniqueConstraint(condition=models.Q(("closes", True)), fields=("approval",), name="approvals_decided_once")
BUILD = "CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS approvals_closed_once ON approvals_decision (approval_id) WHERE closes"


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("approvals", "0030_seats")]
    operations = [
        # What an interrupted build left is no index that keeps anything.
        migrations.RunSQL("DROP INDEX CONCURRENTLY IF EXISTS approvals_closed_once", migrations.RunSQL.noop),
        migrations.RunSQL(BUILD, migrations.RunSQL.noop),
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    [
                        "ALTER TABLE approvals_decision DROP CONSTRAINT IF EXISTS approvals_decided_once",
                        "ALTER INDEX approvals_closed_once RENAME TO approvals_decided_once",
                    ],
                    [
                        "DROP INDEX IF EXISTS approvals_decided_once",
                        "ALTER TABLE approvals_decision ADD CONSTRAINT approvals_decided_once UNIQUE (approval_id)",
                    ],
                )
            ],
            state_operations=[
                migrations.RemoveConstraint(model_name="decision", name="approvals_decided_once"),
                migrations.AddConstraint(model_name="decision", constraint=ONCE),
            ],
        ),
    ]
