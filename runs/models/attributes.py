"""What runs are found by: rows that a trigger makes of the journal's `AttributesSet`, in its transaction."""

from __future__ import annotations

from django.db import models


class Attribute(models.Model):
    """One value of one attribute of one run. A number is compared as one, any other kind by the bytes of its text.

    The run's time stands in each row, for an equality's rows in the order of the lists.
    """

    pk = models.CompositePrimaryKey("run_id", "name", "n")
    run_id = models.UUIDField()
    name = models.TextField(db_collation="C")
    n = models.SmallIntegerField(help_text="Its place among the values of a list.")
    kind = models.TextField(db_collation="C")
    word = models.TextField(null=True, db_collation="C")
    number = models.DecimalField(null=True, max_digits=40, decimal_places=9)
    created_at = models.DateTimeField(help_text="The run's.")

    class Meta:
        indexes = [
            models.Index(
                fields=["name", "kind", "word", "created_at", "run_id"],
                condition=models.Q(word__isnull=False),
                name="runs_attribute_by_word",
            ),
            models.Index(
                fields=["name", "kind", "number", "created_at", "run_id"],
                condition=models.Q(number__isnull=False),
                name="runs_attribute_by_number",
            ),
        ]
