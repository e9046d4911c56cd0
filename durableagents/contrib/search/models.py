"""Models of the rows in which runs are searched."""

from __future__ import annotations

from django.db import models


class SearchTerm(models.Model):
    """A search word of a run, or the keyed digest of a word of its input (see words.py).

    Terms are compared by bytes, so that all terms with a prefix form a range of the index."""

    pk = models.CompositePrimaryKey("run_id", "term")
    run_id = models.UUIDField()
    term = models.TextField(db_collation="C")

    class Meta:
        db_table = "runs_searchterm"
        indexes = [models.Index("term", models.F("run_id").desc(), name="runs_searchterm_by_term")]


class Attribute(models.Model):
    """A value of an attribute of a run.

    Numbers compare as numbers, other kinds by the bytes of their text. The run's start time is in each row, so that
    lists can be ordered by the index."""

    pk = models.CompositePrimaryKey("run_id", "name", "n")
    run_id = models.UUIDField()
    name = models.TextField(db_collation="C")
    n = models.SmallIntegerField(help_text="Position among the values of a list.")
    kind = models.TextField(db_collation="C")
    word = models.TextField(null=True, db_collation="C")
    number = models.DecimalField(null=True, max_digits=40, decimal_places=9)
    created_at = models.DateTimeField(help_text="The run's.")

    class Meta:
        db_table = "runs_attribute"
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

    @property
    def text(self) -> str:
        """Return the value in its recorded form."""
        return self.word if self.word is not None else f"{self.number:f}" if self.number is not None else ""
