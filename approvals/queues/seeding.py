"""The queues that the settings name, put in once: what an administrator has changed, closed or removed since stays as
they left it."""

from __future__ import annotations

from contextlib import suppress

from django.conf import settings
from django.db import IntegrityError, connections, transaction

from approvals.queue_models import Queue
from ledger.clock import database_now

BY = "system:settings"
_COLUMNS = "SELECT column_name FROM information_schema.columns WHERE table_name = 'approvals_queue'"


def seed(using: str = "default") -> None:
    """Whatever the settings name and nobody has ever seen. After `migrate`; an upgraded installation keeps so exactly
    the queues that it had, and who decides them."""
    with connections[using].cursor() as cursor:
        cursor.execute(_COLUMNS)
        there = {name for (name,) in cursor.fetchall()}
    if not there >= {field.column for field in Queue._meta.concrete_fields}:
        return  # migrated to a version from before there were any, or where they said less
    known = {name.lower() for name in Queue.objects.using(using).values_list("name", flat=True)}
    now = database_now()
    for name, role in settings.DURABLEAGENTS_QUEUES.items():
        if name.lower() in known:
            continue
        title = name.replace("_", " ").capitalize()
        queue = Queue(name=name, title=title, role=role, set_by=BY, made_at=now, changed_at=now)
        queue.seal()
        with suppress(IntegrityError), transaction.atomic(using):  # another `migrate` was faster
            queue.save(using=using, force_insert=True)
