"""Render pictures of pages, each in a process of its own (`renderer.py`), and cache them in this process.

They are never stored in the database, where they could be replaced.
"""

# The bytes of a document determine its pictures, so cached pictures don't expire and are only dropped to make room.
# Each rendering has a thread of its own, without a database connection. Callers wait for a limited time, and find the
# result when they ask again.

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

from durableagents.contrib.documents.storage import MISSING, mismatch
from ledger.errors import Busy
from runs.engine.gating.documents import PDF, Named

_PROGRAM = Path(__file__).with_name("renderer.py")
MAX_SECONDS = 20.0  # limit of one process
WAIT_SECONDS = 10.0  # wait for one document or one page
PAGE_SECONDS = 1.5  # wait for all documents of a case's page
APPROVAL_SECONDS = 20.0  # wait for all documents when approving
MAX_PROCESSES = 2
MAX_IN_PROGRESS = 8  # limit of renderings in progress or queued, which hold their bytes
PAGES_PER_PROCESS = 4  # pages per process, because readers of one page read the next
MAX_CACHED_BYTES = 64 * 1024 * 1024  # limit of cached pictures, in bytes
MAX_CACHED_DOCUMENTS = 4000  # limit of cached documents
# How long a possibly transient failure is cached: the first time, the second, and after that.
RETRY_SECONDS = (60.0, 600.0, 3600.0)
_log = logging.getLogger(__name__)
_processes = threading.BoundedSemaphore(MAX_PROCESSES)


@dataclass(frozen=True, slots=True)
class Facts:
    """A document's page sizes in pixels, or the `problem` that prevents showing it.

    `note` mentions content that isn't shown.
    """

    pages: tuple[tuple[int, int], ...] = ()
    problem: str = ""
    note: str = ""


class Cache:
    """This process's cache of rendered pages."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._facts: OrderedDict[tuple[str, str], tuple[Facts, float | None]] = OrderedDict()
        self._failures: dict[tuple[str, str], int] = {}  # number of failures
        self._pictures: OrderedDict[tuple[str, str, int], bytes] = OrderedDict()
        self._rendered: OrderedDict[tuple[str, str], set[int]] = OrderedDict()  # pages that were rendered before
        self._size = 0

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

    def missing_pages(self, named: Named, pages: int) -> list[int]:
        """Return the numbers of the document's pages that were never rendered."""
        with self._lock:
            done = self._rendered.get(_key(named), set())
            return [page for page in range(1, pages + 1) if page not in done]

    def keep(self, named: Named, facts: Facts, first: int, pictures: list[bytes], *, is_final: bool = True) -> None:
        """Cache the result of rendering the pages from `first` on.

        Unless `is_final`, each repeated failure is cached for longer than the last.
        """
        with self._lock:
            until = None
            if not is_final:
                times = self._failures.get(_key(named), 0)
                self._failures[_key(named)] = times + 1
                until = monotonic() + RETRY_SECONDS[min(times, len(RETRY_SECONDS) - 1)]
            self._facts[_key(named)] = facts, until
            self._rendered.setdefault(_key(named), set()).update(range(first, first + len(pictures)))
            for page, picture in enumerate(pictures, first):
                self._size += len(picture) - len(self._pictures.pop((*_key(named), page), b""))
                self._pictures[*_key(named), page] = picture
            while self._size > MAX_CACHED_BYTES:
                self._size -= len(self._pictures.popitem(last=False)[1])
            while len(self._facts) > MAX_CACHED_DOCUMENTS:
                oldest, _ = self._facts.popitem(last=False)
                self._rendered.pop(oldest, None)
                self._failures.pop(oldest, None)

    def forget(self) -> None:
        self.__init__()  # type: ignore[misc]


cache = Cache()


def _key(named: Named) -> tuple[str, str]:
    return named.digest, named.media_type


@dataclass(eq=False)
class _Rendering:
    """The rendering of a document's pages from `first` on. `facts` are set once it is done."""

    named: Named
    content: bytes
    first: int
    started: float
    facts: Facts = Facts()
    done: threading.Event = field(default_factory=threading.Event)

    def by(self, until: float) -> bool:
        return self.done.wait(max(0.0, until - monotonic()))

    def run(self) -> None:
        """Wait until another process may start, then render.

        Any exception in this thread is treated as a failed rendering.
        """
        try:
            with _processes:
                known = cache.facts(self.named)
                # The document's other pages may have timed out while this rendering waited.
                self.facts = known if known is not None and known.problem else self._render()
        except Exception:
            _log.exception("document %s can't be rendered", self.named.digest)
            self.facts = Facts(problem="rendering failed")
            cache.keep(self.named, self.facts, self.first, [], is_final=False)
        finally:
            with _starting:
                _in_progress.pop((*_key(self.named), self.first), None)
            self.done.set()

    def _render(self) -> Facts:
        answer, pictures = _run_renderer(self.named, self.content, self.first)
        problem = str(answer.get("problem", ""))
        facts = Facts(tuple((w, h) for w, h in answer.get("pages", [])), problem, str(answer.get("note", "")))
        cache.keep(self.named, facts, self.first, pictures, is_final="is_transient" not in answer)
        return facts


_starting = threading.Lock()
_in_progress: dict[tuple[str, str, int], _Rendering] = {}


def _start(named: Named, content: Callable[[], bytes | None], first: int) -> _Rendering | Facts:
    """Return the rendering, started if necessary; Facts if the document is missing or changed. Raises Busy."""
    at = (*_key(named), first)
    if (found := _in_progress.get(at)) is not None:
        return found
    read = content()
    if read is None or (problem := mismatch(named, read)):
        return Facts(problem=MISSING if read is None else problem)
    with _starting:
        if (found := _in_progress.get(at)) is not None:
            return found
        if len(_in_progress) >= MAX_IN_PROGRESS:
            raise Busy("Other documents are being rendered")
        started = _in_progress[at] = _Rendering(named, read, first, monotonic())
    threading.Thread(target=started.run, name=f"rendering {named.digest[:8]}", daemon=True).start()
    return started


def facts_within(seconds: float, wanted: Sequence[tuple[Named, Callable[[], bytes | None]]]) -> list[Facts | None]:
    """Return the facts of each document, waiting this many seconds in total; None for those not rendered by then.

    At most MAX_PROCESSES renderings are started, so that large requests don't delay others. The next request starts the
    next ones, and doesn't wait again for slow ones.
    """
    until, found = monotonic() + seconds, {_key(named): cache.facts(named) for named, _ in wanted}
    left = deque(each for each in wanted if found[_key(each[0])] is None)
    started: deque[tuple[Named, _Rendering]] = deque()
    while left or started:
        try:
            while left and len(started) < MAX_PROCESSES:
                named, content = left.popleft()
                one = _start(named, content, 1)
                if isinstance(one, Facts):
                    found[_key(named)] = one
                else:
                    started.append((named, one))
        except Busy:
            left.clear()
        if not started:
            continue
        named, first = started.popleft()
        if not first.by(min(until, first.started + PAGE_SECONDS)):
            left.clear()
        elif found[_key(named)] is None:
            found[_key(named)] = first.facts
    return [found[_key(named)] for named, _ in wanted]


def facts_of(named: Named, content: Callable[[], bytes | None], until: float | None = None) -> Facts:
    """Return a document's facts.

    `content` is called to get the bytes if the facts are unknown. Raises Busy if the rendering isn't done at the time
    `until` (monotonic).
    """
    return cache.facts(named) or _render_now(named, content, 1, until)


def page_of(named: Named, page: int, content: Callable[[], bytes | None], until: float | None = None) -> bytes | None:
    """Return a page, counted from 1, as PNG; None if it doesn't exist or can't be shown. Raises Busy."""
    found = cache.picture(named, page)
    if found is None:
        facts = _render_now(named, content, _first_of(page), until)
        found = cache.picture(named, page) if page <= len(facts.pages) else None
    return found


def problem_of(named: Named, content: Callable[[], bytes | None], until: float | None = None) -> str:
    """Return why a document can't be shown in full; empty if every page could be rendered. Raises Busy.

    Raises Busy if some pages weren't rendered in time; finished pages aren't rendered again.
    """
    facts = facts_of(named, content, until)
    while not facts.problem and (left := cache.missing_pages(named, len(facts.pages))):
        facts = _render_now(named, content, _first_of(left[0]), until)
        if not facts.problem and left[0] in cache.missing_pages(named, len(facts.pages)):
            return f"its page {left[0]} can't be drawn"
    return facts.problem


def _first_of(page: int) -> int:
    return (page - 1) // PAGES_PER_PROCESS * PAGES_PER_PROCESS + 1


def _render_now(named: Named, content: Callable[[], bytes | None], first: int, until: float | None) -> Facts:
    started = _start(named, content, first)
    if isinstance(started, Facts):
        return started
    if not started.by(monotonic() + WAIT_SECONDS if until is None else until):
        raise Busy("The document is still being rendered")
    return started.facts


def _run_renderer(named: Named, content: bytes, first: int) -> tuple[dict[str, Any], list[bytes]]:
    """Draw some pages. A timeout or crash is cached only for a while, because another machine may succeed."""
    last = first + PAGES_PER_PROCESS - 1 if named.media_type == PDF else first
    command = [sys.executable, "-I", str(_PROGRAM), named.media_type, str(first), str(last)]
    try:
        done = subprocess.run(
            command, input=content, capture_output=True, timeout=MAX_SECONDS, env={}, cwd="/", check=False
        )
    except subprocess.TimeoutExpired:
        return {"problem": f"rendering takes more than {MAX_SECONDS:g} seconds", "is_transient": True}, []
    head, _, rest = done.stdout.partition(b"\n")
    if done.returncode != 0 or not head:
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
        return {"problem": f"rendering failed ({how})", "is_transient": True}, []
    answer = json.loads(head)
    pictures = []
    for length in answer["lengths"]:
        pictures.append(rest[:length])
        rest = rest[length:]
    return answer, pictures
