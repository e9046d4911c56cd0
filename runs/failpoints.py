"""Named crash points, for tests. Armed by the environment, refused in production, free when unarmed.

    DURABLEAGENTS_FAILPOINTS="CP2@file_purchase_order:kill:1,CP4:stop:2"
    DURABLEAGENTS_FAILPOINT_DIR=/some/folder

`point[@tool]:action:nth`: at the nth hit in a process do `kill` (SIGKILL to itself), `stop` (SIGSTOP) or `raise`. Each armed point
acts once, across all processes and restarts: the marker file that says so is created exclusively before the act.
"""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass, field
from pathlib import Path

POINTS = ("CP0", "CP1", "CP2", "CP3", "CP4", "CP5", "CP6", "CP7", "CP8", "CP9")
_ACTIONS = ("kill", "stop", "raise")


class FailpointHit(RuntimeError):
    """Raised by an armed point whose action is `raise`."""


@dataclass
class _Armed:
    point: str
    tool: str
    action: str
    nth: int
    marker: Path
    hits: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

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
        os.kill(os.getpid(), signal.SIGKILL if self.action == "kill" else signal.SIGSTOP)


def parse(text: str, folder: Path) -> list[_Armed]:
    """Armed points from their one-line form. Raises ValueError naming the part that is wrong."""
    armed = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        try:
            where, action, nth = part.split(":")
            point, _, tool = where.partition("@")
            if point not in POINTS or action not in _ACTIONS or int(nth) < 1:
                raise ValueError
        except ValueError:
            raise ValueError(
                f"failpoint {part!r} is not CPn[@tool]:{'|'.join(_ACTIONS)}:nth"
            ) from None
        armed.append(
            _Armed(
                point, tool, action, int(nth), folder / part.replace(":", "_").replace("@", "_at_")
            )
        )
    return armed


def _from_environment() -> list[_Armed]:
    text = os.environ.get("DURABLEAGENTS_FAILPOINTS", "")
    if not text:
        return []
    if os.environ.get("DURABLEAGENTS_ENV") == "production":
        raise RuntimeError("DURABLEAGENTS_FAILPOINTS is set in production: unset it")
    folder = Path(os.environ["DURABLEAGENTS_FAILPOINT_DIR"])
    folder.mkdir(parents=True, exist_ok=True)
    return parse(text, folder)


_armed = _from_environment()


def hit(point: str, tool: str = "") -> None:
    """Pass a crash point."""
    for armed in _armed:
        if armed.point == point and armed.tool in ("", tool):
            armed.hit()


def is_armed(point: str) -> bool:
    """Whether anything waits at a point (for points that cost something to reach exactly)."""
    return any(a.point == point for a in _armed)
