"""One mail, handed to the server that the environment names: whether it was taken, refused, or nobody knows.

However slowly a server answers, byte by byte or not at all, a mail takes no longer than `WHOLE_SECONDS`: then the
connection is cut. All of the installation's mail goes this way.
"""

from __future__ import annotations

import smtplib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.mail import EmailMultiAlternatives, get_connection
from django.core.mail.backends.smtp import EmailBackend

WHOLE_SECONDS = 30.0
_MOST_SAID = 300


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a try. `is_down`: nothing else that goes the same way would fare better now. `is_gone`: there is
    nobody any more where it went."""

    state: str  # sent, refused, failed
    why: str = ""
    retry_after: float | None = None
    is_down: bool = False
    is_gone: bool = False


SENT = Outcome("sent")


def is_set() -> bool:
    """Whether this installation sends mail at all."""
    return bool(settings.DURABLEAGENTS.mail)


def post(to: str, subject: str, text: str, *, html: str = "", message: UUID | None = None) -> Outcome:
    """Hand over one mail. The same `message` is the same mail to whoever gets it twice."""
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
        code, said = next(iter(error.recipients.values()), (0, b""))
        return _answered(code, said)
    except smtplib.SMTPDataError as error:
        return _answered(error.smtp_code, error.smtp_error)
    except (smtplib.SMTPException, OSError) as error:
        return Outcome("failed", _in_words(error), is_down=True)
    return SENT


def _answered(code: int, said: bytes | str) -> Outcome:
    """What the server said to this one mail: 5xx is for good."""
    words = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
    return Outcome("refused" if code // 100 == 5 else "failed", f"the mail server said {code} {words}"[:_MOST_SAID])


def _in_words(error: BaseException) -> str:
    return f"the mail server can't be used: {type(error).__name__}: {error}"[:_MOST_SAID]


# --- cutting off ------------------------------------------------------------------------------------------------------


class _Cut:
    """The connection of one mail, to be cut from another thread: also while it is still being made."""

    def __init__(self) -> None:
        self.server: Any = None

    def cut(self) -> None:
        """What waits for the server fails at once."""
        with suppress(OSError, AttributeError):
            self.server.sock.shutdown(socket.SHUT_RDWR)


class Backend(EmailBackend):
    """Django's, which a slow server can't hold for ever."""

    def send_messages(self, email_messages: Any) -> int:
        with self._timed():
            return super().send_messages(email_messages) or 0

    @contextmanager
    def _timed(self) -> Iterator[None]:
        self._cut = _Cut()
        timer = threading.Timer(WHOLE_SECONDS, self._cut.cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    @property
    def connection_class(self) -> Any:
        """Of the standard library, known from its first byte on."""
        base, cut = (smtplib.SMTP_SSL if self.use_ssl else smtplib.SMTP), self._cut

        class Known(base):  # type: ignore[misc, valid-type]
            def _get_socket(self, *where: Any) -> Any:
                cut.server = self
                return super()._get_socket(*where)

        return Known
