"""Proof required with an approval: recent authentication, and typing the values being approved. Pure.

The proof is checked when the approval is given, and again before the approval is used. Plans that need no proof have
the same bytes as plans from before proofs were supported.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from runs.engine.canonical import printable
from runs.engine.errors import DefinitionError
from runs.engine.gating.fields import CURRENCY, RISKS, Amount, amount_in, subject

PASSWORD = "password"
PASSKEY = "passkey"
FACTORS = frozenset({"totp", "recovery_code", PASSKEY})
MAX_SECONDS = 24 * 3600
AMOUNT, TARGET = "amount", "target"
MAX_TARGET_LENGTH = 80  # characters; a longer text is too much to type
_SIGNS = {"$": "USD", "€": "EUR", "£": "GBP"}
_NUMBER = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Proof:
    """The proof required for an approval.

    `within`: the person authenticated at most this many seconds ago (0: no requirement), with a second factor if
    `factor` is set. `amount`, `target`: the person typed these values.
    """

    within: int = 0
    factor: bool = False
    amount: bool = False
    target: bool = False

    @property
    def is_any(self) -> bool:
        return bool(self.within or self.amount or self.target)

    def joined(self, other: Proof) -> Proof:
        """Combine two requirements: use the shorter time, and everything else that either of them requires."""
        within = _shorter(self.within, other.within)
        flags = self.factor or other.factor, self.amount or other.amount, self.target or other.target
        return Proof(within, *flags)

    def as_json(self) -> dict[str, Any]:
        """Return plain data with only the parts that are required."""
        fields = {"within": self.within, "factor": self.factor, AMOUNT: self.amount, TARGET: self.target}
        return {name: value for name, value in fields.items() if value}


NO_PROOF = Proof()


@dataclass(frozen=True, slots=True)
class Threshold:
    """The calls that need a proof: those above an amount or of at least a certain risk; all if neither is set.

    An unknown amount or risk is treated as above the threshold.
    """

    proof: Proof
    above: Decimal | None = None
    currency: str = ""
    risk: str = ""

    def asked_of(self, amount: Amount | str | None, risk: str) -> Proof:
        """Return the proof for a call of this amount and risk. The proof is empty below the threshold."""
        if self.above is None and not self.risk:
            return self.proof
        is_much = self.above is not None and not (
            isinstance(amount, Amount) and amount.currency == self.currency and abs(amount.value) <= self.above
        )
        is_risky = bool(self.risk) and (risk not in RISKS[1:] or RISKS.index(risk) >= RISKS.index(self.risk))
        return self.proof if is_much or is_risky else Proof()

    def as_json(self) -> dict[str, Any]:
        """Return plain data in the form that a queue stores."""
        document = self.proof.as_json() | ({"risk": self.risk} if self.risk else {})
        return (
            document if self.above is None else document | {"above": format(self.above, "f"), "currency": self.currency}
        )


def proof_in(values: Any) -> Proof:
    """Return the proof stored in a policy's row. Raises DefinitionError if it can't be read."""
    threshold = threshold_in(values)
    return Proof() if threshold is None else threshold.proof


def _shorter(one: int, other: int) -> int:
    return min((each for each in (one, other) if each), default=0)


def threshold_in(values: Any) -> Threshold | None:
    """Return the threshold stored in a queue's row; None if there is none.

    Raises DefinitionError if it can't be read.
    """
    if values is None:
        return None
    try:
        within, factor = _parse_proof(values)
        flags = [values.get(name, False) for name in (AMOUNT, TARGET)]
        risk, currency, above = values.get("risk", ""), values.get("currency", ""), values.get("above")
        least = None if above is None else Decimal(above)
        if risk not in RISKS or any(type(flag) is not bool for flag in flags):
            raise ValueError(risk)
        if least is not None and not (least.is_finite() and CURRENCY.fullmatch(currency)):
            raise ValueError(above)
    except (AttributeError, InvalidOperation, TypeError, ValueError) as error:
        raise DefinitionError("the required proof can't be read") from error
    return Threshold(Proof(within, factor, *flags), least, currency, risk)


def _parse_proof(fields: Mapping[str, Any]) -> tuple[int, bool]:
    within, factor = fields.get("within", 0), fields.get("factor", False)
    if type(within) is not int or not 0 <= within <= MAX_SECONDS or type(factor) is not bool:
        raise ValueError(within)
    return within, factor


@dataclass(frozen=True, slots=True)
class Wanted:
    """The proof required for one call. `typed` maps `amount` and `target` to the exact text to type."""

    within: int = 0
    factor: bool = False
    typed: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return plain data for the plan; empty if no proof is required."""
        fields = {"within": self.within, "factor": self.factor, "typed": dict(self.typed)}
        return {name: value for name, value in fields.items() if value}

    def joined(self, other: Wanted) -> Wanted:
        """Combine two requirements: use the shorter time, and everything else that either of them requires."""
        return Wanted(_shorter(self.within, other.within), self.factor or other.factor, {**other.typed, **self.typed})

    def not_fresh(self, age: Any, by: Any) -> str:
        """Return why an authentication is not sufficient; empty if it is.

        The authentication happened `age` seconds before the approval, with the method `by`.
        """
        if not self.within:
            return ""
        if type(age) is not int or not 0 <= age <= self.within:
            return f"the person had not authenticated within the last {self.within} seconds"
        if not isinstance(by, str) or by not in (FACTORS if self.factor else FACTORS | {PASSWORD}):
            return "the person had not used a second factor" if self.factor else "the person had not authenticated"
        return ""

    def not_typed(self, typed: Any) -> list[str]:
        given = typed if isinstance(typed, Mapping) else {}
        return [name for name, text in self.typed.items() if not is_typed(name, text, given.get(name))]


def wanted_of(plan: Mapping[str, Any], proof: Proof) -> Wanted:
    """Return the proof required for this plan.

    If there is no amount, the target must be typed instead; if there is no target, the tool's name must be typed.
    """
    words: dict[str, str] = {}
    amount = amount_in(plan)
    if proof.amount and isinstance(amount, Amount):
        words[AMOUNT] = f"{amount.value:f} {amount.currency}"
    if proof.target or (proof.amount and AMOUNT not in words):
        words[TARGET] = target_of(plan)
    return Wanted(proof.within, proof.factor, words)


def wanted_in(plan: Any) -> Wanted:
    """Return the proof that a plan requires. Raises DefinitionError if it can't be read."""
    if not isinstance(plan, Mapping) or "proof" not in plan:
        return Wanted()
    try:
        within, factor = _parse_proof(plan["proof"])
        typed = plan["proof"].get("typed", {})
        if not typed.keys() <= {AMOUNT, TARGET} or not all(isinstance(text, str) for text in typed.values()):
            raise ValueError(typed)
    except (AttributeError, TypeError, ValueError) as error:
        raise DefinitionError("the required proof can't be read") from error
    return Wanted(within, factor, typed)


def in_plan(wanted: Wanted) -> dict[str, Any]:
    return {"proof": document} if (document := wanted.as_json()) else {}


def target_of(plan: Mapping[str, Any]) -> str:
    """Return the plan's target in a form short enough to type; the tool's name if there is none."""
    found = " ".join(_without_invisible(str(printable(subject(plan.get("arguments"))))).split())[
        :MAX_TARGET_LENGTH
    ].strip()
    return found if _plain(found) else str(plan.get("tool", ""))


def short_of(plan: Any, given: Any) -> str:
    """Return what the proof `given` with an approval lacks for this plan; empty if nothing."""
    try:
        wanted = wanted_in(plan)
    except DefinitionError as error:
        return str(error)
    fields = given if isinstance(given, Mapping) else {}
    if lacking := wanted.not_fresh(fields.get("age"), fields.get("by")):
        return lacking
    if wanted.within and fields.get("by") == PASSKEY and not isinstance(fields.get("assertion"), str):
        return "the data signed by the person's passkey was not stored"
    missing = wanted.not_typed(fields.get("typed"))
    return f"the {' and the '.join(missing)} was not typed" if missing else ""


# --- typed texts ---


def is_typed(name: str, wanted: str, typed: Any) -> bool:
    """Return whether a person typed the `wanted` text. Case, currency signs and commas are ignored."""
    if not isinstance(typed, str):
        return False
    if name == AMOUNT:
        value, _, currency = wanted.rpartition(" ")
        return _amount(typed, currency) == abs(Decimal(value))
    return _plain(typed) == _plain(wanted) != ""


def _amount(text: str, currency: str) -> Decimal | None:
    """Return the typed number without its minus sign; None if it is not a number or has another currency."""
    rest = "".join(unicodedata.normalize("NFKC", text).split()).upper()
    for sign in (currency, *(sign for sign, of in _SIGNS.items() if of == currency)):
        if rest.startswith(sign) or rest.endswith(sign):
            rest = rest.removeprefix(sign).removesuffix(sign)
            break
    found = _NUMBER.fullmatch(rest.removeprefix("-"))
    return Decimal(found[0].replace(",", "")) if found is not None and len(rest) <= 60 else None


def _without_invisible(text: str) -> str:
    return "".join(each for each in text if unicodedata.category(each) not in ("Cf", "Cc") or each.isspace())


def _plain(text: str) -> str:
    return " ".join(_without_invisible(unicodedata.normalize("NFKC", text)).casefold().split())
