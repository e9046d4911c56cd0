"""Mail that somebody waits for by hand: invitations and password resets.

It is sent after the answer, by one thread of the web process: how long a mail server takes must not tell whether there
was anybody to write to. What could not be sent is said in the log, without what was in it; whoever waits asks again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import BoundedSemaphore

from django.db import connection

from approvals.notices.mail import is_set as is_set
from approvals.notices.mail import post
from ledger.errors import Busy

log = logging.getLogger(__name__)

MOST_WAITING = 100
_room = BoundedSemaphore(MOST_WAITING)
_courier = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mail")


def later(job: Callable[[], None]) -> Future[None]:
    """Do it when those before are done, with a database connection of its own. Raises Busy when too many wait."""
    if not _room.acquire(blocking=False):
        raise Busy("Too much mail is waiting to be sent")

    def done() -> None:
        try:
            job()
        except Exception:
            # Nobody waits for this thread's answer: the log is where it can be said.
            log.exception("mail was not sent")
            raise
        finally:
            connection.close()
            _room.release()

    return _courier.submit(done)


def send(to: str, subject: str, body: str) -> None:
    """One mail, now. That the server didn't take it is a line in the log."""
    outcome = post(to, subject, body)
    if outcome.state != "sent":
        log.error("mail to %s was not sent: %s", to, outcome.why)
