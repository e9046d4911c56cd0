"""Rules of limits, and the interface by which calls get permits.

durableagents/contrib/limits implements the limits.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self

from runs.engine.errors import DefinitionError

# The fields that a limit may have, by kind of key.
_SENT = frozenset({"per_minute", "burst", "at_once", "breaker", "rest"})
KINDS: Mapping[str, frozenset[str]] = {
    "tool": _SENT,
    "model": _SENT,
    "provider": _SENT,
    "agent": frozenset({"at_once", "weight"}),
    "tag": frozenset({"at_once", "weight"}),
}
MAX_VALUES: Mapping[str, int] = {
    "per_minute": 1_000_000,
    "burst": 1_000_000,
    "at_once": 100_000,
    "breaker": 100,
    "rest": 300,
    "weight": 1000,
}
MAX_KEY_LENGTH = 300


class InvalidRule(ValueError):
    """A limit is invalid. The message tells what is wrong and what is valid."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The limits of one key. A field that is None sets no limit.

    There are `per_minute` permits a minute, with a `burst` after idle time (default: the permits of one second, at
    least one), and at most `at_once` tries or runs at a time. A breaker opens for `rest` seconds (default 30) when
    `breaker` per cent of the tries within about a minute fail. `weight` (default 1) is used for fair shares.
    """

    per_minute: int | None = None
    burst: int | None = None
    at_once: int | None = None
    breaker: int | None = None
    rest: int | None = None
    weight: int | None = None

    def fields_set(self) -> dict[str, int]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def of(cls, stored: Any) -> Self:
        """Return a rule in the form stored in the database. Damaged values are ignored."""
        known = stored if isinstance(stored, dict) else {}
        return cls(**{name: value for name in NAMES if isinstance(value := known.get(name), int)})


NAMES = tuple(field.name for field in fields(Rule))


def check(key: str, rule: Rule) -> None:
    """Check a key and its rule. Raises InvalidRule, for example for fields that this kind of key can't have."""
    kind, colon, name = key.partition(":")
    if kind not in KINDS or not colon or not name or len(key) > MAX_KEY_LENGTH:
        raise InvalidRule(f"{key[:80]!r} is not a valid key: use one of {', '.join(f'{kind}:NAME' for kind in KINDS)}")
    if "*" in name[:-1] or (name.endswith("*") and kind != "tag" and name != "*"):
        raise InvalidRule(
            f"{key!r}: use a star only as the whole name, as in {kind}:*, or at the end of a tag, as in tag:tenant:*"
        )
    for field, value in rule.fields_set().items():
        if field not in KINDS[kind]:
            raise InvalidRule(f"{key}: a limit of a {kind} can't have {field}, only {', '.join(sorted(KINDS[kind]))}")
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_VALUES[field]:
            raise InvalidRule(f"{key}: {field}={value!r} is not a whole number from 1 to {MAX_VALUES[field]:,}")
    if rule.burst is not None and rule.per_minute is None:
        raise InvalidRule(f"{key}: burst needs a rate: set per_minute too")
    if rule.rest is not None and rule.breaker is None:
        raise InvalidRule(f"{key}: rest needs a breaker: set breaker too")


_FIELD = re.compile(r"([a-z_]+)=(\d{1,9})%?")


def read(text: str) -> dict[str, Rule]:
    """Parse an installation's limits: `KEY field=number field=number; KEY …`. Raises InvalidRule."""
    rules: dict[str, Rule] = {}
    for line in filter(None, map(str.strip, re.split(r"[;\n]", text))):
        key, *assignments = line.split()
        found: dict[str, int] = {}
        for text_of_field in assignments:
            match = _FIELD.fullmatch(text_of_field)
            if match is None or match[1] not in NAMES or match[1] in found:
                known = ", ".join(f"{name}=NUMBER" for name in NAMES)
                raise InvalidRule(f"{key}: {text_of_field!r} is not one of {known}, each once")
            found[match[1]] = int(match[2])
        if not found:
            raise InvalidRule(f"{key!r} has no limit: give one, such as per_minute=60")
        if key in rules:
            raise InvalidRule(f"{key!r} is named twice")
        rules[key] = Rule(**found)
        check(key, rules[key])
    return rules


@dataclass(frozen=True, slots=True)
class RateLimit:
    """Limits of a tool across all workers, as set by its author. Settings and people can override them.

    It allows `per_minute` calls, with a `burst` after idle time (default: the calls of one second), and at most
    `at_once` at a time. Raises DefinitionError for an invalid number, and if neither limit is given.
    """

    per_minute: int | None = None
    at_once: int | None = None
    burst: int | None = None

    def __post_init__(self) -> None:
        try:
            check("tool:x", self.rule)
        except InvalidRule as wrong:
            raise DefinitionError(f"RateLimit: {str(wrong).partition(': ')[2]}") from None
        if self.per_minute is None and self.at_once is None:
            raise DefinitionError("RateLimit() limits nothing: give per_minute, at_once, or both")

    @property
    def rule(self) -> Rule:
        """The same limits as a `Rule`."""
        return Rule(per_minute=self.per_minute, at_once=self.at_once, burst=self.burst)


def keys_of_model(model: str) -> tuple[str, ...]:
    """Return the keys of a request to a model: those of model and provider (the part before the first colon)."""
    return f"model:{model}", f"provider:{model.partition(':')[0]}"


Reason = Literal["rate", "at_once", "asked", "breaker", "changed"]


@dataclass(frozen=True, slots=True)
class Permit:
    """Permission for one try.

    `is_held`: the permit must be given back. `probed` are the keys whose open breaker this try tests.
    """

    id: str
    keys: tuple[str, ...]
    is_held: bool = False
    probed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """The answer that no permit is available now, with the key, the reason, and the minimum wait in seconds."""

    key: str
    why: Reason
    seconds: float


@dataclass(frozen=True, slots=True)
class TryResult:
    """The result of a try.

    `served`: whether the upstream system served the try; None if unknown. `retry_after` is in seconds.
    """

    served: bool | None = None
    error: str = ""
    retry_after: float = 0.0


NOTHING_KNOWN = TryResult()


@dataclass(frozen=True, slots=True)
class PermitRequest:
    """A request for a permit.

    `lasts` is the maximum duration of the try, and `patience` the maximum wait, in seconds. `earlier` counts earlier
    refusals.
    """

    run_id: str
    slot: str
    lasts: float
    earlier: int = 0
    patience: float = 2.0


class Limits:
    """The limits that a worker enforces. This base class limits nothing.

    `version` changes whenever the result of `is_known` may change.
    """

    version = 0
    is_capping = False  # whether agents or tags are limited, so that a different run may take a free slot

    @property
    def blocks_claims(self) -> bool:
        """Return whether nothing may be claimed because the limits can't be trusted."""
        return False

    def is_known(self, key: str) -> bool:
        """Return whether a key has a limit, even if the limit is not reached."""
        return False

    def needs_permit(self, keys: tuple[str, ...]) -> bool:
        """Return whether a call under these keys needs a permit now."""
        return False

    async def take(self, keys: tuple[str, ...], request: PermitRequest) -> Permit | Refused:
        return Permit("", keys)

    def give_back(self, permit: Permit) -> None:
        """Give back a permit after its try, or when the try won't be made."""

    def report(self, keys: tuple[str, ...], permit: Permit | None, result: TryResult) -> None:
        """Report the result of a try."""

    async def refresh(self, connection: Any) -> None:
        """Read the current limits. Called about once a second."""

    async def serve(self, pool: Any) -> None:
        """Do background work with the worker's connections until the task is cancelled."""
        await asyncio.Event().wait()

    def hear(self, notification: str | None) -> None:
        """Handle a wake-up notification of workers; the notification is None after a lost connection."""
