"""Read keys and secrets from the sources that the settings name.

These are outside the database: environment, files, commands, services.
"""

from __future__ import annotations

import http.client
import os
import selectors
import shlex
import signal
import socket
import stat
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from typing import Literal
from urllib.parse import urlsplit

COMMAND_SECONDS = 5.0
MAX_BYTES = 64 * 1024
ENVIRONMENT_PREFIX = "AGENT_SECRET_"


class SourceProblem(Exception):
    """A source can't be read. The text explains the reason without revealing the content."""


@dataclass(frozen=True, slots=True)
class SecretSource:
    """A source in which secrets are looked up by name. `label` is a name without a command's arguments."""

    kind: Literal["env", "file", "command"]
    label: str
    folder: Path | None = None
    command: str = field(default="", repr=False)

    def read(self, name: str) -> bytes | None:
        """Return a secret's bytes, or None if this source doesn't contain it. Raises SourceProblem."""
        if self.kind == "env":
            text = os.environ.get(variable_of(name))
            return None if text is None else os.fsencode(text)
        if self.folder is not None:
            found = read_file(self.folder / name)
            if found is None and not self.folder.is_dir():
                raise SourceProblem("can't be read: there is no such folder")
            return found
        return run_command(self.command, name)


def variable_of(name: str) -> str:
    """Return the name of the environment variable for a secret."""
    return ENVIRONMENT_PREFIX + name.upper().replace("-", "_").replace(".", "_")


def read_source(text: str) -> SecretSource:
    """Parse `env`, `file:/run/secrets` or `command:/usr/local/bin/get-secret`. Raises ValueError.

    The error doesn't quote the text, which may hold a secret.
    """
    kind, _, where = text.partition(":")
    if text == "env":
        return SecretSource("env", "env")
    if kind == "file" and os.path.isabs(where):
        return SecretSource("file", text, folder=Path(where))
    if kind == "command" and os.path.isabs(where):
        return SecretSource("command", f"command:{where.split(maxsplit=1)[0]}", command=where)
    raise ValueError("an entry is no source: write env, file:/FOLDER or command:/COMMAND, with absolute paths")


def read_file(path: Path, most: int = MAX_BYTES) -> bytes | None:
    """Return a regular file's bytes, or None if the file doesn't exist. Raises SourceProblem."""
    try:
        # Opening a pipe for reading would block until somebody writes to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SourceProblem(f"can't be read: {path}: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise SourceProblem(f"can't be read: {path} is not a file")
        found = os.read(descriptor, most + 1)
    except OSError as error:
        raise SourceProblem(f"can't be read: {path}: {error.strerror}") from None
    finally:
        os.close(descriptor)
    if len(found) > most:
        raise SourceProblem(f"is too large: {path} has more than {most} bytes")
    return found


def post(url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
    """Post to a service and return the status and body of its answer. Raises SourceProblem.

    Follows no redirect and uses no proxy. Ends after five seconds, however slowly the service looks up, connects or
    answers.
    """
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=COMMAND_SECONDS)
    outcome: list[tuple[int, bytes] | str] = []

    def ask() -> None:
        try:
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("POST", target, body, headers)
            answer = connection.getresponse()
            outcome.append((answer.status, answer.read(MAX_BYTES + 1)))
        except TimeoutError:
            pass  # The caller treats a missing outcome as a timeout.
        except (OSError, http.client.HTTPException, ValueError) as error:
            outcome.append(f"can't be reached: {type(error).__name__}: {error}"[:300])
        finally:
            connection.close()

    thread = threading.Thread(target=ask, name="key service", daemon=True)
    thread.start()
    thread.join(COMMAND_SECONDS)
    if not outcome:
        if (wire := connection.sock) is not None:
            with suppress(OSError):
                socket.socket.shutdown(wire, socket.SHUT_RDWR)  # makes the thread end
        raise SourceProblem(f"gave no answer within {COMMAND_SECONDS:g} s")
    found = outcome[0]
    if isinstance(found, str):
        raise SourceProblem(found)
    if len(found[1]) > MAX_BYTES:
        raise SourceProblem(f"answered more than {MAX_BYTES} bytes")
    return found


def run_command(command: str, *more: str, is_quoted: bool = False) -> bytes:
    """Run a command with the `more` arguments, without a shell, and return its output. Raises SourceProblem.

    The command and its children are ended after five seconds. The error quotes the last line of its error output only
    if `is_quoted`.
    """
    deadline = time.monotonic() + COMMAND_SECONDS
    try:
        words = [*shlex.split(command), *more]
        process = Popen(
            words, stdin=DEVNULL, stdout=PIPE, stderr=PIPE if is_quoted else DEVNULL, start_new_session=True
        )
    except (OSError, ValueError) as error:
        raise SourceProblem(f"can't be run: {getattr(error, 'strerror', None) or error}") from None
    with process:
        try:
            output, errors = _read(process, deadline)
            code = process.wait(max(0.0, deadline - time.monotonic()))
        except (TimeoutError, TimeoutExpired):
            _end(process)
            raise SourceProblem(f"gave no answer within {COMMAND_SECONDS:g} s") from None
        except BaseException:
            _end(process)
            raise
    if code == 0:
        return output
    lines = errors.decode(errors="replace").strip().splitlines()
    text = f": {lines[-1] if lines else 'no message'}" if is_quoted else ""
    raise SourceProblem(f"ended with {code}{text}")


def _read(process: Popen[bytes], deadline: float) -> tuple[bytes, bytes]:
    """Return output and error output once both are closed.

    Raises TimeoutError, or SourceProblem if there is too much output.
    """
    found = {pipe.fileno(): bytearray() for pipe in (process.stdout, process.stderr) if pipe is not None}
    with selectors.DefaultSelector() as selector:
        for descriptor in found:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            left = deadline - time.monotonic()
            ready = selector.select(left) if left > 0 else []
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                part = os.read(key.fd, MAX_BYTES)
                found[key.fd] += part
                if not part:
                    selector.unregister(key.fd)
                if len(found[key.fd]) > MAX_BYTES:
                    raise SourceProblem(f"printed more than {MAX_BYTES} bytes")
    output, *errors = map(bytes, found.values())
    return output, errors[0] if errors else b""


def _end(process: Popen[bytes]) -> None:
    """End a command and its children, which would otherwise outlive it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has already ended
    except PermissionError:
        process.kill()
