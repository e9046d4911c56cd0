"""What people said of calls of one tool, the newest first. Built while the others go on writing."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("ledger", "0026_four_eyes")]
    operations = [
        AddIndexConcurrently(
            model_name="ledgerentry",
            index=models.Index(condition=models.Q(("fact", "reconciled")), fields=["tool", "-id"], name="ledger_entry_reconciled"),
        ),
    ]
