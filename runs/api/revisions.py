"""Revisions of runs: markers that change with each change of state, completed node or resolved wait."""

from __future__ import annotations

from datetime import datetime

from ledger.chain import microseconds

# Internal header: the view has nothing newer than this revision, and the client would wait for it.
WAITS_FOR = "Durable-Waits-For"


def revision_of(updated_at: datetime) -> str:
    return f"{microseconds(updated_at):x}"
