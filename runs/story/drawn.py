"""What was drawn once of a run and can't look different: an effect as of its last event, an event, a thing said.

It lies with the run's fold, so it goes when the fold goes: when the run is folded anew because its rows were changed,
or when there is no room. What holds the time of day, who is reading or a form is never kept.
"""

from __future__ import annotations

from collections.abc import Hashable

MOST_PIECES = 600
MOST_BYTES = 2**20
MOST_DOUBTS = 5


class Drawn:
    """Pieces of HTML by what they show, the latest ones. Used by several threads: each operation is one step of the
    interpreter's."""

    def __init__(self) -> None:
        self._pieces: dict[Hashable, str] = {}
        self._doubts: dict[int, str] = {}
        self.bytes = 0

    def get(self, key: Hashable) -> str | None:
        return self._pieces.get(key)

    def keep(self, key: Hashable, html: str) -> None:
        """Keep it, and let go of all when there are too many: what is still looked at comes back with the next look."""
        if self.bytes + len(html) > MOST_BYTES or len(self._pieces) >= MOST_PIECES:
            self._pieces, self.bytes = {}, 0
        if len(html) * 4 <= MOST_BYTES:
            self._pieces[key] = html
            self.bytes += len(html)

    def doubt(self, seq: int, why: str) -> None:
        """An event that is shown, or stands behind what is, can't be believed. What was drawn of it is kept, so this is
        too."""
        if len(self._doubts) < MOST_DOUBTS:
            self._doubts[seq] = why

    @property
    def doubts(self) -> list[tuple[int, str]]:
        return sorted(self._doubts.copy().items())
