"""Registers what people configure as protected rows: see ledger/protected.py."""

from __future__ import annotations

from approvals.models import Policy, StandingEnd, StandingGrant
from approvals.outbox import Channel, Device
from approvals.queue_models import Deputy, Limit, Queue
from ledger.protected import protect

for model, what, named_by in (
    (Queue, "queue", "name"),
    (Limit, "approval limit", "id"),
    (Deputy, "deputy", "id"),
    (Policy, "policy", "name"),
    (Channel, "channel", "name"),
    (Device, "device", "id"),
    (StandingGrant, "standing approval", "id"),
    (StandingEnd, "end of standing approval", "grant_id"),
):
    protect(model, what, named_by=named_by)
