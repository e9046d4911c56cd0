"""Which runs have anything to undo, found without reading their journals. Built while the others go on writing."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("ledger", "0017_compensated")]

    operations = [
        AddIndexConcurrently(
            model_name="event",
            index=models.Index(
                fields=["run_id"], condition=models.Q(("kind", "UndoRegistered")), name="ledger_event_to_undo"
            ),
        ),
    ]
