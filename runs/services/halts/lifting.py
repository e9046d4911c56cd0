"""What follows when less is halted than before: runs that were put aside go on, and deadlines that were put off by way
of precaution are what they should be. Any worker's housekeeping does it, some at a time; nothing of it is lost with a
process, for what is put aside stands in a table."""

from __future__ import annotations

import time

from django.db import connection

from runs.journal import notify
from runs.services.halts.standing import pull_back
from runs.services.wakeups import NOTIFY_SQL

_LOCK = 7_231_065  # any number, the same in every process
BATCH = 500
# One pass lasts no longer, however many there are: the same thread looks for dead workers.
PASS_SECONDS = 0.25


def let_go() -> int:
    """Let runs go on that nothing halts any more. Returns how many were looked at."""
    until, done = time.monotonic() + PASS_SECONDS, 0
    while (dealt_with := _let_go()) and time.monotonic() < until:
        done += dealt_with
    pull_back()
    return done + dealt_with


def _let_go() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT runs_let_go(%s, %s)", [_LOCK, BATCH])
        dealt_with = int(cursor.fetchone()[0])
    if dealt_with:
        notify.notify_after_commit(connection, NOTIFY_SQL)
    return dealt_with
