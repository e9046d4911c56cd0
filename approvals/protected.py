"""Register people's settings as protected rows: see ledger/protected.py."""

from __future__ import annotations

from approvals.queue_models import Deputy, Limit, Queue
from ledger.protected import protect

for model, what, named_by in (
    (Queue, "queue", "name"),
    (Limit, "approval limit", "id"),
    (Deputy, "deputy", "id"),
):
    protect(model, what, named_by=named_by)
