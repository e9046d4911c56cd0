"""Pictures of pages, each drawn by its own process (`drawing.py`) and cached in this one, never in the database, where
it could be replaced."""

# A picture follows from the bytes, so the cache never expires and only makes room. Each drawing has its own thread,
# without a database connection: callers wait for a limited time, and find it done when they ask again.

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from approvals.documents.stored import GONE, unsound
from ledger.errors import Busy
from runs.engine.gating.documents import PDF, Named

_PROGRAM = Path(__file__).with_name("drawing.py")
MOST_SECONDS = 20.0  # of one process
WAITS_SECONDS = 10.0  # for one document or one page
PAGE_SECONDS = 1.5  # for all documents of a case's page
ACT_SECONDS = 20.0  # for all documents when approving
AT_ONCE = 2
MOST_UNDER_WAY = 8  # drawings in progress or queued, with their bytes
TOGETHER = 4  # pages per process: readers of one read the next
MOST_KEPT = 64 * 1024 * 1024  # bytes of pictures
MOST_KNOWN = 4000  # documents
# How long a possibly transient failure is kept: the first time, the second, and from then on.
FORGET_SECONDS = (60.0, 600.0, 3600.0)
_log = logging.getLogger(__name__)
_places = threading.BoundedSemaphore(AT_ONCE)


@dataclass(frozen=True, slots=True)
class Facts:
    """A document's page sizes in pixels, or the `problem` that keeps it from being shown. `note`: other content."""

    pages: tuple[tuple[int, int], ...] = ()
    problem: str = ""
    note: str = ""


class Kept:
    """This process's cache of drawings."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._facts: OrderedDict[tuple[str, str], tuple[Facts, float | None]] = OrderedDict()
        self._luck: dict[tuple[str, str], int] = {}  # how often it failed
        self._pictures: OrderedDict[tuple[str, str, int], bytes] = OrderedDict()
        self._seen: OrderedDict[tuple[str, str], set[int]] = OrderedDict()  # pages that were drawn before
        self._size = 0

    def known(self) -> list[str]:
        """Return the digests of documents whose facts need no further reading."""
        now = monotonic()
        with self._lock:
            return list({digest for (digest, _), (_, until) in self._facts.items() if until is None or until > now})

    def facts(self, named: Named) -> Facts | None:
        """Return the cached facts; None if unknown or expired."""
        with self._lock:
            facts, until = self._facts.get(_key(named), (None, None))
            return None if until is not None and until < monotonic() else facts

    def picture(self, named: Named, page: int) -> bytes | None:
        """Return a cached page, or None."""
        with self._lock:
            found = self._pictures.get((*_key(named), page))
            if found is not None:
                self._pictures.move_to_end((*_key(named), page))
            return found

    def undrawn(self, named: Named, pages: int) -> list[int]:
        with self._lock:
            seen = self._seen.get(_key(named), set())
            return [page for page in range(1, pages + 1) if page not in seen]

    def keep(self, named: Named, facts: Facts, first: int, pictures: list[bytes], *, for_ever: bool = True) -> None:
        """Cache a drawing from page `first` on. Without `for_ever`, repeated failures are kept ever longer."""
        with self._lock:
            until = None
            if not for_ever:
                times = self._luck.get(_key(named), 0)
                self._luck[_key(named)] = times + 1
                until = monotonic() + FORGET_SECONDS[min(times, len(FORGET_SECONDS) - 1)]
            self._facts[_key(named)] = facts, until
            self._seen.setdefault(_key(named), set()).update(range(first, first + len(pictures)))
            for page, picture in enumerate(pictures, first):
                self._size += len(picture) - len(self._pictures.pop((*_key(named), page), b""))
                self._pictures[*_key(named), page] = picture
            while self._size > MOST_KEPT:
                self._size -= len(self._pictures.popitem(last=False)[1])
            while len(self._facts) > MOST_KNOWN:
                gone, _ = self._facts.popitem(last=False)
                self._seen.pop(gone, None)
                self._luck.pop(gone, None)

    def forget(self) -> None:
        self.__init__()  # type: ignore[misc]


kept = Kept()


def _key(named: Named) -> tuple[str, str]:
    return named.digest, named.media_type


@dataclass(eq=False)
class _Drawing:
    """A drawing in progress of a document's pages from `first` on. `facts` are set once it is done."""

    named: Named
    content: bytes
    first: int
    begun: float
    facts: Facts = Facts()
    done: threading.Event = field(default_factory=threading.Event)

    def by(self, until: float) -> bool:
        return self.done.wait(max(0.0, until - monotonic()))

    def run(self) -> None:
        """Draw when a place is free. Any exception in this thread counts as a failed drawing."""
        try:
            with _places:
                known = kept.facts(self.named)
                # Its other pages may have timed out while this waited.
                self.facts = known if known is not None and known.problem else self._drawn()
        except Exception:
            _log.exception("document %s can't be drawn", self.named.digest)
            self.facts = Facts(problem="to draw it failed")
            kept.keep(self.named, self.facts, self.first, [], for_ever=False)
        finally:
            with _begins:
                _under_way.pop((*_key(self.named), self.first), None)
            self.done.set()

    def _drawn(self) -> Facts:
        told, pictures = _ask(self.named, self.content, self.first)
        problem = str(told.get("problem", ""))
        facts = Facts(tuple((w, h) for w, h in told.get("pages", [])), problem, str(told.get("note", "")))
        kept.keep(self.named, facts, self.first, pictures, for_ever="luck" not in told)
        return facts


_begins = threading.Lock()
_under_way: dict[tuple[str, str, int], _Drawing] = {}


def _begin(named: Named, content: Callable[[], bytes | None], first: int) -> _Drawing | Facts:
    """Return the drawing, started if necessary; Facts if the bytes don't match. Raises Busy at the limit."""
    at = (*_key(named), first)
    if (found := _under_way.get(at)) is not None:
        return found
    read = content()
    if read is None or (wrong := unsound(named, read)):
        return Facts(problem=GONE if read is None else wrong)
    with _begins:
        if (found := _under_way.get(at)) is not None:
            return found
        if len(_under_way) >= MOST_UNDER_WAY:
            raise Busy("Other documents are being rendered")
        begun = _under_way[at] = _Drawing(named, read, first, monotonic())
    threading.Thread(target=begun.run, name=f"drawing {named.digest[:8]}", daemon=True).start()
    return begun


def facts_within(seconds: float, wanted: Sequence[tuple[Named, Callable[[], bytes | None]]]) -> list[Facts | None]:
    """Return the facts of each document within so many seconds for all; None for those not drawn by then. At most
    AT_ONCE are started, so large requests don't delay others; the next request starts the next ones and does not wait
    again for slow ones."""
    until, found = monotonic() + seconds, {_key(named): kept.facts(named) for named, _ in wanted}
    left = deque(each for each in wanted if found[_key(each[0])] is None)
    begun: deque[tuple[Named, _Drawing]] = deque()
    while left or begun:
        try:
            while left and len(begun) < AT_ONCE:
                named, content = left.popleft()
                one = _begin(named, content, 1)
                if isinstance(one, Facts):
                    found[_key(named)] = one
                else:
                    begun.append((named, one))
        except Busy:
            left.clear()
        if not begun:
            continue
        named, first = begun.popleft()
        if not first.by(min(until, first.begun + PAGE_SECONDS)):
            left.clear()
        elif found[_key(named)] is None:
            found[_key(named)] = first.facts
    return [found[_key(named)] for named, _ in wanted]


def facts_of(named: Named, content: Callable[[], bytes | None], until: float | None = None) -> Facts:
    """Return a document's facts; `content` is read if unknown. Raises Busy if not drawn `until` then (monotonic)."""
    return kept.facts(named) or _draw(named, content, 1, until)


def page_of(named: Named, page: int, content: Callable[[], bytes | None], until: float | None = None) -> bytes | None:
    """Return a page, from 1, as PNG; None if it doesn't exist or can't be shown. Raises Busy."""
    found = kept.picture(named, page)
    if found is None:
        facts = _draw(named, content, _first_of(page), until)
        found = kept.picture(named, page) if page <= len(facts.pages) else None
    return found


def problem_of(named: Named, content: Callable[[], bytes | None], until: float | None = None) -> str:
    """Return why a document can't be shown in full; empty if every page could be drawn. Raises Busy if not all are
    drawn by then: those that are need not be drawn again."""
    facts = facts_of(named, content, until)
    while not facts.problem and (left := kept.undrawn(named, len(facts.pages))):
        facts = _draw(named, content, _first_of(left[0]), until)
        if not facts.problem and left[0] in kept.undrawn(named, len(facts.pages)):
            return f"its page {left[0]} can't be drawn"
    return facts.problem


def _first_of(page: int) -> int:
    return (page - 1) // TOGETHER * TOGETHER + 1


def _draw(named: Named, content: Callable[[], bytes | None], first: int, until: float | None) -> Facts:
    begun = _begin(named, content, first)
    if isinstance(begun, Facts):
        return begun
    if not begun.by(monotonic() + WAITS_SECONDS if until is None else until):
        raise Busy("The document is still being rendered")
    return begun.facts


def _ask(named: Named, content: bytes, first: int) -> tuple[dict[str, Any], list[bytes]]:
    """Draw some pages. A timeout or crash is kept only for a while: another machine may succeed."""
    last = first + TOGETHER - 1 if named.media_type == PDF else first
    command = [sys.executable, "-I", str(_PROGRAM), named.media_type, str(first), str(last)]
    try:
        done = subprocess.run(
            command, input=content, capture_output=True, timeout=MOST_SECONDS, env={}, cwd="/", check=False
        )
    except subprocess.TimeoutExpired:
        return {"problem": f"to draw it takes more than {MOST_SECONDS:g} seconds", "luck": True}, []
    head, _, rest = done.stdout.partition(b"\n")
    if done.returncode != 0 or not head:
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
        return {"problem": f"to draw it failed ({how})", "luck": True}, []
    told = json.loads(head)
    pictures = []
    for length in told["lengths"]:
        pictures.append(rest[:length])
        rest = rest[length:]
    return told, pictures
