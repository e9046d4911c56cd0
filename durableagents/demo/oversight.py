"""What administrators say of the demo's queue for refunds, so that all of it is there to be tried: a calendar, deadlines,
reasons, limits, what a yes has to show, how far the same again may be allowed, a deputy and a policy.

Each is an act like an administrator's, on record with its reason. It is done once: whatever someone has said of the
same since, or has taken away, stays as they left it. A start that is killed in the middle is gone on with by the next.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial

from django.apps import apps

from approvals.granting.acts import BoundsBody, allow
from approvals.models import Policy, Queue
from approvals.policies import acts as policies
from approvals.policies.acts import NewPolicyBody
from approvals.queues.acts import LimitBody, ProofBody, ReasonsBody, limit, offer, prove
from durableagents.demo.registration import QUEUES
from ledger.actors import Actor
from ledger.errors import DurableAgentsError
from ledger.models import ActRecord

QUEUE = "customer_refunds"
POLICY = "large_customer_refunds"
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
    """What nobody has said anything about yet. What can't be said is told on the terminal, and keeps nothing else from
    being said."""
    queue = Queue.objects.filter(name=QUEUE, role=QUEUES[QUEUE], state=Queue.State.OPEN).first()
    if queue is None:  # someone has closed, removed or given it away, or made one of that name
        return
    for what, act in _wanted():
        try:
            act()
        except DurableAgentsError as refused:
            print(f"up: the demo's {what} is left out: {refused.detail}", file=sys.stderr)


def _wanted() -> Iterator[tuple[str, Callable[[], object]]]:
    """What is still to be said, in its order: each with its name and the act."""
    of_queue = {(act.action, act.subject) for act in ActRecord.objects.filter(queue=QUEUE)}
    actions = {action for action, _ in of_queue}
    if "queue_reasons" not in actions:
        yield "reasons", partial(offer, QUEUE, ReasonsBody(reasons=_REASONS, justification=WHY), by=BY)
    if "queue_proof" not in actions:
        shown = ProofBody(type_amount=True, above=Decimal(1000), justification=WHY)
        yield "proof", partial(prove, QUEUE, shown, by=BY)
    if "queue_grants" not in actions:
        again = BoundsBody(times=10, days=90, sum=Decimal(2500), justification=WHY)
        yield "bounds of standing grants", partial(allow, QUEUE, again, by=BY)
    for person, most in (("", Decimal(2500)), ("treasurer", Decimal(25_000))):
        if ("queue_limit", f"limit of {person or QUEUES[QUEUE]}") not in of_queue:
            body = LimitBody(person=person, most=most, justification=WHY)
            yield f"limit of {person or QUEUES[QUEUE]}", partial(limit, QUEUE, body, by=BY)
    if not Policy.objects.filter(name=POLICY).exists():
        yield f"policy {POLICY}", partial(policies.create, _policy(), by=BY)
    for app in apps.get_app_configs():  # an app's config may have a method `demo_settings`
        yield from getattr(app, "demo_settings", lambda **_: ())(by=BY, justification=WHY)


def _policy() -> NewPolicyBody:
    return NewPolicyBody(
        name=POLICY,
        agent="customer-refund",
        tool="refund_customer",
        condition="args.amount_usd > 5000",
        effect="require",
        queue="legal",
        within_hours=48,
        rule="A refund above $5,000 also needs legal",
        justification=WHY,
    )
