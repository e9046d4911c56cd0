"""Registers what people configure as protected rows: see ledger/protected.py."""

from __future__ import annotations

from approvals.models import Absence, Calendar, Policy, StandingEnd, StandingGrant, Timing
from approvals.queue_models import Deputy, Limit, Queue
from ledger.models import FourEyes
from ledger.protected import protect

for model, what, named_by in (
    (Queue, "queue", "name"),
    (Limit, "approval limit", "id"),
    (Deputy, "deputy", "id"),
    (Absence, "absence", "id"),
    (Policy, "policy", "name"),
    (Calendar, "calendar", "name"),
    (Timing, "deadlines of queue", "queue_id"),
    (StandingGrant, "standing approval", "id"),
    (StandingEnd, "end of standing approval", "grant_id"),
    (FourEyes, "two-person rule", "n"),
):
    protect(model, what, named_by=named_by)
