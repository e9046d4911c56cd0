"""What runs took back, and from which version to which they were moved, found without reading their journals. Built
while the others go on writing."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("ledger", "0018_to_undo")]

    operations = [
        AddIndexConcurrently(
            model_name="event",
            index=models.Index(
                fields=["run_id"],
                condition=models.Q(
                    ("kind__in", ["UndoAsked", "UndoBegun", "EffectUndone", "EffectLeft", "RunMigrated"])
                ),
                name="ledger_event_turned",
            ),
        ),
    ]
