"""Pieces of a run's row that stand beside `schemas.py`: how large its journal is."""

from __future__ import annotations

from pydantic import Field

from ledger.web.shapes import Shape


class JournalRow(Shape):
    """How large a run's journal is."""

    events: int
    bytes: int | None = Field(description="As they are stored; null: it began before they were counted.")
    is_large: bool = Field(description="The run has not ended, and had better be renewed before it goes on long.")
