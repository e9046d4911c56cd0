"""The people of an installation: they approve and settle while the tests break things."""

from __future__ import annotations

import threading
from typing import Any

from tests.system.crash.api import ENDED, Api
from tests.system.crash.stack import Stack


class People(threading.Thread):
    """Looks after every registered run until it has ended. `verdicts`: its answers on unknown outcomes."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(name="people", daemon=True)
        self._stack, self._api = stack, Api(stack.demo())
        self._open: list[str] = []
        self._lock = threading.Lock()
        self._is_leaving = threading.Event()
        self.verdicts: list[str] = []
        self.trouble: BaseException | None = None

    def look_after(self, run_id: str) -> None:
        with self._lock:
            self._open.append(run_id)

    def open_runs(self) -> list[str]:
        with self._lock:
            return list(self._open)

    def leave(self) -> None:
        self._is_leaving.set()
        self.join(30)
        self._api.close()
        if self.trouble is not None:
            raise self.trouble

    def run(self) -> None:
        try:
            while not self._is_leaving.wait(0.05):
                for run_id in self.open_runs():
                    run = self._api.run(run_id)
                    if not run or run["state"] in ENDED:
                        self._forget(run_id)
                    else:
                        self._attend(run)
        except BaseException as error:
            self.trouble = error

    def _attend(self, run: dict[str, Any]) -> None:
        self.verdicts += self._stack.attend(run, self._api)

    def _forget(self, run_id: str) -> None:
        with self._lock:
            self._open.remove(run_id)
