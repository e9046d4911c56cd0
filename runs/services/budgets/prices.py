"""The price table: what a model's tokens cost, from when on. Rows are never changed; the one that counted for a request
is on the journal.

A worker asks for a price with each request, so the table is kept in memory and read anew every few seconds: a new price
counts from its time on, within `FRESH_SECONDS`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import connection
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from ledger.clock import database_now
from ledger.errors import InvalidInput
from ledger.protected import ChangedOutside, wrong_in
from runs.engine.agents import Agent
from runs.engine.assistants import SCRIPTED, Assistant
from runs.engine.budget import Price, Route
from runs.models import Price as PriceRow
from runs.protected import PRICE

FRESH_SECONDS = 5.0
SHIPPED_BY = "system:shipped"
# What ships: public list prices in millionths of a dollar for a million tokens, in and out, for installations that have
# said nothing else. They are put into the table once, for a model that it doesn't know; what you pay may be another
# matter, so look at them.
SHIPPED = {
    "openai:gpt-4.1": (2_000_000, 8_000_000),
    "openai:gpt-4.1-mini": (400_000, 1_600_000),
    "openai:gpt-4o": (2_500_000, 10_000_000),
    "openai:gpt-4o-mini": (150_000, 600_000),
    "anthropic:claude-sonnet-4-0": (3_000_000, 15_000_000),
    "anthropic:claude-opus-4-0": (15_000_000, 75_000_000),
    "anthropic:claude-3-5-haiku-latest": (800_000, 4_000_000),
}
# The newest row whose time has come, for each model; and the time from which on another one counts.
_IN_FORCE = """
    SELECT DISTINCT ON (model) model, id, usd_micro_in, usd_micro_out, {proof}::text FROM runs_price t
    WHERE valid_from <= clock_timestamp() ORDER BY model, valid_from DESC, id DESC""".format(proof=PRICE.proof_sql("t"))


class PriceTable:
    """The prices in force, as of a few seconds ago."""

    def __init__(self) -> None:
        self._prices: dict[str, Price] = {}
        self.changed_outside: dict[str, tuple[str, str]] = {}  # no price is taken from such a row
        self._read_at = float("-inf")
        self._lock = threading.Lock()

    def read(self) -> None:
        """Read the table now."""
        with connection.cursor() as cursor:
            cursor.execute(_IN_FORCE)
            self._take(cursor.fetchall())

    async def refresh_with(self, link: AsyncConnection[TupleRow]) -> None:
        """As `refresh`, for a worker that is about to claim: what it doesn't know the price of it may not begin."""
        if time.monotonic() - self._read_at >= FRESH_SECONDS:
            self._take(await (await link.execute(_IN_FORCE)).fetchall())

    def _take(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self.changed_outside = {model: wrong for model, *_, proof in rows if (wrong := wrong_in(proof))}
        self._prices = {
            model: Price(id, model, in_, out) for model, id, in_, out, _ in rows if model not in self.changed_outside
        }
        self._read_at = time.monotonic()

    def refresh(self) -> None:
        """Read the table, unless somebody did a moment ago."""
        with self._lock:
            if time.monotonic() - self._read_at >= FRESH_SECONDS:
                self.read()

    def of(self, model: str) -> Price | None:
        """A model's price; None: nobody has said."""
        return self._prices.get(model)


table = PriceTable()


def models_of(assistant: Assistant) -> list[str]:
    """The models that an assistant's requests go to in a run that begins now, as the journal and the price table name
    them. Its own, or the installation's; without any of these, and where the installation names none for one that can
    do without, its own function."""
    installed = settings.DURABLEAGENTS.models
    if not installed and (assistant.offline is not None or not assistant.models):
        return [f"{SCRIPTED}{assistant.name}"]
    return list(assistant.models or installed)


def route(model: str) -> Route:
    return Route(model, table.of(model))


def unpriced(agent: Agent) -> list[str]:
    return without_price(model for assistant in agent.assistants for model in models_of(assistant))


def without_price(models: Iterable[str]) -> list[str]:
    """Those of these models of which nobody has said what they cost."""
    table.read()
    return sorted({model for model in models if table.of(model) is None})


def check_priced(agent: Agent, given: str = "") -> None:
    """A cap in dollars can be held. Raises InvalidInput where nobody has said what a model of the agent costs; `given`
    says where the cap comes from. ChangedOutside where the price was written outside the application."""
    unknown = unpriced(agent)
    if changed := [table.changed_outside[model] for model in unknown if model in table.changed_outside]:
        raise ChangedOutside(*changed[0])
    if unknown:
        raise InvalidInput(
            f"A budget in dollars{given} needs the price of every model that {agent.graph_id} asks; "
            f"there is none for {', '.join(unknown)}.",
            errors=[
                {"field": "budget.usd", "problem": f"no price for {model}", "fix": "an admin sets it under Prices"}
                for model in unknown
            ],
        )


def in_force() -> list[PriceRow]:
    """The newest row whose time has come, for each model, by the model's name."""
    return list(
        PriceRow.objects.filter(valid_from__lte=database_now())
        .order_by("model", "-valid_from", "-id")
        .distinct("model")
    )


def put(model: str, *, usd_micro_in: int, usd_micro_out: int, valid_from: datetime | None = None, by: str) -> PriceRow:
    """A new price from a time on (now), beside those that were."""
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
    """Put in what ships, for models that the table has never heard of. Returns how many were put in."""
    known = set(PriceRow.objects.values_list("model", flat=True).distinct())
    new = [(model, price) for model, price in prices if model not in known]
    for model, (usd_micro_in, usd_micro_out) in new:
        put(model, usd_micro_in=usd_micro_in, usd_micro_out=usd_micro_out, by=SHIPPED_BY)
    return len(new)
