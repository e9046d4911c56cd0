"""Send the installation's mail, over connections with a time limit.

A mail takes at most `WHOLE_SECONDS`. After that, the connection is cut, however slow the server is.
"""

from __future__ import annotations

import smtplib
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.utils import formatdate
from itertools import zip_longest
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.mail import EmailMultiAlternatives, get_connection
from django.core.mail.backends.smtp import EmailBackend

WHOLE_SECONDS = 30.0
MAX_ADDRESSES = 4  # number of addresses tried per host
_MAX_REASON_LENGTH = 300


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an attempt.

    `is_down`: other messages to the server would fail too. `is_gone`: the recipient no longer exists. `status` and
    `answer` are the status of a web server and the first bytes of its body.
    """

    state: str  # one of: sent, refused, failed
    why: str = ""
    retry_after: float | None = None
    is_down: bool = False
    is_gone: bool = False
    status: int | None = None
    answer: bytes = b""


SENT = Outcome("sent")


def is_set() -> bool:
    return bool(settings.DURABLEAGENTS.mail)


def send(to: str, subject: str, text: str, *, html: str = "", message: UUID | None = None) -> Outcome:
    """Send one mail. A receiver can recognise repeats by the `message` id."""
    domain = settings.DEFAULT_FROM_EMAIL.rpartition("@")[2]
    headers = {"Auto-Submitted": "auto-generated", "Date": formatdate()}
    if message is not None:
        headers |= {"Message-ID": f"<{message}@{domain}>", "X-Durable-Agents-Message": str(message)}
    mail = EmailMultiAlternatives(subject, text, None, [to], headers=headers)
    if html:
        mail.attach_alternative(html, "text/html")
    try:
        mail.connection = get_connection()
        mail.send()
    except smtplib.SMTPRecipientsRefused as error:
        code, reply = next(iter(error.recipients.values()), (0, b""))
        return _outcome_of(code, reply)
    except smtplib.SMTPDataError as error:
        return _outcome_of(error.smtp_code, error.smtp_error)
    except (smtplib.SMTPException, OSError) as error:
        return Outcome("failed", _reason(error), is_down=True)
    return SENT


def _outcome_of(code: int, reply: bytes | str) -> Outcome:
    """Return the outcome that corresponds to the server's reply to this mail. A 5xx is permanent."""
    words = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else reply
    return Outcome(
        "refused" if code // 100 == 5 else "failed", f"the mail server said {code} {words}"[:_MAX_REASON_LENGTH]
    )


def _reason(error: BaseException) -> str:
    return f"the mail server can't be used: {type(error).__name__}: {error}"[:_MAX_REASON_LENGTH]


# --- time limits ------------------------------------------------------------------------------------------------------


class TimedConnection:
    """Holds one connection, which another thread can cut at any time, even while it is being made.

    `ends` is the deadline on the monotonic clock, `step` the limit of one operation in seconds, `wire` the current
    socket.
    """

    def __init__(self, ends: float, step: float) -> None:
        self.ends, self.step = ends, step
        self.wire: socket.socket | None = None
        self.is_cut = False

    @contextmanager
    def limit(self) -> Iterator[None]:
        """Cut the connection at the deadline."""
        timer = threading.Timer(max(0.0, self.ends - time.monotonic()), self.cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def cut(self) -> None:
        """Make the current and later socket operations fail at once."""
        self.is_cut = True
        if self.wire is not None:
            with suppress(OSError):
                # The TLS socket's own shutdown would continue reading in clear text.
                socket.socket.shutdown(self.wire, socket.SHUT_RDWR)

    def use(self, wire: socket.socket) -> None:
        """Use this socket from now on. Raises TimeoutError."""
        self.wire = wire
        if self.is_cut:
            raise TimeoutError("it takes too long")

    def connect(self, found: Sequence[tuple[Any, ...]]) -> socket.socket:
        """Connect to the first address that accepts. Raises OSError.

        Address families alternate, and all attempts share the remaining time.
        """
        error: OSError = OSError("it has no address")
        tried = _alternate_families(found)[:MAX_ADDRESSES]
        for n, (family, kind, protocol, _, where) in enumerate(tried):
            seconds = self._left(among=len(tried) - n)
            plain = None
            try:
                plain = socket.socket(family, kind, protocol)
                plain.settimeout(seconds)
                self.use(plain)
                plain.connect(where)
                plain.settimeout(self.step)
                return plain
            except OSError as failed:
                if plain is not None:
                    plain.close()
                error = failed
        raise error

    def start_tls(self, plain: socket.socket, context: ssl.SSLContext, name: str) -> ssl.SSLSocket:
        """Do the TLS handshake and verify the server's name. Raises OSError."""
        plain.settimeout(self._left())
        wire = context.wrap_socket(plain, server_hostname=name, do_handshake_on_connect=False)
        try:
            self.use(wire)
            wire.do_handshake()
        except OSError:
            wire.close()
            raise
        wire.settimeout(self.step)
        return wire

    def _left(self, among: int = 1) -> float:
        seconds = min(self.step, (self.ends - time.monotonic()) / among)
        if seconds <= 0:
            raise TimeoutError("it takes too long")
        return seconds


def _alternate_families(found: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    families: dict[Any, list[tuple[Any, ...]]] = {}
    for each in found:
        families.setdefault(each[0], []).append(each)
    return [each for row in zip_longest(*families.values()) for each in row if each is not None]


@dataclass(frozen=True, slots=True)
class _StartTls:
    """The TLS context that smtplib uses for STARTTLS."""

    timed: TimedConnection
    context: ssl.SSLContext

    def wrap_socket(self, sock: socket.socket, *, server_hostname: str) -> ssl.SSLSocket:
        return self.timed.start_tls(sock, self.context, server_hostname)


class Backend(EmailBackend):
    """Django's backend with a deadline."""

    def send_messages(self, email_messages: Any) -> int:
        self._timed = TimedConnection(time.monotonic() + WHOLE_SECONDS, self.timeout or WHOLE_SECONDS)
        with self._timed.limit():
            return super().send_messages(email_messages) or 0

    @property
    def connection_class(self) -> Any:
        """Return the standard library's SMTP class, using a socket with a time limit."""
        base, timed = (smtplib.SMTP_SSL if self.use_ssl else smtplib.SMTP), self._timed

        class Limited(base):  # type: ignore[misc, valid-type]
            def _get_socket(self, host: str, port: int, timeout: Any) -> socket.socket:
                plain = timed.connect(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
                return plain if base is smtplib.SMTP else timed.start_tls(plain, self.context, host)

            def starttls(self, *, context: ssl.SSLContext) -> Any:
                return super().starttls(context=_StartTls(timed, context))

        return Limited
