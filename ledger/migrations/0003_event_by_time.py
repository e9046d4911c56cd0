"""An index on the time of events. It was the seals app's before, under another name."""

from django.contrib.postgres.indexes import BrinIndex
from django.db import migrations

INDEX = BrinIndex(fields=["at"], name="ledger_event_by_time", autosummarize=True)
MAKE = """
    ALTER INDEX IF EXISTS seals_event_by_time RENAME TO ledger_event_by_time;
    CREATE INDEX IF NOT EXISTS ledger_event_by_time ON ledger_event USING brin (at) WITH (autosummarize = on)"""


class Migration(migrations.Migration):
    dependencies = [("ledger", "0002_verification_jobs")]

    operations = [
        migrations.RunSQL(
            MAKE, "DROP INDEX ledger_event_by_time", state_operations=[migrations.AddIndex("event", INDEX)]
        )
    ]
