"""Parser of the search language for attributes. Pure: returns a tree, or the position of the error. expression = all {
"or" all }            all   = part { "and" part } part       = "not" part | "(" expression ")" | look
look       = name ( "=" | "!=" | "<" | "<=" | ">" | ">=" ) value | name "has" value
           | name "in" "(" value { "," value } ")" | name "is" "set"
value      = word | "text in quotes", with the escapes \" and \\
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")
MAX_EXPRESSION_LENGTH = 500  # characters of an expression, as in a query parameter
MAX_LOOKS, MAX_VALUES, DEEPEST = 20, 50, 10
COMPARED = ("=", "!=", "<", "<=", ">", ">=")
_WORDS = frozenset({"and", "or", "not", "in", "has", "is", "set"})
_TOKEN = re.compile(
    r"""(?P<space>\s+)|(?P<quoted>"(?:[^"\\]|\\.)*")|(?P<sign><=|>=|!=|[=<>(),])|(?P<word>[\w$+.:@/-]+)""", re.S
)


class Misread(ValueError):
    """Not a valid expression. `at` is the position, from 1; `fix` tells what would be valid."""

    def __init__(self, at: int, problem: str, fix: str) -> None:
        super().__init__(problem)
        self.at, self.problem, self.fix = at, problem, fix


@dataclass(frozen=True, slots=True)
class Value:
    """A value to compare with, and its position."""

    words: str
    at: int


@dataclass(frozen=True, slots=True)
class Look:
    """A condition on one attribute. `sign` is one of COMPARED, `in`, `has`, or `set`, which has no values."""

    name: str
    sign: str
    values: tuple[Value, ...]
    at: int
    sign_at: int


@dataclass(frozen=True, slots=True)
class Not(Generic[T]):
    part: T


@dataclass(frozen=True, slots=True)
class Both(Generic[T]):
    """All of these conditions must hold."""

    parts: tuple[T, ...]


@dataclass(frozen=True, slots=True)
class Either(Generic[T]):
    """At least one of these conditions must hold."""

    parts: tuple[T, ...]


Expression: TypeAlias = "Look | Not[Expression] | Both[Expression] | Either[Expression]"


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # word, quoted, sign, or end
    text: str
    at: int

    @property
    def shown(self) -> str:
        return "the end" if self.kind == "end" else self.text[:40]


def read(text: str) -> Expression:
    """Parse an expression. Raises Misread."""
    if len(text) > MAX_EXPRESSION_LENGTH:
        raise Misread(
            MAX_EXPRESSION_LENGTH + 1, f"is {len(text)} characters long", f"use at most {MAX_EXPRESSION_LENGTH}"
        )
    return _Reader(list(_tokens(text))).whole()


def _tokens(text: str) -> Iterator[_Token]:
    place = 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            is_open = text[place] == '"'
            problem = "has an unclosed quotation mark" if is_open else f"can't have {text[place]!r}"
            raise Misread(place + 1, problem, 'add the closing "' if is_open else 'put text in "quotes"')
        if found.lastgroup != "space":
            yield _Token(str(found.lastgroup), found.group(), place + 1)
        place = found.end()
    yield _Token("end", "", len(text) + 1)


class _Reader:
    """Parses the tokens from first to last."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens, self._place, self._looks = tokens, 0, 0

    def whole(self) -> Expression:
        if self._next.kind == "end":
            raise Misread(1, "is empty", 'enter a condition, for example: customer = "ACME" and score > 3')
        found = self._either(0)
        if self._next.kind != "end":
            raise self._unexpected("join conditions with and, or with or")
        return found

    @property
    def _next(self) -> _Token:
        return self._tokens[self._place]

    def _take(self) -> _Token:
        self._place += 1
        return self._tokens[self._place - 1]

    def _is(self, text: str) -> bool:
        """Consume this word or sign if it is the next token. Returns whether it did."""
        token = self._next
        is_it = token.kind in ("word", "sign") and (token.text.lower() if token.kind == "word" else token.text) == text
        self._place += is_it
        return is_it

    def _unexpected(self, fix: str) -> Misread:
        problem = "ends too early" if self._next.kind == "end" else f"can't have {self._next.shown}"
        return Misread(self._next.at, problem, fix)

    def _either(self, depth: int) -> Expression:
        parts = [self._both(depth)]
        while self._is("or"):
            parts.append(self._both(depth))
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def _both(self, depth: int) -> Expression:
        parts = [self._part(depth)]
        while self._is("and"):
            parts.append(self._part(depth))
        return parts[0] if len(parts) == 1 else Both(tuple(parts))

    def _part(self, depth: int) -> Expression:
        if depth > DEEPEST:
            raise Misread(self._next.at, f"nests more than {DEEPEST} levels deep", "use fewer brackets")
        if self._is("not"):
            return Not(self._part(depth + 1))
        if self._is("("):
            inner = self._either(depth + 1)
            if not self._is(")"):
                raise self._unexpected("join conditions with and, or with or; or close with )")
            return inner
        return self._look()

    def _look(self) -> Look:
        name = self._next
        if name.kind != "word" or name.text.lower() in _WORDS:
            raise self._unexpected("begin with an attribute's name, not, or (")
        self._take()
        self._looks += 1
        if self._looks > MAX_LOOKS:
            raise Misread(name.at, f"uses more than {MAX_LOOKS} attributes", "use fewer")
        sign = self._next
        if self._is("in"):
            return Look(name.text, "in", self._list(), name.at, sign.at)
        if self._is("has"):
            return Look(name.text, "has", (self._value(),), name.at, sign.at)
        if self._is("is"):
            if not self._is("set"):
                raise self._unexpected("write: is set")
            return Look(name.text, "set", (), name.at, sign.at)
        if sign.kind == "sign" and sign.text in COMPARED:
            self._take()
            return Look(name.text, sign.text, (self._value(),), name.at, sign.at)
        raise self._unexpected(f"compare with one of {' '.join(COMPARED)}, in, has, or is set")

    def _list(self) -> tuple[Value, ...]:
        if not self._is("("):
            raise self._unexpected("give a list, for example: (a, b)")
        values = [self._value()]
        while self._is(","):
            values.append(self._value())
            if len(values) > MAX_VALUES:
                raise Misread(values[-1].at, f"lists more than {MAX_VALUES} values", "list fewer")
        if not self._is(")"):
            raise self._unexpected("separate values with a comma, or close with )")
        return tuple(values)

    def _value(self) -> Value:
        token = self._next
        if token.kind == "quoted":
            self._take()
            return Value(re.sub(r"\\(.)", r"\1", token.text[1:-1], flags=re.S), token.at)
        if token.kind == "word" and token.text.lower() not in _WORDS:
            self._take()
            return Value(token.text, token.at)
        raise self._unexpected('give a value; put text with spaces in "quotes", for example: customer = "ACME Ltd"')
