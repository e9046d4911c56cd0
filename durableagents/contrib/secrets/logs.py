"""Keeps the values of secrets out of log records, whichever handler writes them."""

from __future__ import annotations

import logging
import traceback
from typing import Any

from ledger import scrubbing


def install() -> None:
    """Install a filter for all log records of this process. Calling it again changes nothing."""
    make = logging.getLogRecordFactory()
    if getattr(make, "scrubs", False):
        return

    def made(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        if scrubbing.scrubber is not None:
            _scrub(record, scrubbing.scrubber)
        return record

    made.scrubs = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(made)


def _scrub(record: logging.LogRecord, scrubber: scrubbing.Scrubber) -> None:
    try:
        message = record.getMessage()
    except (TypeError, ValueError, KeyError):  # logging itself would print the arguments
        message = f"{record.msg} {record.args!r}"
        record.msg, record.args = message, None
    if (clean := scrubber.error(message)) != message:
        record.msg, record.args = clean, None
    if record.exc_info and record.exc_info[1] is not None:
        text = "".join(traceback.format_exception(record.exc_info[1])).rstrip("\n")
        if (clean := scrubber.error(text)) != text:
            record.exc_text = clean  # formatters use this text instead of formatting `exc_info`
