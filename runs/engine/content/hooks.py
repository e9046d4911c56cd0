"""Hooks that look at a piece of content before it reaches a model, a tool or a node, and say what becomes of it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from runs.engine.errors import DefinitionError

SOURCES = ("prompt", "transcript", "tool", "child", "signal", "message", "answer", "model", "node")
DESTINATIONS = ("model", "tool", "node")
LONGEST_REASON = 200
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_LONGEST_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of content on its way.

    `content` is plain data. `source` says where it comes from: `prompt` (of a node), `transcript` (a conversation that
    is to be made short, or what stands for its older turns), `tool` (a result), `child` (an output), `signal`,
    `message`, `answer` (of a person), `model` (its call of a tool), `node` (its call of a tool); `name` is that tool's,
    agent's, signal's … name. `to` says where it goes: `model`, `tool` (as its arguments), `node`; `target` is that
    assistant's, tool's or node's name. `agent` is the version that drives the run, `run_id` the run. `is_restored`: it
    was read back from the journal, where another worker, or an earlier visit of this one, had put it.
    """

    content: Any
    source: str
    name: str
    to: str
    target: str
    agent: str
    run_id: str
    is_restored: bool = False


@dataclass(frozen=True, slots=True)
class Withhold:
    """A hook's verdict: the piece goes nowhere. `reason` is for the record, so it must not quote the content."""

    reason: str


@dataclass(frozen=True, slots=True)
class Redact:
    """A hook's verdict: `content` (plain data) goes on in the piece's place. `reason` is for the record, so it must not
    quote what was there before."""

    content: Any
    reason: str


@dataclass(frozen=True)
class Screen:
    """A hook, as `screen` makes it: `name` and `version` are on record with each verdict of the `function`. It is asked
    about pieces of these `source`s on their way `to` these, and has `timeout` seconds. `is_quick`: without a thread,
    which is for the engine's own."""

    name: str
    version: str
    function: Callable[[Piece], Any]
    source: frozenset[str]
    to: frozenset[str]
    timeout: float = 2.0
    is_quick: bool = False

    @property
    def id(self) -> str:
        return f"{self.name}@{self.version}"

    def is_for(self, piece: Piece) -> bool:
        """Whether it wants to see such a `piece`."""
        return piece.source in self.source and piece.to in self.to


def screen(
    *,
    version: str,
    source: Iterable[str] = SOURCES,
    to: Iterable[str] = DESTINATIONS,
    timeout: float = 2.0,
    name: str = "",
) -> Callable[[Callable[[Piece], Any]], Screen]:
    """Make a function of a `Piece` a hook: it returns None (let it pass), `Redact(content, reason)` or
    `Withhold(reason)`. Plain functions are called in a thread, `async def` is awaited.

    `version` is on record with each verdict: give it another one with each change. `source` and `to` say which pieces
    it is asked about (all, unless given). One that raises, returns something else, or takes more than `timeout` seconds
    (2) counts as a no. `name` is the function's unless given. Raises DefinitionError.
    """

    def register(function: Callable[[Piece], Any]) -> Screen:
        called = name or str(getattr(function, "__name__", ""))
        whose = f"screen {called!r}"
        if not _NAME.fullmatch(called):
            raise DefinitionError(f"{whose}: its name is not lower_snake_case of at most 64 letters")
        if not isinstance(version, str) or not _VERSION.fullmatch(version):
            raise DefinitionError(f'{whose}: version is {version!r}: give a text such as "1"')
        if not callable(function) or len(inspect.signature(function).parameters) != 1:
            raise DefinitionError(f"{whose}: it must take exactly one argument, the Piece")
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout <= _LONGEST_SECONDS:
            raise DefinitionError(f"{whose}: timeout is {timeout!r}: give seconds, at most {_LONGEST_SECONDS:g}")
        return Screen(
            called,
            version,
            function,
            _some(whose, "source", source, SOURCES),
            _some(whose, "to", to, DESTINATIONS),
            timeout,
        )

    return register


def check_screens(whose: str, screens: Any) -> None:
    """Raises DefinitionError for what is no list of hooks, and for two of one name."""
    if not isinstance(screens, (list, tuple)) or not all(isinstance(each, Screen) for each in screens):
        raise DefinitionError(f"{whose}: screens={screens!r}: give a list of functions made hooks by @screen(…)")
    names = [each.name for each in screens]
    for name in names:
        if names.count(name) > 1:
            raise DefinitionError(f"{whose}: there are two screens named {name!r}")


def _some(whose: str, what: str, given: Iterable[str], known: tuple[str, ...]) -> frozenset[str]:
    wanted = (given,) if isinstance(given, str) else tuple(given)
    unknown = [each for each in wanted if each not in known]
    if unknown or not wanted:
        raise DefinitionError(f"{whose}: {what}={given!r}: give some of {', '.join(known)}")
    return frozenset(wanted)
