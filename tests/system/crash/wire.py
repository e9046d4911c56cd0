"""The wire between the processes and the database: as good as none, until it is told to lose answers.

Losing an answer: the server's reply to a worker is read, thrown away, and the connection cut. By then the statement has
committed, so the worker can't know what became of it. (A killed backend mostly loses the question instead.)
"""

from __future__ import annotations

import random
import selectors
import shutil
import socket
import tempfile
import threading
from pathlib import Path

PORT = 5432
_WORKER = b"durableagents worker"


class Wire:
    """Listens where libpq expects a server and passes bytes on to the real socket, which may come and go."""

    def __init__(self) -> None:
        # Short: a socket's path may have 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="wire-"))
        self.target: Path | None = None
        self.lost = 0
        self._loss = 0.0
        self._dice = random.Random(1)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.folder / f".s.PGSQL.{PORT}"))
        self._listener.listen(128)
        threading.Thread(target=self._accept, name="wire", daemon=True).start()

    def lose(self, share: float) -> None:
        """From now on, lose this share of all answers to workers; 0 loses none."""
        self._loss = share

    def close(self) -> None:
        self._listener.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(near,), name="wire", daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with near, socket.socket(socket.AF_UNIX) as far, selectors.DefaultSelector() as ready:
            try:
                far.connect(str(self.target))
                ready.register(near, selectors.EVENT_READ)
                ready.register(far, selectors.EVENT_READ)
                self._pass(near, far, ready)
            except OSError:
                return  # the server or the process is gone: so is the wire

    def _pass(self, near: socket.socket, far: socket.socket, ready: selectors.BaseSelector) -> None:
        is_worker, has_asked = False, False
        while True:
            for key, _ in ready.select():
                if key.fileobj is near:
                    data = near.recv(65536)
                    is_worker = is_worker or _WORKER in data
                    has_asked = True
                    far.sendall(data)
                else:
                    data = far.recv(65536)
                    if is_worker and has_asked and self._is_lost():
                        return
                    has_asked = False
                    near.sendall(data)
                if not data:
                    return

    def _is_lost(self) -> bool:
        is_lost = self._dice.random() < self._loss
        self.lost += is_lost
        return is_lost
