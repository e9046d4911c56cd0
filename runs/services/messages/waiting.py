"""Waiting for a message's answer without holding anything but a thread, and only so many of those."""

from __future__ import annotations

import threading
import time

from django.db import connection

from runs.models import Message

LONGEST_SECONDS = 30
MOST_WAITERS = 2  # of the eight that are worked on at once, durableagents/server/admission.py
_PAUSES = (0.02, 0.05, 0.1, 0.2, 0.3)
_waiters = threading.BoundedSemaphore(MOST_WAITERS)


def wait_for(message: Message, seconds: float) -> Message:
    """The message once it has been answered, or as it is after so many seconds. Looks again and again, each time by a
    statement of its own, and gives its connection back in between. Where as many wait in this process as it has threads
    to spare, it is given as it is at once: whoever sent it asks for it later."""
    if message.outcome or seconds <= 0 or not _waiters.acquire(blocking=False):
        return message
    try:
        until, turn = time.monotonic() + min(seconds, LONGEST_SECONDS), 0
        while not message.outcome and (left := until - time.monotonic()) > 0:
            if not connection.in_atomic_block:
                connection.close()
            time.sleep(min(_PAUSES[min(turn, len(_PAUSES) - 1)], left))
            turn += 1
            message = Message.objects.get(pk=message.pk)
    finally:
        _waiters.release()
    return message
