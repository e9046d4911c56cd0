"""Mail for invitations and password resets, sent by one thread after the response.

The time a response takes must not reveal whether there was a recipient. Failures are logged without the content of the
mail.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import BoundedSemaphore

from django.db import connection

from durableagents.outgoing import mail
from durableagents.outgoing.mail import is_set as is_set
from ledger.errors import Busy

log = logging.getLogger(__name__)

MAX_WAITING = 100
_room = BoundedSemaphore(MAX_WAITING)
_courier = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mail")


def later(job: Callable[[], None]) -> Future[None]:
    """Queue a job. It runs after those already waiting, with its own database connection.

    Raises Busy if too many jobs are waiting.
    """
    if not _room.acquire(blocking=False):
        raise Busy("Too much mail is waiting to be sent")

    def done() -> None:
        try:
            job()
        except Exception:
            # Nobody reads this thread's result, so failures are logged here.
            log.exception("mail was not sent")
            raise
        finally:
            connection.close()
            _room.release()

    return _courier.submit(done)


def send(to: str, subject: str, body: str) -> None:
    """Send one mail now. A failure is logged."""
    outcome = mail.send(to, subject, body)
    if outcome.state != "sent":
        log.error("mail to %s was not sent: %s", to, outcome.why)
