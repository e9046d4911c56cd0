"""Send one message over SMTP, phase by phase, because the meaning of a failure depends on its phase.

Until the final dot is sent, the server has no message (RFC 5321, 4.1.1.4), so after an earlier failure the outcome
is *not sent*. Once the dot may have been sent, a missing reply makes the outcome *unknown*. A 4xx reply means that the
message wasn't accepted, a 5xx reply that it is refused permanently. smtplib's `sendmail` hides the phase, so its
individual commands are used.
"""

from __future__ import annotations

import contextlib
import select
import smtplib
import time
from collections.abc import Iterator
from email.message import EmailMessage
from email.policy import SMTP as CRLF

from durableagents import BusinessFailure, NotSent, TransportError
from runs.failpoints import hit, is_armed

_CONNECT_SECONDS = 5.0
_PARTING_SECONDS = 1.0
_BROKEN = (
    OSError,
    smtplib.SMTPException,
)  # OSError covers timeouts, resets and refused connections


def deliver(message: EmailMessage, *, to: str, host: str, port: int, timeout: float) -> str:
    """Hand over `message`; returns the server's receipt. Blocks at most about `timeout` seconds.

    Raises NotSent, BusinessFailure (refused permanently), TransportError (unknown outcome).
    """
    server = smtplib.SMTP(local_hostname="localhost", timeout=min(_CONNECT_SECONDS, timeout))
    try:
        with _before_the_dot():
            _hand_over(server, message, to, (host, port), time.monotonic() + timeout)
        return _dot(server, message)
    finally:
        # Outside the phases: how the connection closes says nothing about the mail.
        with contextlib.suppress(*_BROKEN):
            server.close()


def _hand_over(server: smtplib.SMTP, message: EmailMessage, to: str, where: tuple[str, int], deadline: float) -> None:
    """Send everything up to the final dot, but not the dot itself."""
    sender = message["From"].addresses[0].addr_spec
    _accepted(server.connect(*where), "greeting")
    _accepted(_timed(server, deadline).ehlo(), "EHLO")
    _accepted(_timed(server, deadline).mail(sender), "MAIL FROM")
    _accepted(_timed(server, deadline).rcpt(to), "RCPT TO")
    _accepted(_timed(server, deadline).docmd("DATA"), "DATA", expected=3)
    _timed(server, deadline).send(_stuffed(message))
    _timed(server, deadline)


def _dot(server: smtplib.SMTP, message: EmailMessage) -> str:
    """Send the final dot and return the reply. Only a failure in this phase leaves the outcome unknown."""
    try:
        server.send(b".\r\n")
        _pass_crash_point(server, message)
        code, reply = server.getreply()
    except _BROKEN as error:
        trouble = f"the connection broke after the whole mail was handed over: {_words(error)}"
        raise TransportError(trouble) from error
    if code // 100 not in (2, 4, 5):
        raise TransportError(f"the mail server answered the final dot with {code}: nobody can tell")
    _accepted((code, reply), "final dot")
    with contextlib.suppress(*_BROKEN):  # the mail is taken; the parting changes nothing
        _timed(server, time.monotonic() + _PARTING_SECONDS).docmd("QUIT")
    return f"{code} {reply.decode('utf-8', 'replace')}"[:500]


def _pass_crash_point(server: smtplib.SMTP, message: EmailMessage) -> None:
    """A crash point between the server's reply and our reading of it. Only an armed test waits here for the reply."""
    operation, run = str(message["X-Operation"] or ""), str(message["X-Run-Id"] or "")
    if is_armed("CP3", run) and server.sock is not None:
        select.select([server.sock], [], [], server.sock.gettimeout())
        hit("CP3", operation, run)


def _accepted(answer: tuple[int, bytes], phase: str, *, expected: int = 2) -> None:
    code, reply = answer
    said = f"{phase}: {code} {reply.decode('utf-8', 'replace')}"[:500]
    if code // 100 == expected:
        return
    if code // 100 == 5:
        raise BusinessFailure(f"the mail server refused, {said}", code=f"smtp_{code}", details={"phase": phase})
    # A 4xx is the server's own word that it took nothing. Anything else stands before the dot.
    raise NotSent(f"the mail server didn't take it, {said}")


@contextlib.contextmanager
def _before_the_dot() -> Iterator[None]:
    try:
        yield
    except _BROKEN as error:
        raise NotSent(f"the mail never left: {_words(error)}") from error


def _timed(server: smtplib.SMTP, deadline: float) -> smtplib.SMTP:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("no time is left for the rest of the dialogue")
    if server.sock is not None:
        server.sock.settimeout(left)
    return server


def _stuffed(message: EmailMessage) -> bytes:
    """The message with CRLF line ends and dots doubled, but without the dot that ends it."""
    raw = message.as_bytes(policy=CRLF)
    lines = raw.split(b"\r\n")
    if lines[-1] == b"":
        lines.pop()
    return b"".join((b"." + line if line.startswith(b".") else line) + b"\r\n" for line in lines)


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
