"""How far standing grants may go at a queue, as administrators set it."""

from __future__ import annotations

from django.db import transaction

from approvals.granting.bodies import BoundsBody
from approvals.grants import Bounds
from approvals.queue_models import Queue
from approvals.queues.acts import snapshot, store, unmoved
from approvals.queues.who import PERMISSION, Unchanged, as_admin, wrong
from ledger.actors import Actor
from ledger.append import justified
from ledger.four_eyes.guards import second


@second("queues", needs=PERMISSION)
@transaction.atomic
def allow(name: str, body: BoundsBody, *, seen: str | None = None, by: Actor) -> Queue:
    """Set how far whoever decides there may allow the same again; no times: not at all. What was given before goes on
    as it was given. Raises InvalidInput by the field that is wrong, Moved, NotFound, Forbidden,
    JustificationRequired."""
    by, why = as_admin(by), justified("queue_grants", body.justification)
    queue = unmoved(name, "again", seen)
    if body.times and not body.days:
        raise wrong("days", "are 0, so none could be given", "for how many days at most")
    if not body.times and (body.days or body.sum is not None):
        raise wrong("times", "are 0, so none may be given", "how often at most, or leave out the rest")
    before = snapshot(queue)
    queue.again = Bounds(body.times, body.days, body.sum).as_json() if body.times else None
    if snapshot(queue) == before and queue.is_genuine:
        raise Unchanged("times", "say how far they may go another way")
    return store("queue_grants", queue, by=by, before=before, why=why)
