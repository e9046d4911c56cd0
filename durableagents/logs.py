"""Log formats. A record is one line on stderr, followed by a traceback if there is one."""

from __future__ import annotations

import json
import logging
import re
import time
import traceback
from typing import Any

from ledger import context
from ledger.redacted import masked_text


class NotReadyIsAnAnswer(logging.Filter):
    """Drops the error line that Django logs for a 503 of /readyz, which is polled."""

    def filter(self, record: logging.LogRecord) -> bool:
        request = getattr(record, "request", None)
        return getattr(request, "path", None) != "/readyz"


class OutagesAreSaidElsewhere(logging.Filter):
    """Drops Django's tracebacks during an outage, because `problems` logs one line for all of them."""

    def filter(self, record: logging.LogRecord) -> bool:
        from ledger.errors import Busy
        from ledger.web.pressure import is_outage

        error = record.exc_info[1] if record.exc_info else None
        return not (is_outage(error) or isinstance(error, Busy))


class LinksStaySecret(logging.Filter):
    """Removes secrets from log messages and tracebacks.

    Messages (such as Django's error lines) lose one-time links (set-up, invitation, reset), callback tokens and
    idempotency keys; tracebacks lose the last two.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if (redacted := without_secrets(message)) != message:
            record.msg, record.args = redacted, None
        if record.exc_info and record.exc_info[0] is not None and not record.exc_text:
            record.exc_text = masked_text("".join(traceback.format_exception(*record.exc_info)).rstrip("\n"))
        return True


_LINK = re.compile(r"/(setup|invited|reset)/[^\s'\"<>]+")


def without_secrets(text: str) -> str:
    """Return the text without secrets of one-time links, and with idempotency keys and callback addresses masked."""
    return masked_text(_LINK.sub(r"/\1/…", text))


class Context(logging.Filter):
    """Adds the run and request of each record to it, as `record.context`."""

    _RUN = re.compile(r"\brun ([0-9a-f]{8}-[0-9a-f-]{27})\b")

    def filter(self, record: logging.LogRecord) -> bool:
        known: dict[str, str | int] = {}
        if (drive := context.drive.get()) is not None:
            known = {"run_id": drive.run_id, "trace_id": drive.trace_id, "epoch": drive.epoch}
        elif (named := self._RUN.search(record.getMessage())) is not None:
            known = {"run_id": named[1]}
        if (request := context.request.get()) is not None:
            known["request_id"] = request.id
            if request.trace_id:
                known.setdefault("trace_id", request.trace_id)
        record.context = known
        return True


class OneLine(logging.Formatter):
    """Format a record as one line: `2026-01-31T12:00:00.123Z INFO 4711 runs.workers.run_loop claimed 3 runs`

    Newlines in a message (it may quote an agent) are escaped, so that no record can be mistaken for two. Tracebacks
    keep their newlines.
    """

    converter = staticmethod(time.gmtime)  # type: ignore[assignment]
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(process)d %(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        line = super().formatMessage(record).replace("\r", "\\r").replace("\n", "\\n")
        known: dict[str, str | int] = getattr(record, "context", {})
        return f"{line} [{' '.join(f'{name}={value}' for name, value in known.items())}]" if known else line


class OneObject(OneLine):
    """Format a record as one JSON object in ASCII, with the traceback as a member.

    Extra fields can't replace standard members.
    """

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = dict(getattr(record, "fields", {})) | {
            "time": self.formatTime(record),
            "level": record.levelname,
            "pid": record.process,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "context", {}),
        }
        if record.exc_info:
            fields["exception"] = record.exc_text or self.formatException(record.exc_info)
        if record.stack_info:
            fields["stack"] = record.stack_info
        return json.dumps(fields, default=str)
