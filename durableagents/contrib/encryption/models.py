"""Models of runs' keys and of the erasure register."""

from __future__ import annotations

from django.db import models

from ledger.models import append_only


class RunKey(models.Model):
    """The key of a run's payloads, encrypted under a master key that is never in the database."""

    run_id = models.UUIDField(primary_key=True)
    master = models.CharField(max_length=16, db_index=True)  # id of the master key
    wrapped = models.BinaryField(max_length=60)  # nonce ‖ encrypted key ‖ tag
    made_at = models.DateTimeField()

    class Meta:
        verbose_name = "key of a run"
        verbose_name_plural = "keys of runs"

    def __str__(self) -> str:
        return f"key of run {self.run_id}"


class Erasure(models.Model):
    """An entry of the erasure register: a run whose key was destroyed.

    Only `encryption_erase` writes it, from the run's last event, which is protected by the hash chain, its code and the
    seals.
    """

    n = models.BigAutoField(primary_key=True)
    run_id = models.UUIDField(unique=True)
    seq = models.BigIntegerField(help_text="The event that recorded the erasure.")
    by = models.TextField()
    role = models.TextField()
    reason = models.TextField()
    at = models.DateTimeField()
    tx = models.BigIntegerField(help_text="The only transaction in which blanked rows get new codes.")

    class Meta:
        triggers = append_only()

    def __str__(self) -> str:
        return f"erasure of run {self.run_id}"
