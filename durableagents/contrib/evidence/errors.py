"""Errors of exports."""

from __future__ import annotations

from ledger.errors import DurableAgentsError


class CannotSign(DurableAgentsError):
    """The bundle can't be sealed and signed. Nothing was exported."""

    status, code, title = 503, "seal-key-unavailable", "The bundle can't be signed"


class CannotWrite(DurableAgentsError):
    """There is no disk space for the bundle, or it is too large. Nothing was exported."""

    status, code, title = 507, "bundle-not-written", "The bundle can't be written"
