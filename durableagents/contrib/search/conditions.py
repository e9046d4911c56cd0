"""Resolves the names in an expression to attributes that agents declare, and builds the conditions on their rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from runs.engine.agents import Agent, registry
from runs.engine.attributes import Attribute, of_words
from runs.queries import expressions
from runs.queries.expressions import Both, Either, Expression, Look, Misread, Not, Value
from runs.queries.searching import BadSearch

_ORDERED = ("<", "<=", ">", ">=")
_MAX_NAMES = 12  # names listed in an error message


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one attribute that match one of `values` under the comparison `sign`.

    The sign `set` matches every row.
    """

    name: str
    attribute: Attribute
    sign: str
    values: tuple[str, ...]

    @property
    def column(self) -> str:
        return "number" if self.attribute.is_number else "word"

    @property
    def is_equality(self) -> bool:
        return self.sign == "="

    def condition(self, table: str) -> tuple[str, list[Any]]:
        """Return the SQL condition. All values are passed as parameters."""
        own = f"{table}.name = %s AND {table}.kind = %s"
        cast = "numeric" if self.attribute.is_number else "text"
        known: list[Any] = [self.name, self.attribute.kind]
        if self.sign == "set":
            return f"{own} AND {table}.{self.column} IS NOT NULL", known
        if len(self.values) > 1:
            return f"{own} AND {table}.{self.column} = ANY (%s::{cast}[])", [*known, list(self.values)]
        assert self.sign in ("=", *_ORDERED)  # the sign becomes part of the SQL, so only known ones are allowed
        return f"{own} AND {table}.{self.column} {self.sign} %s::{cast}", [*known, self.values[0]]

    def each(self) -> list[Rows]:
        return [Rows(self.name, self.attribute, self.sign, (value,)) for value in self.values] or [self]


# `Rows` is true of runs that have such a row.
Condition: TypeAlias = "Rows | Not[Condition] | Both[Condition] | Either[Condition]"


def declared(agent: str = "") -> dict[str, dict[str, Attribute]]:
    """Return the types of declared attributes by name.

    These are the attributes of all agents here, or only of the given `name` or `name@version`."""
    found: dict[str, dict[str, Attribute]] = {}
    for one in _agents(agent):
        for name, attribute in one.attributes.items():
            found.setdefault(name, {}).setdefault(attribute.kind, attribute)
    return found


def _agents(agent: str) -> Iterable[Agent]:
    return (one for one in registry.agents() if not agent or agent in (one.name, one.graph_id))


def resolve(text: str, agent: str = "") -> Condition:
    """Parse and resolve an expression. Raises BadSearch with the position of the error."""
    known = declared(agent)
    try:
        return _condition(expressions.read(text), known)
    except Misread as misread:
        raise BadSearch("where", misread) from misread


def sort_attribute(name: str, agent: str = "", orders: Iterable[str] = ()) -> Attribute:
    """Return the type of an attribute to sort by. `orders` are the other sort orders that exist.

    Raises BadSearch for an unknown attribute and for a list."""
    try:
        attribute = _attribute(name, 1, declared(agent), orders)
        if attribute.is_list:
            raise Misread(1, f"names {name}, which is a list", "sort by an attribute with one value")
    except Misread as misread:
        raise BadSearch("sort", misread) from misread
    return attribute


def _condition(expression: Expression, known: Mapping[str, Mapping[str, Attribute]]) -> Condition:
    match expression:
        case Not(part):
            return Not(_condition(part, known))
        case Both(parts):
            return Both(tuple(_condition(part, known) for part in parts))
        case Either(parts):
            return Either(tuple(_condition(part, known) for part in parts))
        case Look() as look:
            return _comparison(look, _attribute(look.name, look.at, known))


def _attribute(
    name: str, at: int, known: Mapping[str, Mapping[str, Attribute]], orders: Iterable[str] = ()
) -> Attribute:
    kinds = known.get(name)
    if kinds is None:
        names = sorted(known)
        listed = ", ".join(names[:_MAX_NAMES]) + ("…" if len(names) > _MAX_NAMES else "")
        fix = f"known attributes: {listed}" if names else "no agent declares attributes"
        if orders:
            fix += f"; also: {', '.join(orders)}"
        raise Misread(at, f"names {name[:64]!r}, which isn't an attribute", fix)
    if len(kinds) > 1:
        problem = f"names {name!r}, which is a {' and a '.join(sorted(kinds))} of different agents"
        raise Misread(at, problem, "choose one agent")
    (attribute,) = kinds.values()
    return attribute


def _comparison(look: Look, attribute: Attribute) -> Condition:
    kind = attribute.kind
    if attribute.is_list and look.sign not in ("has", "in", "set"):
        raise Misread(
            look.sign_at, f"compares the list {look.name}", f"use has, for example: {look.name} has {attribute.like}"
        )
    if not attribute.is_list and look.sign == "has":
        raise Misread(
            look.sign_at,
            f"uses has with {look.name}, which isn't a list",
            f"use =, for example: {look.name} = {attribute.like}",
        )
    if kind == "flag" and look.sign in _ORDERED:
        raise Misread(
            look.sign_at, f"compares the flag {look.name} with < or >", f"use =, for example: {look.name} = true"
        )
    values = tuple(dict.fromkeys(_text(look.name, attribute, value) for value in look.values))
    if look.sign == "!=":
        return Not(Rows(look.name, attribute, "=", values))
    sign = look.sign if look.sign in ("set", *_ORDERED) else "="
    return Rows(look.name, attribute, sign, values)


def _text(name: str, attribute: Attribute, value: Value) -> str:
    try:
        return attribute.text(of_words(attribute, value.words))
    except ValueError as error:
        problem = f"compares {name} with {value.words[:40]!r}, which {error}"
        raise Misread(value.at, problem, f"enter a {attribute.kind}, for example {attribute.like}") from error
