"""Settings of the demo's queue for refunds, so that people can try all of them: reasons, limits, proof, and apps' own.

Each is set once, by a recorded act; later changes and removals by people are kept. If a start is killed halfway, the
next one sets the rest.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial

from django.apps import apps

from approvals.models import Queue
from approvals.queues.acts import LimitBody, ProofBody, ReasonsBody, limit, offer, prove
from durableagents.demo.registration import QUEUES
from ledger.actors import Actor
from ledger.errors import DurableAgentsError
from ledger.models import ActRecord

QUEUE = "customer_refunds"
# The person who starts it has a shell on the machine, and the record says so.
BY = Actor(kind="system", name="demo", auth="shell")
WHY = "Demo settings of a queue."

_REASONS = [
    "The goods were damaged on our side.",
    "A regular customer: we want to keep them.",
    "The amount is not what the damage is worth.",
    "We need a picture of the damage first.",
]


def put_oversight() -> None:
    """Make the settings that have never been made. If one is refused, print that and make the others."""
    queue = Queue.objects.filter(name=QUEUE, role=QUEUES[QUEUE], state=Queue.State.OPEN).first()
    if queue is None:  # someone has closed, removed or given it away, or made one of that name
        return
    for what, act in _wanted():
        try:
            act()
        except DurableAgentsError as refused:
            print(f"up: the demo's {what} is left out: {refused.detail}", file=sys.stderr)


def _wanted() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the settings that are still missing, in order: name and act."""
    of_queue = {(act.action, act.subject) for act in ActRecord.objects.filter(queue=QUEUE)}
    actions = {action for action, _ in of_queue}
    if "queue_reasons" not in actions:
        yield "reasons", partial(offer, QUEUE, ReasonsBody(reasons=_REASONS, justification=WHY), by=BY)
    if "queue_proof" not in actions:
        shown = ProofBody(type_amount=True, above=Decimal(1000), justification=WHY)
        yield "proof", partial(prove, QUEUE, shown, by=BY)
    for person, most in (("", Decimal(2500)), ("treasurer", Decimal(25_000))):
        if ("queue_limit", f"limit of {person or QUEUES[QUEUE]}") not in of_queue:
            body = LimitBody(person=person, most=most, justification=WHY)
            yield f"limit of {person or QUEUES[QUEUE]}", partial(limit, QUEUE, body, by=BY)
    for app in apps.get_app_configs():  # an app's config may have a method `demo_settings`
        yield from getattr(app, "demo_settings", lambda **_: ())(by=BY, justification=WHY)
