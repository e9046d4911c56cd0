"""Receives the portal's callbacks on one socket without a thread, since a lane forks."""

from __future__ import annotations

import json
import socket
from typing import Any

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Letterbox:
    """Keeps what is posted to `/api/v1/callbacks/<token>` until it is delivered."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.socket.setblocking(False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.socket.getsockname()[1]}"

    def letters(self) -> list[tuple[str, Any]]:
        """Return token and body of all that has arrived; an interrupted one is sent again."""
        found: list[tuple[str, Any]] = []
        while True:
            try:
                link, _ = self.socket.accept()
            except BlockingIOError:
                return found
            with link:
                link.settimeout(2)
                try:
                    found.append(_read(link))
                    link.sendall(_ANSWER)
                except (OSError, ValueError):
                    continue


def _read(link: socket.socket) -> tuple[str, Any]:
    data = b""
    while b"\r\n\r\n" not in data:
        data += _more(link)
    head, _, body = data.partition(b"\r\n\r\n")
    request, *lines = head.decode().split("\r\n")
    named = dict(line.lower().split(": ", 1) for line in lines)
    while len(body) < int(named["content-length"]):
        body += _more(link)
    return request.split()[1].rsplit("/", 1)[1], json.loads(body)


def _more(link: socket.socket) -> bytes:
    data = link.recv(65536)
    if not data:
        raise ValueError("cut off")
    return data
