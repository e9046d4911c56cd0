"""By which tags a run is seen: rows that a trigger makes when the run begins."""

from __future__ import annotations

from django.db import models


class RunTag(models.Model):
    """One tag of one run: its own, or one of the run that started it or goes on as it. A tag with a value stands as its
    name and as `name:value`.

    The run's time stands in each row, for a tag's rows in the order of the lists.
    """

    pk = models.CompositePrimaryKey("run_id", "tag")
    run_id = models.UUIDField()
    tag = models.TextField(db_collation="C")
    created_at = models.DateTimeField(help_text="The run's.")

    class Meta:
        indexes = [models.Index(fields=["tag", "-created_at", "-run_id"], name="runs_runtag_by_time")]
