"""Types of search attributes.

Each type converts a value to the text that is recorded, compared and shown.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar

from ledger.events import AttributesSet
from runs.engine.budget import A_MILLION, usd_of
from runs.engine.canonical import plain

MAX_CHARACTERS = 200  # in characters
MAX_IN_LIST = 32
# Control characters, line ends, direction marks, invisible marks and surrogates. The joiners are allowed, because some
# scripts need them.
_UNSEEN, _JOINERS = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"}), "\u200c\u200d"
_WHOLE_DIGITS, _PLACES = 15, 9  # number of digits
_MAX_USD = 10**12
_NUMBER = re.compile(r"[+-]?[0-9]{1,40}(\.[0-9]{1,40})?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True, slots=True)
class Attribute:
    """Base class of the types of attributes. `title` is the label on pages (default: its name)."""

    title: str = ""
    kind: ClassVar[str] = ""
    is_number: ClassVar[bool] = False  # whether values are ordered as numbers; other texts are ordered by their bytes
    is_list: ClassVar[bool] = False
    called: ClassVar[str] = ""  # the type's name in error messages
    like: ClassVar[str] = ""  # an example for errors and forms

    def texts(self, value: Any) -> list[str]:
        """Return the texts to record for a `value`, one for each search term. Raises ValueError."""
        return [self.text(value)]

    def text(self, value: Any) -> str:
        """Return the text to record for one `value`. Raises ValueError."""
        raise NotImplementedError

    def shown(self, texts: list[str]) -> Any:
        """Return recorded `texts` in the form that the API shows."""
        return texts[0]


class Keyword(Attribute):
    """One short text, matched as a whole and case-sensitively. `title` is the label on pages."""

    __slots__ = ()
    kind, called, like = "keyword", "a text", "ACME-7"

    def text(self, value: Any) -> str:
        return _keyword(value)


class Keywords(Attribute):
    """Several short texts, at most 32. A search for any one of them finds the run. `title` is the label on pages."""

    __slots__ = ()
    kind, called, is_list, like = "keywords", "a list of texts", True, "urgent"

    def texts(self, value: Any) -> list[str]:
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"is {_type(value)}, not a list of texts")
        if len(value) > MAX_IN_LIST:
            raise ValueError(f"has {len(value)} texts; at most {MAX_IN_LIST} are allowed")
        return list(dict.fromkeys(map(_keyword, value)))

    def text(self, value: Any) -> str:
        return _keyword(value)

    def shown(self, texts: list[str]) -> Any:
        return texts


class Number(Attribute):
    """A number: whole, or with up to nine decimal places. `title` is the label on pages."""

    __slots__ = ()
    kind, called, is_number, like = "number", "a number", True, "12.5"

    def text(self, value: Any) -> str:
        number = _decimal(repr(value) if isinstance(value, float) else value)
        if abs(number) >= 10**_WHOLE_DIGITS or -_exponent(number) > _PLACES:
            raise ValueError(
                f"is out of range: at most {_WHOLE_DIGITS} digits before the point and {_PLACES} after it are allowed"
            )
        return format(_plain(number), "f")

    def shown(self, texts: list[str]) -> Any:
        number = Decimal(texts[0])
        return int(number) if number == number.to_integral_value() else float(number)


class Money(Attribute):
    """An amount in US dollars, with up to six decimal places; `title` is the label on pages.

    Give a whole number, a Decimal or a text such as "12.50". Floats are refused because they are not exact.
    """

    __slots__ = ()
    kind, called, is_number, like = "money", "an amount in US dollars", True, "12.50"

    def text(self, value: Any) -> str:
        if isinstance(value, float):
            raise ValueError('is a float, which is not exact: give a text, such as "12.50"')
        usd = _decimal(value)
        if abs(usd) > _MAX_USD or -_exponent(usd) > 6:
            raise ValueError("is out of range: at most a million millions are allowed, with six decimal places")
        return str(int(usd * A_MILLION))

    def shown(self, texts: list[str]) -> Any:
        return usd_of(int(Decimal(texts[0])))


class Date(Attribute):
    """A calendar day: a date, or a text such as "2026-03-31". `title` is the label on pages."""

    __slots__ = ()
    kind, called, like = "date", "a day", "2026-03-31"

    def text(self, value: Any) -> str:
        if isinstance(value, datetime):
            raise ValueError("is a point in time, not a day: convert it with .date() in your time zone")
        if isinstance(value, date):
            return value.isoformat()
        if not isinstance(value, str) or not _DATE.fullmatch(value):
            raise ValueError(
                f"is {_type(value) if not isinstance(value, str) else 'not a day'}; write days as 2026-03-31"
            )
        try:
            return date.fromisoformat(value).isoformat()
        except ValueError:
            raise ValueError("is not a day of the calendar") from None


class Flag(Attribute):
    """True or false. `title` is the label on pages."""

    __slots__ = ()
    kind, called, like = "flag", "true or false", "true"

    def text(self, value: Any) -> str:
        if not isinstance(value, bool):
            raise ValueError(f"is {_type(value)}, neither true nor false")
        return "true" if value else "false"

    def shown(self, texts: list[str]) -> Any:
        return texts[0] == "true"


KINDS: dict[str, Attribute] = {kind.kind: kind() for kind in (Keyword, Keywords, Number, Money, Date, Flag)}


def of_words(attribute: Attribute, words: str) -> Any:
    """Convert text from a form or a search to a value that `text` accepts."""
    return _FROM_WORDS.get(attribute.kind, str)(words)


def _flag(words: str) -> Any:
    return {"true": True, "false": False}.get(words.lower(), words)


_FROM_WORDS: dict[str, Callable[[str], Any]] = {"flag": _flag, "money": lambda words: words.removeprefix("$")}


def _keyword(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"is {_type(value)}, not a text")
    if not value.strip():
        raise ValueError("is empty")
    if len(value) > MAX_CHARACTERS:
        raise ValueError(f"has {len(value)} characters; at most {MAX_CHARACTERS} are allowed")
    hidden = next((each for each in value if unicodedata.category(each) in _UNSEEN and each not in _JOINERS), None)
    if hidden is not None:
        raise ValueError(f"contains an invisible character (U+{ord(hidden):04X}), which can't be searched for")
    return str(value)


def _decimal(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, str, Decimal)):
        raise ValueError(f"is {_type(value)}, not a number")
    if isinstance(value, str) and not _NUMBER.fullmatch(value) and not _is_small_float(value):
        raise ValueError("is not a number")
    if isinstance(value, int) and abs(value) >= 10**40:
        raise ValueError("is out of range")
    try:
        number = Decimal(value)
    except InvalidOperation:
        raise ValueError("is not a number") from None
    if not number.is_finite():
        raise ValueError("is not a number")
    return number


def _is_small_float(text: str) -> bool:
    return bool(re.fullmatch(r"-?[0-9]\.?[0-9]{0,17}e[+-][0-9]{1,3}", text))


def _exponent(number: Decimal) -> int:
    exponent = _plain(number).as_tuple().exponent
    assert isinstance(exponent, int)
    return exponent


def _plain(number: Decimal) -> Decimal:
    """Format a number without trailing zeros, and negative zero as zero."""
    return number.normalize() if number else Decimal(0)


def _type(value: Any) -> str:
    names = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "a text",
        list: "a list",
        dict: "an object",
        type(None): "nothing",
    }
    return names.get(type(value), f"a {type(value).__name__}")


MAX_ATTRIBUTES = 16  # maximum number of attributes per agent
# They are keywords of the search grammar in runs/queries/expressions.py.
RESERVED = frozenset({"and", "or", "not", "in", "has", "is", "set", "true", "false", "created_at"})
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
Declared = Mapping[str, Attribute]


class BadAttributes(ValueError):
    """Attributes that can't be set. `problems` lists (name, problem, fix)."""

    def __init__(self, problems: list[tuple[str, str, str]]) -> None:
        super().__init__("; ".join(f"{name} {problem}" for name, problem, _ in problems))
        self.problems = problems


def misdeclared(attributes: Any) -> str | None:
    """Return the problem with an agent's declaration; None if it is valid."""
    if not isinstance(attributes, Mapping):
        return "attributes must be a mapping of names to types, such as Keyword()"
    if len(attributes) > MAX_ATTRIBUTES:
        return f"there are {len(attributes)} attributes; at most {MAX_ATTRIBUTES} are allowed"
    for name, attribute in attributes.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            return f"attribute name {name!r} is not lower_snake_case of at most 63 letters"
        if name in RESERVED:
            return f"attribute name {name!r} is a keyword of searches: choose another name"
        if not isinstance(attribute, Attribute) or not attribute.kind:
            return f"attribute {name!r} is {attribute!r}: give a type, such as Keyword()"
    return None


def setting(
    declared: Declared, given: Mapping[str, Any], *, by: str, slot: str | None = None, requested_hash: str = ""
) -> AttributesSet:
    """Return the event that sets the `given` values; None unsets one. Raises BadAttributes listing all problems."""
    problems, values = list[tuple[str, str, str]](), list[tuple[str, str, str]]()
    for name in sorted(given, key=str):
        attribute = declared.get(name)
        if attribute is None:
            problems.append((str(name)[:64], "is not an attribute of this agent", _known(declared)))
            continue
        try:
            texts = [] if given[name] is None else attribute.texts(given[name])
        except ValueError as error:
            problems.append((name, str(error), f"give {attribute.called}, such as {attribute.like}"))
            continue
        values += [(name, attribute.kind, text) for text in texts]
    if problems:
        raise BadAttributes(problems)
    names, kinds, texts = ([value[i] for value in values] for i in range(3))
    return AttributesSet(
        slot=slot,
        by=by,
        named=sorted(given),
        names=names,
        kinds=kinds,
        values=texts,
        requested_hash=requested_hash,
        payload=None if slot is None else {"arguments": recorded_attributes(given)},
    )


def recorded_attributes(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given values as plain data for the record and its digest. Amounts and dates become texts."""
    return {str(name): _comparable(value) for name, value in given.items()}


def _comparable(value: Any) -> Any:
    if isinstance(value, tuple):
        value = list(value)
    try:
        return plain(value)
    except ValueError:
        return str(value)


def _known(declared: Declared) -> str:
    return f"it has {', '.join(sorted(declared))}" if declared else "it declares none"
