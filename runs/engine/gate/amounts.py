"""Amount and currency of a gated call, checked against people's limits. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from ledger.codes import plain_zero
from runs.engine.errors import brief

CURRENCY = re.compile(r"[A-Z]{3}")
_FIELDS = re.compile(r"[A-Za-z_][A-Za-z0-9_]* [A-Za-z_][A-Za-z0-9_]*")
MOST_DIGITS = 18  # before the point; six after it are kept


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount of money, such as `Amount(Decimal("1250.00"), "USD")`. `value` is the number, `currency` its three
    capitals (ISO 4217)."""

    value: Decimal
    currency: str


# A gate's declaration: a function of the tool's input, or two names: the field with the number, and the currency (three
# capitals) or the field with it: "total USD", "total currency".
Declared = Callable[[Any], Amount | None] | str


def wrong(declared: Any) -> str:
    """Return why a declaration is invalid; empty if it is valid."""
    if declared is None or (callable(declared) and not isinstance(declared, type)):
        return ""
    if isinstance(declared, str) and _FIELDS.fullmatch(declared):
        return ""
    return "give a plain function of the tool's input, or a field and a currency such as 'total USD'"


def told(declared: Declared, args: Any) -> dict[str, str]:
    """Return a call's amount for the plan, as text, or the `problem`: then approvers with a limit can't decide."""
    try:
        amount = _read(declared, args) if isinstance(declared, str) else declared(args)
        if not isinstance(amount, Amount):
            raise TypeError(f"gave {type(amount).__name__}, not an Amount")
        return _checked(amount)
    except Exception as error:  # the author's own code failed: the amount is unknown
        return {"problem": brief(error, 200)}


def _read(declared: str, args: Any) -> Amount:
    field, currency = declared.split(" ")
    value = getattr(args, field)
    if isinstance(value, float):
        value = repr(value)  # as written: 0.1 is a tenth
    return Amount(Decimal(value), currency if CURRENCY.fullmatch(currency) else str(getattr(args, currency)))


def _checked(amount: Amount) -> dict[str, str]:
    if not isinstance(amount.value, Decimal) or not amount.value.is_finite():
        raise ValueError(f"{amount.value!r} is no finite Decimal")
    exponent = amount.value.as_tuple().exponent
    # Before calculating or formatting: 1E-500000000 has that many digits when written out.
    if not isinstance(exponent, int) or not -MOST_DIGITS <= exponent <= MOST_DIGITS:
        raise ValueError(f"it has more than {MOST_DIGITS} digits before or behind the point")
    if amount.value.copy_abs() >= Decimal(10) ** MOST_DIGITS or not isinstance(amount.currency, str):
        raise ValueError(f"{amount.value!r} has more than {MOST_DIGITS} digits")
    if not CURRENCY.fullmatch(amount.currency):
        raise ValueError(f"{amount.currency!r} is no currency: three capitals, such as USD")
    return {"value": format(plain_zero(amount.value), "f"), "currency": amount.currency}


def amount_in(plan: Any) -> Amount | str | None:
    """Return a plan's amount; None if none is declared, or text saying why it is unknown."""
    if not isinstance(plan, dict) or "amount" not in plan:
        return None
    said = plan["amount"]
    if not isinstance(said, dict) or not isinstance(said.get("value"), str):
        problem = said.get("problem") if isinstance(said, dict) else None
        return problem if isinstance(problem, str) and problem else "it is not readable"
    try:
        _checked(amount := Amount(plain_zero(Decimal(said["value"])), said.get("currency", "")))
        return amount
    except (InvalidOperation, ValueError) as error:
        return brief(error, 200)
