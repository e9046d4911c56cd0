"""Setting what a model's tokens cost."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from ledger.actors import Actor
from ledger.append import acted
from ledger.change_control import two_person
from runs.engine.budget import usd_of
from runs.models import Price
from runs.services.budgets import prices


@two_person("prices", needs="runs.add_price", moving=frozenset({"valid_from"}))
@transaction.atomic
def set_price(
    model: str, *, usd_micro_in: int, usd_micro_out: int, valid_from: datetime | None = None, by: Actor
) -> Price:
    """Set and record a model's price from a time on (default: now), in micro-dollars per million tokens."""
    row = prices.add_price(
        model, usd_micro_in=usd_micro_in, usd_micro_out=usd_micro_out, valid_from=valid_from, by=by.ref
    )
    after = {"usd_in": usd_of(row.usd_micro_in), "usd_out": usd_of(row.usd_micro_out)}
    after["begins"] = "at once" if valid_from is None else row.valid_from.isoformat()
    acted("price", by=by, subject=row.model, after={**after, "valid_from": row.valid_from.isoformat()})
    return row
