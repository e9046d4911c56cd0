"""One record, one line on stderr: time, level, process, logger, message; a traceback follows it."""

from __future__ import annotations

import logging
import re
import time


class NotReadyIsAnAnswer(logging.Filter):
    """Drops Django's error line for a 503 of /readyz: whoever asks is told, and asks often."""

    def filter(self, record: logging.LogRecord) -> bool:
        request = getattr(record, "request", None)
        return getattr(request, "path", None) != "/readyz"


class OutagesAreSaidElsewhere(logging.Filter):
    """Drops Django's traceback for a request that found the database away or busy: `problems` says so in one line, for
    all of them."""

    def filter(self, record: logging.LogRecord) -> bool:
        from ledger.errors import Busy
        from ledger.web.pressure import is_outage

        error = record.exc_info[1] if record.exc_info else None
        return not (is_outage(error) or isinstance(error, Busy))


class LinksStaySecret(logging.Filter):
    """What lets somebody in once (a set-up link, an invitation, a password reset) is in no log, whoever quotes the
    address: Django's line for an error in that page does."""

    _LINK = re.compile(r"/(setup|invited|reset)/[^\s'\"<>]+")

    def filter(self, record: logging.LogRecord) -> bool:
        said = record.getMessage()
        if (told := self._LINK.sub(r"/\1/…", said)) != said:
            record.msg, record.args = told, None
        return True


class OneLine(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO 4711 runs.workers.run_loop claimed 3 runs`

    A newline inside a message (it may quote an agent's words) is shown as such, so no record can
    pretend to be two. Tracebacks keep their lines: they are ours.
    """

    converter = staticmethod(time.gmtime)  # type: ignore[assignment]
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(process)d %(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        return super().formatMessage(record).replace("\r", "\\r").replace("\n", "\\n")
