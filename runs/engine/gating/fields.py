"""Parts of a plan other than the arguments. Pure.

These are evidence and risk, the amount, the fields that people may change, and the fields that must be the same for a
standing approval.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from pydantic import BaseModel
from pydantic.errors import PydanticInvalidForJsonSchema

from ledger.codes import plain_zero
from runs.engine.canonical import digest_of
from runs.engine.errors import describe_error

BROUGHT = "brought"  # key of the slot of the approval that was passed to the call, if the call also needs this approval
ABOUT_LENGTH = 200  # characters of a subject shown in lists
RISKS = ("", "low", "medium", "high")  # risks that a tool can declare, lowest first


@dataclass(frozen=True, slots=True)
class Evidence:
    """Something that an approver should see, and that the decision covers. `label` is its heading, `source` where it
    comes from, and `content` plain data that is shown unchanged."""

    label: str
    source: str
    content: Any

    def as_json(self) -> dict[str, Any]:
        """Return plain data for the plan."""
        return {"label": self.label, "source": self.source, "content": self.content}


_NAMES = (
    "legal_name",
    "vendor_name",
    "company",
    "customer",
    "title",
    "subject",
    "name",
    "vendor",
    "topic",
    "vendor_id",
    "recipient",
    "to",
    "email",
)


def subject(document: Any) -> str:
    """Return the text of a field whose name suggests a party or a subject matter; empty if there is none."""
    if not isinstance(document, dict):
        return ""
    for name in _NAMES:
        value = document.get(name)
        if isinstance(value, str) and value.strip():
            return value
    return ""


# --- amount: checked against people's limits --------------------------------------------------------------------------

CURRENCY = re.compile(r"[A-Z]{3}")
_TWO_NAMES = re.compile(r"[A-Za-z_][A-Za-z0-9_]* [A-Za-z_][A-Za-z0-9_]*")
MAX_DIGITS = 18  # digits before the point; up to six digits after it are kept


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount of money, such as `Amount(Decimal("1250.00"), "USD")`. `value` is the number, `currency` the
    three-letter code (ISO 4217) in capitals."""

    value: Decimal
    currency: str


# The declaration in a gate: a function of the tool's input, or a text with two names. The first is the field with the
# number; the second is a currency, or the field with it: "total USD", "total currency".
AmountRule = Callable[[Any], Amount | None] | str


def amount_problem(declared: Any) -> str:
    """Return why a declaration is invalid; empty if it is valid."""
    if declared is None or (callable(declared) and not isinstance(declared, type)):
        return ""
    if isinstance(declared, str) and _TWO_NAMES.fullmatch(declared):
        return ""
    return "give a plain function of the tool's input, or a field and a currency such as 'total USD'"


def amount_entry(declared: AmountRule, args: Any) -> dict[str, str]:
    """Return a call's amount for the plan (as text), or the `problem`.

    If there is a problem, approvers with a limit can't decide.
    """
    try:
        amount = _read_amount(declared, args) if isinstance(declared, str) else declared(args)
        if not isinstance(amount, Amount):
            raise TypeError(f"returned {type(amount).__name__}, not an Amount")
        return _checked_amount(amount)
    except Exception as error:  # the author's own code failed, so the amount is unknown
        return {"problem": describe_error(error, 200)}


def _read_amount(declared: str, args: Any) -> Amount:
    field, currency = declared.split(" ")
    value = getattr(args, field)
    if isinstance(value, float):
        value = repr(value)  # converted as text, so that 0.1 is exactly a tenth
    return Amount(Decimal(value), currency if CURRENCY.fullmatch(currency) else str(getattr(args, currency)))


def _checked_amount(amount: Amount) -> dict[str, str]:
    if not isinstance(amount.value, Decimal) or not amount.value.is_finite():
        raise ValueError(f"{amount.value!r} is not a finite Decimal")
    exponent = amount.value.as_tuple().exponent
    # This is checked before calculating or formatting: 1E-500000000 has that many digits when written out.
    if not isinstance(exponent, int) or not -MAX_DIGITS <= exponent <= MAX_DIGITS:
        raise ValueError(f"it has more than {MAX_DIGITS} digits before or after the point")
    if amount.value.copy_abs() >= Decimal(10) ** MAX_DIGITS or not isinstance(amount.currency, str):
        raise ValueError(f"{amount.value!r} has more than {MAX_DIGITS} digits")
    if not CURRENCY.fullmatch(amount.currency):
        raise ValueError(f"{amount.currency!r} is not a currency: give three capital letters, such as USD")
    return {"value": format(plain_zero(amount.value), "f"), "currency": amount.currency}


def amount_in(plan: Any) -> Amount | str | None:
    """Return a plan's amount; None if none is declared, or a text that tells why it is unknown."""
    if not isinstance(plan, dict) or "amount" not in plan:
        return None
    plan_amount = plan["amount"]
    if not isinstance(plan_amount, dict) or not isinstance(plan_amount.get("value"), str):
        problem = plan_amount.get("problem") if isinstance(plan_amount, dict) else None
        return problem if isinstance(problem, str) and problem else "it is not readable"
    try:
        _checked_amount(amount := Amount(plain_zero(Decimal(plan_amount["value"])), plan_amount.get("currency", "")))
        return amount
    except (InvalidOperation, ValueError) as error:
        return describe_error(error, 200)


# --- fields that people may change before approving -------------------------------------------------------------------

EDITABLE = "editable"  # key of the schema of the editable fields


def names_problem(names: Any) -> str:
    """Return why a declaration is invalid; empty if it is valid."""
    is_list = isinstance(names, (list, tuple)) and all(isinstance(name, str) and name for name in names)
    if not is_list or len(set(names)) != len(names):
        return "give a list of the names of fields of the tool's input, each once"
    return ""


def editable_problem(editable: Sequence[str], model: type[BaseModel]) -> str:
    """Return why these fields of a tool's input can't be editable; empty if they can be."""
    if not editable:
        return ""
    try:
        fields = model.model_json_schema().get("properties", {})
    except PydanticInvalidForJsonSchema as error:
        return f"{model.__name__} has no schema from which a form could be built: {error}"
    unknown = [name for name in editable if name not in fields]
    return f"{', '.join(unknown)}: no field of {model.__name__}, which has {', '.join(fields)}" if unknown else ""


def editable_entry(editable: Sequence[str], model: type[BaseModel]) -> dict[str, Any]:
    """Return the plan's entry for the editable fields.

    The entry is a schema from which a form can be built without the agent's code.
    """
    if not editable:
        return {}
    whole = model.model_json_schema()
    fields = {name: whole["properties"][name] for name in editable}
    schema: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": fields}
    if "$defs" in whole and '"$ref"' in json.dumps(fields):
        schema["$defs"] = whole["$defs"]
    return {EDITABLE: json.loads(json.dumps(schema))}


def closed(schema: Any) -> Any:
    """Forbid undeclared fields in a schema's objects, because a tool would silently drop these fields.

    Objects that declare `additionalProperties` stay unchanged.
    """
    if not isinstance(schema, dict):
        return schema
    found = dict(schema)
    for several in ("properties", "$defs"):
        if isinstance(found.get(several), dict):
            found[several] = {name: closed(each) for name, each in found[several].items()}
    for some in ("anyOf", "oneOf", "prefixItems"):
        if isinstance(found.get(some), list):
            found[some] = [closed(each) for each in found[some]]
    for one in ("items", "additionalProperties"):
        found |= {one: closed(found[one])} if one in found else {}
    if "properties" in found and not {"additionalProperties", "allOf", "patternProperties"} & set(found):
        found["additionalProperties"] = False
    return found


def editable_in(plan: Any) -> dict[str, Any]:
    """Return the schema of a plan's editable fields. The schema has no properties if there are no such fields."""
    schema = plan.get(EDITABLE) if isinstance(plan, dict) and isinstance(plan.get("arguments"), dict) else None
    is_one = isinstance(schema, dict) and isinstance(schema.get("properties"), dict)
    return schema if is_one and isinstance(schema, dict) else {"properties": {}}


# --- sameness: all of the plan but the agent's version, so that a changed rule or policy asks again -------------------

SAME = "same"  # key of the names of the fields that must be the same
NO_TOOL = "approve"  # replaces the tool's name in a plan whose approval is only information
_AS_ASKED = ("tool", "title", "effect", "queue", "rule", "policy")


def same_fields_in(plan: Any) -> list[str]:
    """Return the fields of a plan's arguments that must be the same for a standing approval.

    Raises ValueError if the plan can't be read or names an unknown field.
    """
    arguments = plan.get("arguments") if isinstance(plan, dict) else None
    if not isinstance(arguments, dict):
        raise ValueError("its arguments have no fields")
    if SAME not in plan:
        return sorted(arguments)
    named = plan[SAME]
    if not isinstance(named, list) or not named or not all(isinstance(name, str) for name in named):
        raise ValueError("the list of unchangeable fields can't be read")
    if unknown := [name for name in named if name not in arguments]:
        raise ValueError(f"{', '.join(unknown)} may not change, but is not a field of its arguments")
    return named


def sameness(plan: Any) -> str:
    """Return the digest of everything that must be the same for a standing approval.

    Raises ValueError like `same_fields_in`.
    """
    fields = same_fields_in(plan)
    if not plan.get("agent") or plan.get("tool") in (None, "", NO_TOOL):
        raise ValueError("it names no tool, so approving it allows nothing")
    what = {name: plan.get(name) for name in _AS_ASKED} | {"agent": agent_of(plan), "is_named": SAME in plan}
    return digest_of(what | {"arguments": {name: plan["arguments"][name] for name in fields}})


def agent_of(plan: Any) -> str:
    """Return the agent's name without its version."""
    return str(plan.get("agent", "")).partition("@")[0]


def sameness_of(stored: bytes) -> str | None:
    """Return the `sameness` of a stored plan; None if it has none.

    Numbers are parsed as they are written, because the digests in rows were computed that way.
    """
    try:
        return sameness(json.loads(stored))
    except (ValueError, RecursionError):
        return None
