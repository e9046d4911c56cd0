"""Cached HTML of a run's unchanging parts (effects as of their last event, events, messages), kept with its fold.
Nothing with the current time, the reader or a form is cached."""

from __future__ import annotations

from collections.abc import Hashable

MAX_PIECES = 600
MAX_BYTES = 2**20
MAX_DOUBTS = 5


class Drawn:
    """Latest pieces of HTML, by what they show. Thread-safe, because each operation is atomic in the interpreter."""

    def __init__(self) -> None:
        self._pieces: dict[Hashable, str] = {}
        self._doubts: dict[int, str] = {}
        self.bytes = 0

    def get(self, key: Hashable) -> str | None:
        return self._pieces.get(key)

    def keep(self, key: Hashable, html: str) -> None:
        """Cache a piece; when there are too many, drop all, because current ones come back with the next view."""
        if self.bytes + len(html) > MAX_BYTES or len(self._pieces) >= MAX_PIECES:
            self._pieces, self.bytes = {}, 0
        if len(html) * 4 <= MAX_BYTES:
            self._pieces[key] = html
            self.bytes += len(html)

    def doubt(self, seq: int, why: str) -> None:
        """Note an event that can't be trusted, as long as what was drawn of it is cached."""
        if len(self._doubts) < MAX_DOUBTS:
            self._doubts[seq] = why

    @property
    def doubts(self) -> list[tuple[int, str]]:
        return sorted(self._doubts.copy().items())
