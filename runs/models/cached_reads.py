"""Model of cached reads."""

from __future__ import annotations

from typing import Any

from django.db import models

from ledger.chain import microseconds


class CachedRead(models.Model):
    """The cached answer of a read. `code` authenticates the row, so that it can't be forged."""

    key = models.BinaryField(primary_key=True, max_length=32, help_text="A keyed digest of tool, arguments and scope.")
    tool = models.TextField()
    run_id = models.UUIDField(help_text="The run whose call read it, so that the row can be erased with that run.")
    slot = models.TextField()
    at = models.DateTimeField(help_text="Time when the call began.")
    expires_at = models.DateTimeField()
    size = models.IntegerField()
    sealed = models.BinaryField()
    code = models.BinaryField()

    class Meta:
        indexes = [
            models.Index(fields=["expires_at"], name="runs_cachedread_by_end"),
            models.Index(fields=["run_id"], name="runs_cachedread_by_run"),
        ]

    def coded(self) -> dict[str, Any]:
        """Return all values that `code` covers."""
        return coded(
            self.key,
            self.tool,
            str(self.run_id),
            self.slot,
            microseconds(self.at),
            microseconds(self.expires_at),
            self.sealed,
        )


def coded(
    key: bytes | memoryview, tool: str, run_id: str, slot: str, at: int, expires_at: int, sealed: bytes | memoryview
) -> dict[str, Any]:
    """Return the values that `code` covers, for a row with these fields."""
    return {
        "key": bytes(key).hex(),
        "tool": tool,
        "run": run_id,
        "slot": slot,
        "at": at,
        "expires_at": expires_at,
        "sealed": bytes(sealed).hex(),
    }
