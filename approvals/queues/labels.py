"""Seed the queues from the settings; label the fields of queue forms, for links from errors to fields."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from django.conf import settings
from django.db import IntegrityError, connections, transaction

from approvals.queue_models import Queue
from approvals.queues.who import Unchanged
from ledger.clock import database_now
from ledger.web.page_forms import Refused
from runs import features

BY = "system:settings"
_COLUMNS = "SELECT column_name FROM information_schema.columns WHERE table_name = 'approvals_queue'"


def seed(using: str = "default") -> None:
    """After `migrate`, create each queue in the settings that has never existed. Existing queues keep their roles."""
    with connections[using].cursor() as cursor:
        cursor.execute(_COLUMNS)
        there = {name for (name,) in cursor.fetchall()}
    if not there >= {field.column for field in Queue._meta.concrete_fields}:
        return  # migrated to an older version
    known = {name.lower() for name in Queue.objects.using(using).values_list("name", flat=True)}
    now = database_now()
    for name, role in settings.DURABLEAGENTS_QUEUES.items():
        if name.lower() in known:
            continue
        title = name.replace("_", " ").capitalize()
        queue = Queue(name=name, title=title, role=role, set_by=BY, made_at=now, changed_at=now)
        queue.seal()
        with suppress(IntegrityError), transaction.atomic(using):  # a concurrent `migrate` was faster
            queue.save(using=using, force_insert=True)


Fields = dict[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Wrong:
    """An invalid form field: its anchor on the page, its label, and the problem."""

    at: str
    label: str
    words: str


def fields_in(form: str) -> Mapping[str, tuple[str, str]]:
    """Return the anchor and the label of each field of a form."""
    return FIELDS.get(form) or features.handler(lambda each: each.form_fields, form) or {}


def wrong_in(refused: Refused | None) -> list[Wrong]:
    """Return the invalid fields of a refused form.

    Empty if nothing would change, or if one of the fields isn't on the form. The page then shows the error's message.
    """
    if refused is None or isinstance(refused.error, Unchanged):
        return []
    fields = fields_in(refused.act)
    where = refused.at
    return [Wrong(*fields[name], words) for name, words in where.items()] if fields.keys() >= where.keys() else []


def fields_of(form: str, **labels: str) -> Fields:
    """Return the form fields; each anchor is the form's letter followed by the field's name."""
    return {name: (f"{form}-{name}", label) for name, label in labels.items()} | {
        "justification": (f"{form}-why", "Why")
    }


FIELDS: Mapping[str, Fields] = {
    "QueueLimits": fields_of("l", person="Person", most="Limit"),
    "QueueLifts": fields_of("f", person="Person"),
    "QueueProofs": fields_of("p", above="Above", risk="From risk level", minutes="Re-authenticate within (min)"),
    "QueueChanges": fields_of("c", title="Title", role="Approver group", currency="Currency"),
    "QueueClosings": fields_of("s"),
    "QueueOpenings": fields_of("s"),
    "QueueRemovals": fields_of("x"),
    "QueueReasons": fields_of("r", reasons="One per line"),
    "add_queue": fields_of("q", name="Name", title="Title", role="Approver group", currency="Currency"),
}
