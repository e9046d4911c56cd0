"""Pictures of pages: made by a process of its own each time (`drawing.py`), kept by this one for a while.

What a document looks like follows from its bytes, so what is kept holds for ever, and goes only to make room. Nothing
that was drawn is stored in the database: whoever may write there can't put another picture in a document's place.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from approvals.documents.stored import GONE, unsound
from ledger.errors import Busy
from runs.engine.gate.documents import PDF, Named

_PROGRAM = Path(__file__).with_name("drawing.py")
MOST_SECONDS = 20.0  # of one process
WAITS_SECONDS = 5.0  # for a process to be begun
AT_ONCE = 2
TOGETHER = 4  # pages that one process draws: who reads one reads the next
MOST_KEPT = 64 * 1024 * 1024  # bytes of pictures
MOST_KNOWN = 4000  # documents
FORGET_SECONDS = 60.0  # what may have been bad luck
_places = threading.BoundedSemaphore(AT_ONCE)


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a document: how large its pages are, drawn, in pixels; or the `problem` that keeps it from being
    shown. `note` is what it holds besides its pages."""

    pages: tuple[tuple[int, int], ...] = ()
    problem: str = ""
    note: str = ""


class Kept:
    """What this process has drawn."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._facts: OrderedDict[tuple[str, str], tuple[Facts, float | None]] = OrderedDict()
        self._pictures: OrderedDict[tuple[str, str, int], bytes] = OrderedDict()
        self._seen: OrderedDict[tuple[str, str], set[int]] = OrderedDict()  # pages that could be drawn, once
        self._size = 0

    def known(self) -> list[str]:
        """The digests of which nothing more has to be read to say how they look."""
        with self._lock:
            return list({digest for (digest, _), (_, until) in self._facts.items() if until is None})

    def facts(self, named: Named) -> Facts | None:
        """What is known of it; None where that has to be found out."""
        with self._lock:
            facts, until = self._facts.get(_key(named), (None, None))
            return None if until is not None and until < monotonic() else facts

    def picture(self, named: Named, page: int) -> bytes | None:
        """A page, where it is at hand."""
        with self._lock:
            found = self._pictures.get((*_key(named), page))
            if found is not None:
                self._pictures.move_to_end((*_key(named), page))
            return found

    def undrawn(self, named: Named, pages: int) -> list[int]:
        """The pages of which nobody knows yet that they can be drawn."""
        with self._lock:
            seen = self._seen.get(_key(named), set())
            return [page for page in range(1, pages + 1) if page not in seen]

    def keep(self, named: Named, facts: Facts, first: int, pictures: list[bytes], *, for_ever: bool = True) -> None:
        """What came of a drawing that began with page `first`."""
        with self._lock:
            self._facts[_key(named)] = facts, None if for_ever else monotonic() + FORGET_SECONDS
            self._seen.setdefault(_key(named), set()).update(range(first, first + len(pictures)))
            for page, picture in enumerate(pictures, first):
                self._size += len(picture) - len(self._pictures.pop((*_key(named), page), b""))
                self._pictures[*_key(named), page] = picture
            while self._size > MOST_KEPT:
                self._size -= len(self._pictures.popitem(last=False)[1])
            while len(self._facts) > MOST_KNOWN:
                self._seen.pop(self._facts.popitem(last=False)[0], None)

    def forget(self) -> None:
        """As if this process had just begun."""
        self.__init__()  # type: ignore[misc]


kept = Kept()


def _key(named: Named) -> tuple[str, str]:
    return named.digest, named.media_type


def facts_of(named: Named, content: Callable[[], bytes | None]) -> Facts:
    """What is known of a document that is drawn as pictures; its `content` is read only where nothing is. Raises
    Busy."""
    return kept.facts(named) or _draw(named, content(), 1)


def page_of(named: Named, page: int, content: Callable[[], bytes | None]) -> bytes | None:
    """A page of it, from 1 on, as PNG; None where it has no such page, or can't be shown. Raises Busy."""
    found = kept.picture(named, page)
    if found is None:
        facts = _draw(named, content(), _first_of(page))
        found = kept.picture(named, page) if page <= len(facts.pages) else None
    return found


def problem_of(named: Named, content: Callable[[], bytes | None]) -> str:
    """What keeps it from being shown whole, in words; empty where every page of it could be drawn. Raises Busy."""
    facts = facts_of(named, content)
    while not facts.problem and (left := kept.undrawn(named, len(facts.pages))):
        facts = _draw(named, content(), _first_of(left[0]))
        if not facts.problem and left[0] in kept.undrawn(named, len(facts.pages)):
            return f"its page {left[0]} can't be drawn"
    return facts.problem


def _first_of(page: int) -> int:
    return (page - 1) // TOGETHER * TOGETHER + 1


def _draw(named: Named, content: bytes | None, first: int) -> Facts:
    if content is None or (wrong := unsound(named, content)):
        return Facts(problem=GONE if content is None else wrong)
    if not _places.acquire(timeout=WAITS_SECONDS):
        raise Busy("Other documents are being drawn")
    try:
        told, pictures = _ask(named, content, first)
    finally:
        _places.release()
    problem = str(told.get("problem", ""))
    facts = Facts(tuple((w, h) for w, h in told.get("pages", [])), problem, str(told.get("note", "")))
    kept.keep(named, facts, first, pictures, for_ever="luck" not in told)
    return facts


def _ask(named: Named, content: bytes, first: int) -> tuple[dict[str, Any], list[bytes]]:
    """Have some pages drawn. That its process takes too long, or ends as none should, keeps a document from being shown
    until somebody looks at it again a while later: another machine might do better."""
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
