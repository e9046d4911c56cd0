"""Rows of the ledger of side effects, in the form that the journal's writers pass. Pure: no Django, no I/O."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """One fact about one side effect."""

    slot: str
    attempt: int
    fact: str
    tool: str
    replay_class: str
    key: str | None = None
    input_hash: str | None = None
    external_id: str | None = None
    digest: str | None = None
