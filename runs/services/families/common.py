"""As whom families act on one another, and on how many at once."""

from __future__ import annotations

from typing import Final

from ledger.actors import Actor

FAMILY: Final = Actor(kind="system", name="family")
BATCH: Final = 200
