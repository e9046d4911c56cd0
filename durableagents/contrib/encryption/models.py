"""The keys of runs."""

from __future__ import annotations

from django.db import models


class RunKey(models.Model):
    """The key of a run's payloads, encrypted under a master key, which the database never has."""

    run_id = models.UUIDField(primary_key=True)
    master = models.CharField(max_length=16, db_index=True)  # id of the master key
    wrapped = models.BinaryField(max_length=60)  # nonce ‖ encrypted key ‖ tag
    made_at = models.DateTimeField()

    class Meta:
        verbose_name = "key of a run"
        verbose_name_plural = "keys of runs"

    def __str__(self) -> str:
        return f"key of run {self.run_id}"
