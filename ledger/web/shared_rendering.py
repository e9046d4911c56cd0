"""Shared renderings of live list parts, kept for half a second.

A page only gets renderings that are at least as new as its own records (`since`, on the database's clock), whichever
web process answers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from time import monotonic

from django.db import connection

SECONDS = 0.5
MAX_RENDERED = 200
# A request waits at most this long for the rendering of another request, then makes its own.
PATIENCE_SECONDS = 3.0


@dataclass(slots=True)
class Rendering:
    """A rendering, finished or in progress, of everything committed before `began` (microseconds, database clock)."""

    began: int
    body: str = ""
    made_at: float | None = None
    done: threading.Event = field(default_factory=threading.Event)

    def serves(self, since: int) -> bool:
        is_fresh = self.made_at is None or monotonic() - self.made_at <= SECONDS
        return is_fresh and self.began >= since


class Renderings:
    """The newest rendering for each key. The first of several concurrent requests makes it, and the others wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: dict[Hashable, Rendering] = {}

    def get(self, key: Hashable, *, since: int, began: int, make: Callable[[], str]) -> Rendering:
        """Return a rendering that includes everything committed before `since`; make one if there is none.

        `began` is a time before `make` reads anything.
        """
        with self._lock:
            known = self._newest.get(key)
            mine = None if known is not None and known.serves(since) else Rendering(began)
            if mine is not None:
                self._make_room()
                self._newest[key] = mine
        if mine is not None:
            return self._made(key, mine, make)
        assert known is not None
        if not known.done.is_set():
            if not connection.in_atomic_block:
                connection.close()  # so that the rendering thread can get the pool's last connection
            known.done.wait(PATIENCE_SECONDS)
        return known if known.made_at is not None else Rendering(began, make())

    def _made(self, key: Hashable, mine: Rendering, make: Callable[[], str]) -> Rendering:
        try:
            mine.body = make()
            mine.made_at = monotonic()
            return mine
        finally:
            if mine.made_at is None:
                with self._lock:
                    if self._newest.get(key) is mine:
                        del self._newest[key]
            mine.done.set()

    def _make_room(self) -> None:
        if len(self._newest) < MAX_RENDERED:
            return
        old = [key for key, one in self._newest.items() if not one.serves(0)]
        for key in old or list(self._newest)[: MAX_RENDERED // 2]:
            del self._newest[key]

    def clear(self) -> None:
        with self._lock:
            self._newest.clear()


renderings = Renderings()
