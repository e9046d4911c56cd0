"""Models of searches for values that nothing refers to."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now


class Collection(models.Model):
    """One search for values that nothing refers to."""

    at = models.DateTimeField(db_default=Now(), db_index=True)
    values_deleted = models.BigIntegerField()
    bytes_deleted = models.BigIntegerField()
