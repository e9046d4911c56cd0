"""Servers that misbehave as scripted, beyond what the sandbox can do."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import Queue
from typing import Any

Dialogue = Callable[[socket.socket, "ScriptedServer"], None]


@dataclass
class ScriptedServer:
    """Accepts connections one by one and runs a dialogue on each. `heard` is what clients sent."""

    dialogue: Dialogue
    heard: Queue[bytes] = field(default_factory=Queue)

    def __enter__(self) -> ScriptedServer:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed: the test is over
                return
            connection.settimeout(5)
            with connection:
                try:
                    self.dialogue(connection, self)
                except (OSError, EOFError):  # the client has left, as some tests intend
                    continue


def reset(connection: socket.socket) -> None:
    """Close with RST instead of FIN: the client sees a reset, not an orderly end."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def read_http(connection: socket.socket) -> bytes:
    raw = b""
    while b"\r\n\r\n" not in raw:
        raw += _more(connection)
    head, _, body = raw.partition(b"\r\n\r\n")
    length = next(
        (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
    )
    while len(body) < length:
        body += _more(connection)
    return head + b"\r\n\r\n" + body


def answering(answer: bytes) -> Dialogue:
    def dialogue(connection: socket.socket, server: ScriptedServer) -> None:
        server.heard.put(read_http(connection))
        connection.sendall(answer)

    return dialogue


def smtp_saying(
    replies: Sequence[bytes | None], *, after_dot: bytes | None = b"250 kept\r\n", is_reset: bool = False
) -> Dialogue:
    """SMTP: one reply per phase (greeting, EHLO, MAIL, RCPT, DATA); None or the end of the list disconnects."""

    def dialogue(connection: socket.socket, server: ScriptedServer) -> None:
        reader = connection.makefile("rb")
        for n, reply in enumerate(replies):
            if n:
                server.heard.put(_line(reader))
            if reply is None:
                return
            connection.sendall(reply)
        if len(replies) < 5 or not replies[4].startswith(b"354"):  # type: ignore[union-attr]
            return
        lines = []
        while (line := _line(reader)) != b".\r\n":
            lines.append(line)
        server.heard.put(b"".join(lines))
        if is_reset:
            reset(connection)
        if after_dot is not None:
            connection.sendall(after_dot)
            if not after_dot.endswith(b"\n"):
                return
            server.heard.put(_line(reader))

    return dialogue


def _line(reader: Any) -> bytes:
    line: bytes = reader.readline()
    if not line:
        raise EOFError
    return line


def _more(connection: socket.socket) -> bytes:
    part = connection.recv(65536)
    if not part:
        raise EOFError
    return part
