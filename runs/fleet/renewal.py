"""Having a supervisor's workers renewed: the signal that asks for it, and the lines that tell how it went.

Whoever starts the supervisor may hand it a descriptor (`manage.py worker --report-fd N`). Each renewal ends with one
line on it: `done`, or `given up: ` and why. Nobody else needs to know, and nobody has to read them.
"""

from __future__ import annotations

import os
import signal

SIGNAL = signal.SIGUSR1
DONE = "done"
GIVEN_UP = "given up: "


class Report:
    """The supervisor's end. Never waits for whoever reads."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        if descriptor is not None:
            os.set_blocking(descriptor, False)
            os.set_inheritable(descriptor, False)

    def write(self, line: str) -> None:
        if self._descriptor is None:
            return
        try:
            os.write(self._descriptor, f"{' '.join(line.split())[:400]}\n".encode())
        except (BrokenPipeError, BlockingIOError):
            pass  # nobody listens any more; the log has it too
