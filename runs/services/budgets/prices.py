"""The prices of model tokens.
Rows never change, and the price that applied to a request is in the journal. Workers cache the table, so a new price
takes effect up to `FRESH_SECONDS` after the time from which it is valid."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from ledger.actors import Actor
from ledger.append import acted
from ledger.change_control import two_person
from ledger.clock import database_now
from ledger.errors import InvalidInput
from ledger.protected import ChangedOutside, wrong_in
from runs.engine.agents import Agent
from runs.engine.assistants import SCRIPTED, Assistant
from runs.engine.budget import Price, Route, usd_of
from runs.models import Price as PriceRow
from runs.protected import PRICE

FRESH_SECONDS = 5.0
SHIPPED_BY = "system:shipped"
# Public list prices in millionths of a dollar per million tokens, input and output. The prices are inserted once, for
# models without any price. Your own prices may differ, so check them.
SHIPPED = {
    "openai:gpt-4.1": (2_000_000, 8_000_000),
    "openai:gpt-4.1-mini": (400_000, 1_600_000),
    "openai:gpt-4o": (2_500_000, 10_000_000),
    "openai:gpt-4o-mini": (150_000, 600_000),
    "anthropic:claude-sonnet-4-0": (3_000_000, 15_000_000),
    "anthropic:claude-opus-4-0": (15_000_000, 75_000_000),
    "anthropic:claude-3-5-haiku-latest": (800_000, 4_000_000),
}
# The newest price in force for each model.
_IN_FORCE = """
    SELECT DISTINCT ON (model) model, id, usd_micro_in, usd_micro_out, {proof}::text FROM runs_price t
    WHERE valid_from <= clock_timestamp() ORDER BY model, valid_from DESC, id DESC""".format(proof=PRICE.proof_sql("t"))


class PriceTable:
    """The prices in force, cached for a few seconds."""

    def __init__(self) -> None:
        self._prices: dict[str, Price] = {}
        self.changed_outside: dict[str, tuple[str, str]] = {}  # prices from rows that were changed outside are not used
        self._read_at = float("-inf")
        self._lock = threading.Lock()

    def read(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(_IN_FORCE)
            self._take(cursor.fetchall())

    async def refresh_with(self, link: AsyncConnection[TupleRow]) -> None:
        """Refresh the prices on a worker's connection before it claims runs.
        A worker may not begin a run without the prices of its models."""
        if time.monotonic() - self._read_at >= FRESH_SECONDS:
            self._take(await (await link.execute(_IN_FORCE)).fetchall())

    def _take(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self.changed_outside = {model: wrong for model, *_, proof in rows if (wrong := wrong_in(proof))}
        self._prices = {
            model: Price(id, model, in_, out) for model, id, in_, out, _ in rows if model not in self.changed_outside
        }
        self._read_at = time.monotonic()

    def refresh(self) -> None:
        """Read the table unless the cache is fresh."""
        with self._lock:
            if time.monotonic() - self._read_at >= FRESH_SECONDS:
                self.read()

    def of(self, model: str) -> Price | None:
        """Return a model's price; None if there is none."""
        return self._prices.get(model)


table = PriceTable()


def models_of(assistant: Assistant) -> list[str]:
    """Return the models that an assistant uses in a run that begins now, as named in the journal.
    These are the assistant's own models, or else the installation's. If the installation has no models, an assistant
    that has an offline function or no models of its own uses its own function instead of a model.
    """
    installed = settings.DURABLEAGENTS.models
    if not installed and (assistant.offline is not None or not assistant.models):
        return [f"{SCRIPTED}{assistant.name}"]
    return list(assistant.models or installed)


def route(model: str) -> Route:
    return Route(model, table.of(model))


def unpriced(agent: Agent) -> list[str]:
    return without_price(model for assistant in agent.assistants for model in models_of(assistant))


def without_price(models: Iterable[str]) -> list[str]:
    """Return which of these models have no price, sorted."""
    table.read()
    return sorted({model for model in models if table.of(model) is None})


def check_priced(agent: Agent, given: str = "") -> None:
    """Check that a cap in dollars can be enforced: every model needs a price.
    `given` tells where the cap comes from. Raises InvalidInput for a missing price, ChangedOutside for one that was
    written outside the application."""
    unknown = unpriced(agent)
    if changed := [table.changed_outside[model] for model in unknown if model in table.changed_outside]:
        raise ChangedOutside(*changed[0])
    if unknown:
        raise InvalidInput(
            f"A budget in dollars{given} needs the price of every model that {agent.graph_id} uses; "
            f"there is none for {', '.join(unknown)}.",
            errors=[
                {
                    "field": "budget.usd",
                    "problem": f"no price for {model}",
                    "fix": "an administrator sets it under Prices",
                }
                for model in unknown
            ],
        )


def in_force() -> list[PriceRow]:
    """Return the newest price in force of each model, ordered by model."""
    return list(
        PriceRow.objects.filter(valid_from__lte=database_now())
        .order_by("model", "-valid_from", "-id")
        .distinct("model")
    )


def add_price(
    model: str, *, usd_micro_in: int, usd_micro_out: int, valid_from: datetime | None = None, by: str
) -> PriceRow:
    """Add a price that is valid from a given time (default: now)."""
    now = database_now()
    return PriceRow.objects.create(
        model=model,
        usd_micro_in=usd_micro_in,
        usd_micro_out=usd_micro_out,
        valid_from=valid_from or now,
        set_by=by,
        set_at=now,
    )


def ship(prices: Iterable[tuple[str, tuple[int, int]]] = SHIPPED.items()) -> int:
    """Insert the shipped prices of models that have no price. Returns the number of inserted prices."""
    known = set(PriceRow.objects.values_list("model", flat=True).distinct())
    new = [(model, price) for model, price in prices if model not in known]
    for model, (usd_micro_in, usd_micro_out) in new:
        add_price(model, usd_micro_in=usd_micro_in, usd_micro_out=usd_micro_out, by=SHIPPED_BY)
    return len(new)


@two_person("prices", needs="runs.add_price", moving=frozenset({"valid_from"}))
@transaction.atomic
def set_price(
    model: str, *, usd_micro_in: int, usd_micro_out: int, valid_from: datetime | None = None, by: Actor
) -> PriceRow:
    """Set and record a model's price from a given time (default: now).
    The price is in micro-dollars per million tokens."""
    row = add_price(model, usd_micro_in=usd_micro_in, usd_micro_out=usd_micro_out, valid_from=valid_from, by=by.ref)
    after = {"usd_in": usd_of(row.usd_micro_in), "usd_out": usd_of(row.usd_micro_out)}
    after["begins"] = "at once" if valid_from is None else row.valid_from.isoformat()
    acted("price", by=by, subject=row.model, after={**after, "valid_from": row.valid_from.isoformat()})
    return row
