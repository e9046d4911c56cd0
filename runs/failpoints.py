"""Named crash points, for tests. They are armed by the environment or a file. They are refused in production, and cost
nothing when unarmed.

    DURABLEAGENTS_FAILPOINTS="CP2@file_purchase_order:kill:1,CP4:stop:2"
    DURABLEAGENTS_FAILPOINT_DIR=/some/folder            its file `armed` may hold more points, one per line

`point[@tool][/run]:action:nth` performs the action at the nth hit in a process: `kill` (SIGKILL to itself), `stop`
(SIGSTOP) or `raise`. Each armed point fires once across all processes and restarts, because a marker file is created
exclusively before it acts. A point with a leading `+` is inactive until the point before it has fired, for crashes
during recovery. The same point armed twice fires twice. The file is read again when it changes, so that one long-lived
installation serves many test cases.
"""

from __future__ import annotations

import os
import signal
import threading
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

POINTS = (*(f"CP{n}" for n in range(11)), "NP1", "NP2", "UP1", "WP1", "WP2", *(f"RP{n}" for n in range(1, 7)))
ARMED_FILE = "armed"
_ACTIONS = ("kill", "stop", "raise")
_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}

# The run that the current task drives. The host sets it, so that points deep in the code need no run id.
_driven: ContextVar[str] = ContextVar("driven_run", default="")


class FailpointHit(RuntimeError):
    """Raised by an armed point whose action is `raise`."""


@dataclass
class _Armed:
    point: str
    tool: str
    run: str
    action: str
    nth: int
    marker: Path
    after: Path | None = None
    hits: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def is_met(self, point: str, tool: str, run: str) -> bool:
        is_here = self.point == point and self.tool in ("", tool) and self.run in ("", run)
        return is_here and (self.after is None or self.after.exists())

    def hit(self) -> None:
        with self.lock:
            self.hits += 1
            if self.hits != self.nth:
                return
        try:
            os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return
        if self.action == "raise":
            raise FailpointHit(f"failpoint {self.point} at {self.tool or 'any tool'}")
        # The signal is sent to this thread: a SIGSTOP sent to the process could be taken by another thread, while this
        # one continues past the point.
        signal.pthread_kill(threading.get_ident(), _SIGNALS[self.action])


def parse(text: str, folder: Path) -> list[_Armed]:
    """Parse armed points. Raises ValueError, which names the invalid part."""
    armed: list[_Armed] = []
    parts = [p.strip() for p in text.replace("\n", ",").split(",") if p.strip()]
    for i, part in enumerate(parts):
        try:
            where, action, nth = part.removeprefix("+").split(":")
            where, _, run = where.partition("/")
            point, _, tool = where.partition("@")
            if point not in POINTS or action not in _ACTIONS or int(nth) < 1 or (part[0] == "+" and not armed):
                raise ValueError
        except ValueError:
            raise ValueError(f"failpoint {part!r} is not [+]CPn[@tool][/run]:{'|'.join(_ACTIONS)}:nth") from None
        after = armed[-1].marker if part[0] == "+" else None
        armed.append(
            _Armed(point, tool, run, action, int(nth), folder / marker_name(part, parts[:i].count(part)), after)
        )
    return armed


def marker_name(part: str, before: int = 0) -> str:
    """Return the name of the file that marks a point as done.
    `before` is the number of times that the same point was armed earlier."""
    return part.replace("+", "then_").replace(":", "_").replace("@", "_at_").replace("/", "_of_") + (
        f"_again_{before}" if before else ""
    )


class _Armoury:
    """The armed points of this process, from the environment and the file."""

    def __init__(self, text: str, folder: Path | None) -> None:
        self.folder = folder
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
        self._fixed = parse(text, self.folder) if self.folder is not None else []
        self._seen: tuple[int, int] | None = None
        self._points = self._fixed

    def points(self) -> list[_Armed]:
        """Return the armed points. Without a folder this makes no system call; with one, a stat."""
        if self.folder is None:
            return self._points
        try:
            found = os.stat(self.folder / ARMED_FILE)
            seen: tuple[int, int] | None = (found.st_mtime_ns, found.st_ino)
        except FileNotFoundError:
            seen = None
        if seen != self._seen:
            self._seen = seen
            self._read(self.folder)
        return self._points

    def _read(self, folder: Path) -> None:
        """Read the file's points, resetting their counts."""
        try:
            text = (folder / ARMED_FILE).read_text()
        except FileNotFoundError:
            text = ""
        self._points = [*self._fixed, *parse(text, folder)]


@cache
def _armoury() -> _Armoury:
    """Return the armed points, created at first use.
    The environment was validated by durableagents/env.py."""
    from django.conf import settings  # Tools pass crash points too, and are tested without Django.

    known = settings.DURABLEAGENTS
    return _Armoury(known.failpoints, known.failpoint_dir)


def driving(run: str) -> None:
    """Set the run that the current task drives."""
    _driven.set(run)


def driven() -> str:
    """Return the run that the current task drives; "" for none."""
    return _driven.get()


def hit(point: str, tool: str = "", run: str = "") -> None:
    """Pass a crash point. `run` is for threads, which don't know the run of their task."""
    for armed in _armoury().points():
        if armed.is_met(point, tool, run or _driven.get()):
            armed.hit()


def is_armed(point: str, run: str = "") -> bool:
    """Return whether a point is armed. Use this for points that are expensive to reach exactly."""
    if not (points := _armoury().points()):
        return False
    run = run or _driven.get()
    return any(a.point == point and (not run or a.run in ("", run)) for a in points)
