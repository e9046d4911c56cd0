"""Policy conditions: expressions over a call, type-checked when written and evaluated per call. Pure."""

# The grammar is that of the run search (runs/queries/expressions.py). Valid names are those in `FIXED`, and `args.`
# followed by a path in the tool's input. Numbers are compared exactly, as decimals. If a value is missing or of another
# kind, the comparison is neither true nor false, and callers must assume the stricter case.

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from runs.engine.policy import Asking
from runs.engine.tools import RISKS, ReplayClass
from runs.queries.expressions import Both, Either, Expression, Look, Misread, Not, Value, read

Schema = Mapping[str, Any]
TEXT, NUMBER, FLAG, RISK, TEXTS, NUMBERS, OTHER = "text", "number", "flag", "risk", "texts", "numbers", "other"
FIXED = {
    "cost": NUMBER,
    "requester": TEXT,
    "source": TEXT,
    "tags": TEXTS,
    "risk": RISK,
    "class": TEXT,
    "version": TEXT,
}
ARGUMENT = "args."
DEEPEST = 8
_ONE_OF = {"source": ("node", "model"), "class": tuple(str(each) for each in ReplayClass), "risk": RISKS[1:]}
_SIGNS = {
    TEXT: ("=", "!=", "in", "has", "set"),
    NUMBER: ("=", "!=", "<", "<=", ">", ">=", "in", "set"),
    FLAG: ("=", "!=", "set"),
    RISK: ("=", "!=", "<", "<=", ">", ">=", "in", "set"),
    TEXTS: ("has", "set"),
    NUMBERS: ("has", "set"),
    OTHER: ("set",),
}
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Condition:
    """A checked condition. `kinds` tells how each name in it is compared."""

    expression: Expression | None
    kinds: Mapping[str, str]

    def holds(self, asking: Asking) -> bool | None:
        """Return whether the condition is true of a call; None if it can't be determined."""
        return True if self.expression is None else _judged(self.expression, self.kinds, asking)

    @property
    def needs_tags(self) -> bool:
        return "tags" in self.kinds

    @property
    def needs_arguments(self) -> bool:
        return any(name.startswith(ARGUMENT) for name in self.kinds)

    @property
    def needs_requester(self) -> bool:
        return "requester" in self.kinds


def parse_condition(text: str, schemas: Iterable[tuple[str, Schema]]) -> Condition:
    """Parse and type-check a condition against the tools' schemas, each with its owner. Raises Misread."""
    if not text.strip():
        return Condition(None, {})
    expression, known, kinds = read(text), list(schemas), dict[str, str]()
    for look in find_comparisons(expression):
        kinds[look.name] = _kind_of(look, known)
        _check(look, kinds[look.name])
    return Condition(expression, kinds)


def restore_condition(text: str, kinds: Mapping[str, str]) -> Condition:
    """Return the condition stored in a row, with the kinds of its names. Raises Misread."""
    return Condition(read(text) if text.strip() else None, dict(kinds))


def find_comparisons(expression: Expression) -> list[Look]:
    """Return all comparisons of an expression, in order."""
    match expression:
        case Look():
            return [expression]
        case Not(part):
            return find_comparisons(part)
        case Both(parts) | Either(parts):
            return [look for part in parts for look in find_comparisons(part)]


def fields_of(schema: Schema) -> dict[str, str]:
    """Return the comparable fields of a tool's input, by path, with their kinds."""
    found: dict[str, str] = {}
    _walk(schema, schema, "", found, 0)
    return found


def _walk(schema: Schema, root: Schema, place: str, found: dict[str, str], depth: int) -> None:
    for name, each in dict(schema.get("properties") or {}).items():
        there, inner = f"{place}{name}", _resolved(each, root)
        found[there] = _kind(inner, root)
        if depth < DEEPEST and inner.get("properties"):
            _walk(inner, root, f"{there}.", found, depth + 1)


def _resolved(schema: Any, root: Schema) -> Schema:
    """Return a schema with references resolved and null alternatives removed."""
    for _ in range(DEEPEST):
        if not isinstance(schema, Mapping):
            return {}
        if isinstance(schema.get("$ref"), str):
            schema = dict(root.get("$defs") or {}).get(schema["$ref"].rpartition("/")[2], {})
        elif len(schema.get("allOf") or ()) == 1:
            schema = schema["allOf"][0]
        else:
            some = [each for each in schema.get("anyOf") or () if each != {"type": "null"}]
            if len(some) != 1:
                return schema
            schema = some[0]
    return {}


def _kind(schema: Schema, root: Schema) -> str:
    some = [_resolved(each, root) for each in schema.get("anyOf") or () if each != {"type": "null"}]
    types = {each.get("type") for each in some}
    # In JSON, a decimal may be a number (only an integer if floats are refused) or a text with a number.
    if some:
        return NUMBER if types & {"number", "integer"} and types <= {"number", "integer", "string"} else OTHER
    match schema.get("type"):
        case "string":
            return TEXT
        case "number" | "integer":
            return NUMBER
        case "boolean":
            return FLAG
        case "array":
            inner = _kind(_resolved(schema.get("items"), root), root)
            return {TEXT: TEXTS, NUMBER: NUMBERS}.get(inner, OTHER)
    values = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    return TEXT if values and all(isinstance(each, str) for each in values) else OTHER


def _kind_of(look: Look, schemas: list[tuple[str, Schema]]) -> str:
    if not look.name.startswith(ARGUMENT):
        if look.name in FIXED:
            return FIXED[look.name]
        fix = f"use {', '.join(sorted(FIXED))}, or args. and an input field of the tool"
        raise Misread(look.at, f"uses {look.name}, which isn't a field of calls", fix)
    place = look.name.removeprefix(ARGUMENT)
    if not schemas:
        raise Misread(look.at, f"uses {look.name} without a tool", "choose the tool")
    known = {whose: fields_of(schema) for whose, schema in schemas}
    kinds = {fields[place]: whose for whose, fields in known.items() if place in fields}
    if not kinds:
        every = sorted({name for fields in known.values() for name in fields})
        raise Misread(
            look.at, f"uses {look.name}, which isn't an input field of the tool", f"use one of {', '.join(every)}"
        )
    if len(kinds) > 1:
        text = " and ".join(f"{kind} in {whose}" for kind, whose in sorted(kinds.items()))
        raise Misread(look.at, f"uses {look.name}, which is {text}", "choose the agent too")
    return next(iter(kinds))


def _check(look: Look, kind: str) -> None:
    """Check that the name's kind allows this comparison and this value. Raises Misread."""
    allowed = _SIGNS[kind]
    if look.sign not in allowed:
        signs = ", ".join("is set" if sign == "set" else sign for sign in allowed)
        raise Misread(
            look.sign_at, f"compares {look.name}, which is {_WORDS[kind]}, with {look.sign}", f"use one of {signs}"
        )
    for value in look.values:
        if kind in (NUMBER, NUMBERS) and _number(value.words) is None:
            raise Misread(
                value.at, f"compares {look.name} with {value.words[:40]!r}, which isn't a number", "enter a number"
            )
        if kind == FLAG and value.words not in ("true", "false"):
            raise Misread(value.at, f"compares {look.name} with {value.words[:40]!r}", "use true or false")
        of = _ONE_OF.get(look.name)
        if of is not None and value.words not in of:
            raise Misread(value.at, f"compares {look.name} with {value.words[:40]!r}", f"use one of {', '.join(of)}")


_WORDS = {
    TEXT: "a text",
    NUMBER: "a number",
    FLAG: "true or false",
    RISK: "a risk",
    TEXTS: "a list of texts",
    NUMBERS: "a list of numbers",
    OTHER: "neither a text nor a number",
}


# --- judging ----------------------------------------------------------------------------------------------------------


def _judged(expression: Expression, kinds: Mapping[str, str], asking: Asking) -> bool | None:
    """Evaluate in Kleene's three-valued logic."""
    match expression:
        case Look():
            return _looked(expression, kinds.get(expression.name, OTHER), asking)
        case Not(part):
            judged = _judged(part, kinds, asking)
            return None if judged is None else not judged
        case Both(parts):
            verdicts = [_judged(part, kinds, asking) for part in parts]
            return False if False in verdicts else None if None in verdicts else True
        case Either(parts):
            verdicts = [_judged(part, kinds, asking) for part in parts]
            return True if True in verdicts else None if None in verdicts else False


def _looked(look: Look, kind: str, asking: Asking) -> bool | None:
    found = _lookup(look.name, asking)
    if look.name == "requester" and found is None:  # the requester is unknown, so the comparison can't be evaluated
        return None
    is_there = found is not _MISSING and found is not None
    if look.sign == "set":
        return is_there
    if not is_there:
        return None
    if kind in (TEXTS, NUMBERS):
        return _has(found, look.values[0], kind)
    value = _comparable(found, kind)
    if value is None:
        return None
    wanted = [_comparable(each.words, kind, is_written=True) for each in look.values]
    match look.sign:
        case "in":
            return value in wanted
        case "has":
            return look.values[0].words in value
        case "=":
            return bool(value == wanted[0])
        case "!=":
            return bool(value != wanted[0])
    signs = {"<": value < wanted[0], "<=": value <= wanted[0], ">": value > wanted[0], ">=": value >= wanted[0]}
    return bool(signs[look.sign])


def _has(found: Any, value: Value, kind: str) -> bool | None:
    if not isinstance(found, (list, tuple)):
        return None
    inner = TEXT if kind == TEXTS else NUMBER
    wanted = _comparable(value.words, inner, is_written=True)
    comparables = [_comparable(each, inner) for each in found]
    return True if wanted in comparables else None if None in comparables else False


def _lookup(name: str, asking: Asking) -> Any:
    if not name.startswith(ARGUMENT):
        match name:
            case "cost":
                return None if asking.cost_micro is None else Decimal(asking.cost_micro) / 1_000_000
            case "class":
                return asking.replay_class
            case "risk" | "source":
                return getattr(asking, name) or None
            case _:
                return getattr(asking, name, _MISSING)
    found = asking.arguments
    for part in name.removeprefix(ARGUMENT).split("."):
        if not isinstance(found, Mapping) or part not in found:
            return _MISSING
        found = found[part]
    return found


def _comparable(value: Any, kind: str, *, is_written: bool = False) -> Any:
    """Convert a value for comparison by its kind; None if the value is of another kind."""
    match kind:
        case "number":
            return _number(value)
        case "flag":
            if is_written:
                return value == "true"
            return value if isinstance(value, bool) else None
        case "risk":
            return RISKS.index(value) if value in RISKS else None
        case _:
            return value if isinstance(value, str) else None


def _number(value: Any) -> Decimal | None:
    """Return the number as an exact decimal."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal)):
        return None
    try:
        number = Decimal(repr(value) if isinstance(value, float) else value)
    except (InvalidOperation, ValueError):
        return None
    return number if number.is_finite() else None
