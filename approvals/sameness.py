"""Columns by which SQL finds rows whose plans are encrypted.

Keyed digests find plans for the same call, and reveal nothing about it without the installation's key; the amount is
not encrypted.
"""

from __future__ import annotations

from ledger.codes import mac
from ledger.keys import word_key
from runs.engine.canonical import canonical, parsed
from runs.engine.gating.fields import sameness_of


def keyed(digest: str) -> str:
    """Return the keyed form of a digest of `fields.sameness`."""
    return "hmac-sha256:" + mac(word_key(), b"same\x00" + digest.encode()).hex()


def same_of(stored: bytes) -> str | None:
    """Return the digest of the parts that a standing approval for this plan must match; None if none is possible."""
    digest = sameness_of(stored)
    return None if digest is None else keyed(digest)


def amount_of(stored: bytes) -> str | None:
    """Return the amount of a plan unencrypted, so that SQL can tell who may approve it; None if it has none."""
    try:
        plan = parsed(stored)
        if not isinstance(plan, dict) or "amount" not in plan:
            return None
        return canonical(plan["amount"]).decode()
    except (ValueError, RecursionError):
        return None


def call_of(stored: bytes) -> str | None:
    """Return the digest of all arguments of a plan; None if it has none."""
    try:
        plan = parsed(stored)
        arguments = plan.get("arguments") if isinstance(plan, dict) else None
        text = canonical(arguments) if arguments else None
    except (ValueError, RecursionError):
        return None
    return None if text is None else "hmac-sha256:" + mac(word_key(), b"call\x00" + text).hex()
