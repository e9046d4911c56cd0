"""The retries of a run: questions stood still until then. Built while the others go on writing."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("ledger", "0030_reconciled")]
    operations = [
        AddIndexConcurrently(
            model_name="event",
            index=models.Index(condition=models.Q(("kind", "RunRetried")), fields=["run_id"], name="ledger_event_retried"),
        ),
    ]
