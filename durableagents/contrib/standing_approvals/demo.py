"""The demo's limits of standing approvals. The limits are set once; people's later changes are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial

from durableagents.contrib.standing_approvals.services import BoundsBody, set_limits
from ledger.actors import Actor
from ledger.models import ActRecord

QUEUE = "customer_refunds"


def settings(by: Actor, justification: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the function that sets the limits at the demo's queue, unless somebody has ever set them."""
    if not ActRecord.objects.filter(queue=QUEUE, action="queue_grants").exists():
        body = BoundsBody(times=10, days=90, sum=Decimal(2500), justification=justification)
        yield "limits of standing approvals", partial(set_limits, QUEUE, body, by=by)
