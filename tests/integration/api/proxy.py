"""A proxy between a process and the database that a test can cut and restore."""

from __future__ import annotations

import selectors
import socket
import threading
from pathlib import Path


class Wire:
    """Listens where libpq expects a server (`<folder>/.s.PGSQL.5432`) and forwards to the real socket."""

    def __init__(self, folder: Path, target: str) -> None:
        self.folder = folder
        self._path = folder / ".s.PGSQL.5432"
        self._target = target
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._flows = threading.Event()
        self._flows.set()

    @property
    def connections(self) -> int:
        with self._lock:
            return len(self._pairs)

    def stall(self) -> None:
        """Forward nothing and refuse nothing, like a server on a frozen machine."""
        self._flows.clear()

    def flow(self) -> None:
        self._flows.set()

    def mend(self) -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self._path))
        listener.listen(64)
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def cut(self) -> None:
        """Drop every connection and refuse new ones, like a killed server."""
        self._path.unlink()
        with self._lock:
            ends = [end for pair in self._pairs for end in pair]
            self._pairs.clear()
        for end in [*ends, self._listener]:
            if end is not None:
                end.shutdown(socket.SHUT_RDWR)
                end.close()
        self._listener = None

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return  # cut
            far = socket.socket(socket.AF_UNIX)
            far.connect(self._target)
            with self._lock:
                self._pairs.add((near, far))
            threading.Thread(target=self._pass, args=(near, far), daemon=True).start()

    def _pass(self, near: socket.socket, far: socket.socket) -> None:
        other = {near: far, far: near}
        with selectors.DefaultSelector() as ready:
            try:
                for end in other:
                    ready.register(end, selectors.EVENT_READ)
                while True:
                    for key, _ in ready.select():
                        end = key.fileobj
                        assert isinstance(end, socket.socket)
                        data = end.recv(65536)
                        self._flows.wait()
                        if not data:
                            return
                        other[end].sendall(data)
            except (OSError, ValueError):
                return  # cut
            finally:
                with self._lock:
                    is_ours = (near, far) in self._pairs
                    self._pairs.discard((near, far))
                if is_ours:
                    near.close()
                    far.close()
