"""What one account started, by its state: lists of whoever sees only that. Built while the others go on writing."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("runs", "0054_tags_of_before")]
    operations = [
        AddIndexConcurrently(
            model_name="run",
            index=models.Index(condition=models.Q(("creator__isnull", False)), fields=["creator", "state", "-created_at", "-id"], name="runs_run_by_creator"),
        ),
    ]
