"""The model of searches for stored values that nothing refers to."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now


class Collection(models.Model):
    """One search for stored values that nothing refers to, and the values that it deleted."""

    at = models.DateTimeField(db_default=Now(), db_index=True)
    values_deleted = models.BigIntegerField()
    bytes_deleted = models.BigIntegerField()
