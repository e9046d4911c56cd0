"""A database connection that loses exactly the answer or the question that a test names."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from psycopg.conninfo import conninfo_to_dict, make_conninfo

# The first byte of a client message that runs a statement: Parse, Bind, Query.
_STATEMENTS = (b"P", b"B", b"Q")
Loss = Literal["question", "answer"]


class LossyWire:
    """Listens in `folder` like the server and cuts a connection around the named statement.

    `question`: the statement never reaches the server. `answer`: it commits, and its answer is lost.
    """

    def __init__(self, folder: Path, dsn: str) -> None:
        server = conninfo_to_dict(dsn)
        port = server.get("port") or 5432
        self._target = f"{server['host']}/.s.PGSQL.{port}"
        self.dsn = make_conninfo(dsn, host=str(folder))
        self.statements = 0
        self._plan: list[tuple[int, Loss]] = []
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{folder}/.s.PGSQL.{port}")
        self._listener.listen(32)
        threading.Thread(target=self._accept, daemon=True).start()

    def lose(self, *plan: tuple[int, Loss]) -> None:
        """Cut the wire around the n-th statement from here, on any connection; then around the n-th after that."""
        with self._lock:
            at = self.statements
            self._plan = [(at := at + nth, what) for nth, what in plan]

    @property
    def has_lost(self) -> bool:
        return not self._plan

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            far.connect(self._target)
            threading.Thread(target=self._pass, args=(near, far), daemon=True).start()

    def _pass(self, near: socket.socket, far: socket.socket) -> None:
        with near, far, selectors.DefaultSelector() as ready:
            ready.register(near, selectors.EVENT_READ)
            ready.register(far, selectors.EVENT_READ)
            try:
                while True:
                    for key, _ in ready.select():
                        source = near if key.fileobj is near else far
                        data = source.recv(1 << 20)
                        if not data or (source is near and self._is_lost(data, far)):
                            return
                        (far if source is near else near).sendall(data)
            except OSError:
                return

    def _is_lost(self, data: bytes, far: socket.socket) -> bool:
        if data[:1] not in _STATEMENTS:
            return False
        with self._lock:
            self.statements += 1
            if not self._plan or self.statements != self._plan[0][0]:
                return False
            what = self._plan.pop(0)[1]
        if what == "answer":
            far.sendall(data)
            far.recv(1 << 20)  # the server has answered, so it has committed
        return True


def counted(wire: LossyWire, doing: Callable[[], object]) -> int:
    before = wire.statements
    doing()
    return wire.statements - before
