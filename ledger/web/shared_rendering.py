"""One rendering for many who watch the same: what the live parts of lists are made of, for half a second.

What is kept depends on nothing but its key. It is handed to whoever asks for what it is at least as new as: a page says
how new the records are that it shows and has been told of (`since`, by the database's clock), so nobody is shown less
than they have seen, done or been told, whichever web process answers them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from time import monotonic

from django.db import connection

SECONDS = 0.5
MOST = 200
# A rendering that takes longer is waited for by nobody: whoever asked makes their own.
PATIENCE_SECONDS = 3.0


@dataclass(slots=True)
class Rendering:
    """One rendering, made or under way. All that was committed before `began` (microseconds, the database's clock) is
    in it."""

    began: int
    body: str = ""
    made_at: float | None = None
    done: threading.Event = field(default_factory=threading.Event)

    def serves(self, since: int) -> bool:
        is_fresh = self.made_at is None or monotonic() - self.made_at <= SECONDS
        return is_fresh and self.began >= since


class Renderings:
    """The newest rendering of each thing. Asked for at the same moment by many, it is made by the first of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: dict[Hashable, Rendering] = {}

    def get(self, key: Hashable, *, since: int, began: int, make: Callable[[], str]) -> Rendering:
        """A rendering with all in it that was committed before `since`. If there is none it is made now; `began` is a
        moment before whatever `make` reads."""
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
                connection.close()  # whoever makes it may need the pool's last one
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
        if len(self._newest) < MOST:
            return
        old = [key for key, one in self._newest.items() if not one.serves(0)]
        for key in old or list(self._newest)[: MOST // 2]:
            del self._newest[key]

    def clear(self) -> None:
        with self._lock:
            self._newest.clear()


renderings = Renderings()
