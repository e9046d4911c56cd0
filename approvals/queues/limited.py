"""Cases above the reader's limit, for marking and counting. A decision is judged anew, by `policy.judge`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ledger.web.cursors import Condition
from ledger.web.roles import OwnLimit
from runs.engine.gate.amounts import CURRENCY, Amount, amount_in

# A plan is canonical JSON, its keys in order, so its amount stands at its beginning: `{"agent":…,"amount":{…},…`.
# Nothing that an agent chose stands before it.
_HEAD = "encode(substring(plan FROM 1 FOR 600), 'escape')"
_AMOUNT = r'^\{"agent":"[^"]*","amount":\{'
_VALUE = r'"currency":"%s","value":"-?([0-9]{1,18}(?:\.[0-9]{1,18})?)"\}'
_WITHIN = f"CASE WHEN {_HEAD} ~ %s THEN coalesce(substring({_HEAD} FROM %s)::numeric <= %s, false) ELSE %s END"


def is_above(plan: Any, limit: OwnLimit | None) -> bool:
    """Return whether a plan is about more than a limit lets the reader approve. Pure."""
    if limit is None:
        return False
    amount = amount_in(plan)
    if isinstance(amount, Amount):
        return amount.currency != limit.currency or amount.value.copy_abs() > limit.most
    return limit.needs_amount if amount is None else True


def within(queue: str, limit: OwnLimit | None, others: Iterable[str]) -> dict[Any, Any]:
    """Return the condition of a list's arm by which a queue's cases are within the reader's limit there, or also with
    one of their `others`; none without a limit."""
    if limit is None:
        return {}
    sql, values = _sql(limit)
    return {Condition(f"({sql} OR coalesce(escalated_to && %s::text[], false))"): [*values, [*others]]}


def within_further(mine: Iterable[str], limits: dict[str, OwnLimit]) -> dict[Any, Any]:
    """Return the same condition for cases that were escalated to the queues that are `mine`."""
    mine = [*mine]
    free = [queue for queue in mine if queue not in limits]
    parts = ["escalated_to && %s::text[]"]
    values: list[Any] = [free]
    for queue in mine:
        if queue in limits:
            sql, given = _sql(limits[queue])
            parts.append(f"%s = ANY(escalated_to) AND {sql}")
            values += [queue, *given]
    return {Condition(f"({' OR '.join(parts)})"): values} if len(free) < len(mine) else {}


def _sql(limit: OwnLimit) -> tuple[str, list[Any]]:
    currency = limit.currency if CURRENCY.fullmatch(limit.currency) else "none"
    return _WITHIN, [_AMOUNT, _AMOUNT + _VALUE.replace("%s", re.escape(currency)), limit.most, not limit.needs_amount]
