"""Wake-ups of workers, sent over django-q2.
A message names a run, but is only a hint; the run table is the queue. Only one function can be queued, because
django-q2 would run any importable name and load any pickle."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.dispatch import receiver
from django_q.signals import pre_enqueue
from django_q.tasks import async_task

from runs.journal.notify import notify_after_commit

CHANNEL = "durableagents_queue"
DRIVE = "runs.workers.worker_process.drive"
# The options that a message may contain. Hooks and chains name functions too, and `sync` would run the function here.
_OPTIONS = frozenset({"id", "name", "func", "args", "kwargs", "started", "ack_failure", "cluster", "group"})

# For connections other than Django's: the row belongs in the transaction that makes the run ready, the notification
# after it.
ENQUEUE_SQL = "INSERT INTO django_q_ormq (key, payload, lock) VALUES ('durableagents', %s, clock_timestamp())"
NOTIFY_SQL = (
    # the same as in runs/journal/notify.py
    f"SELECT set_config('synchronous_commit', 'off', true), pg_notify('{CHANNEL}', '')"
)
# Each run is announced to one worker (runs/sql/claims.sql), which must have sent a heartbeat within this time.
FRESH_SECONDS = 2.5
CALL_SQL = f"SELECT runs_call('{CHANNEL}', %s, {FRESH_SECONDS})"

# django-q2 logs each message sent and received, which is too much for wake-ups.
logging.getLogger("django-q").setLevel(logging.WARNING)


class NotQueueable(TypeError):
    """Only the allowed function can be queued, with exactly one run id."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(
            f"{what} can't be queued: {why}. Wake a run with runs.services.wakeups.drive(run_id); "
            "put other work into an agent."
        )


def drive(run_id: UUID) -> None:
    """Queue a wake-up for a run. It commits or rolls back with the caller's transaction."""
    async_task(DRIVE, str(run_id))


def ring(run_id: UUID | str) -> None:
    """Notify a worker of a queued run after the commit."""
    # The function catches and logs its own errors.
    transaction.on_commit(partial(notify_after_commit, connection, CALL_SQL, [str(run_id)]))


@receiver(pre_enqueue, dispatch_uid="runs.services.wakeups.refuse")
def refuse(task: dict[str, Any], **_: Any) -> None:
    """Refuse any message that isn't a wake-up, before anything is pickled or stored. Raises NotQueueable."""
    name = _name(task["func"])
    if inspect.iscoroutinefunction(task["func"]):
        raise NotQueueable(name, "it is an async function, which django-q2 can't run")
    if name != DRIVE:
        raise NotQueueable(name, "it is not the allowed function")
    if extra := set(task) - _OPTIONS or set(task["kwargs"]):
        raise NotQueueable(name, f"a wake-up does not accept {', '.join(sorted(extra))}")
    if len(task["args"]) != 1 or not is_run_id(task["args"][0]):
        raise NotQueueable(name, "a wake-up must have exactly one id")


def is_run_id(value: object) -> bool:
    try:
        UUID(str(value))
    except ValueError:
        return False
    return True


def _name(func: str | Callable[..., Any]) -> str:
    if isinstance(func, str):
        return func
    return f"{getattr(func, '__module__', '?')}.{getattr(func, '__qualname__', type(func).__qualname__)}"
