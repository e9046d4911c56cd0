"""Log format: one record per line on stderr, followed by a traceback if any."""

from __future__ import annotations

import logging
import re
import time
import traceback

from ledger.redacted import masked_text


class NotReadyIsAnAnswer(logging.Filter):
    """Drops Django's error line for a 503 of /readyz, which is polled."""

    def filter(self, record: logging.LogRecord) -> bool:
        request = getattr(record, "request", None)
        return getattr(request, "path", None) != "/readyz"


class OutagesAreSaidElsewhere(logging.Filter):
    """Drops Django's tracebacks during an outage: `problems` logs one line for all."""

    def filter(self, record: logging.LogRecord) -> bool:
        from ledger.errors import Busy
        from ledger.web.pressure import is_outage

        error = record.exc_info[1] if record.exc_info else None
        return not (is_outage(error) or isinstance(error, Busy))


class LinksStaySecret(logging.Filter):
    """Removes one-time links (set-up, invitation, reset), callback tokens and idempotency keys from log messages, such
    as Django's error lines, and the last two from tracebacks."""

    _LINK = re.compile(r"/(setup|invited|reset)/[^\s'\"<>]+")

    def filter(self, record: logging.LogRecord) -> bool:
        said = record.getMessage()
        if (told := masked_text(self._LINK.sub(r"/\1/…", said))) != said:
            record.msg, record.args = told, None
        if record.exc_info and record.exc_info[0] is not None and not record.exc_text:
            record.exc_text = masked_text("".join(traceback.format_exception(*record.exc_info)).rstrip("\n"))
        return True


class OneLine(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO 4711 runs.workers.run_loop claimed 3 runs` Newlines in a message (it may quote an
    agent) are escaped, so that no record can pose as two. Tracebacks keep theirs."""

    converter = staticmethod(time.gmtime)  # type: ignore[assignment]
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(process)d %(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        return super().formatMessage(record).replace("\r", "\\r").replace("\n", "\\n")
