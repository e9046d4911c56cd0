"""What people set up, as protected rows (see ledger/protected.py). A code of its own says what each row holds; this one
says that the row is there, so that one that is deleted or put in by SQL is found."""

from __future__ import annotations

from approvals.models import Absence, Policy, StandingEnd, StandingGrant, Timing
from approvals.outbox import Channel
from approvals.queue_models import Deputy, Limit, Queue
from ledger.models import FourEyes
from ledger.protected import protect

for model, what, named_by in (
    (Queue, "queue", "name"),
    (Limit, "approval limit", "id"),
    (Deputy, "deputy", "id"),
    (Absence, "absence", "id"),
    (Policy, "policy", "name"),
    (Timing, "deadlines of queue", "queue_id"),
    (Channel, "channel", "name"),
    (StandingGrant, "standing approval", "id"),
    (StandingEnd, "end of standing approval", "grant_id"),
    (FourEyes, "two-person rule", "n"),
):
    columns = {each.column for each in model._meta.concrete_fields if not each.primary_key}
    protect(model, what, named_by=named_by, free=frozenset(columns))
