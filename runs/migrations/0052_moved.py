"""Runs that were moved to another version, by which a ramp is judged as well. Built while the others go on writing."""

import django.db.models.functions.comparison
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("runs", "0049_judged")]
    operations = [
        AddIndexConcurrently(
            model_name="run",
            index=models.Index(models.F("agent"), models.OrderBy(django.db.models.functions.comparison.Coalesce("ended_at", "started_at"), descending=True), condition=models.Q(("generation__gt", 0), ("started_at__isnull", False)), name="runs_run_moved"),
        ),
    ]
