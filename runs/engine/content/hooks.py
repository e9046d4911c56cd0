"""Hooks that look at a piece of content before it reaches a model, a tool or a node, and say what becomes of it."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import NoneType
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
        """As the record names it."""
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


# Characters of one piece. A tool's answer is cut to a part of the model's window long before.
MOST_FOR_MODEL = 2_000_000
MOST_FOR_TOOL = 4_000_000

_SELECTORS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
# What a reader doesn't see and a model does: control characters but tab and line ends, what turns the direction of
# writing, zero width, tags (but in a flag). A joiner alone shapes letters and emoji, one selector picks a form; a row
# of them says something.
_HIDDEN = re.compile(
    "\U0001f3f4[\U000e0061-\U000e007a]{3,6}\U000e007f"  # a flag: let pass below
    "|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u180e\u200b\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
    "|[\U000e0000-\U000e007f]"
    f"|[\u200c\u200d]{{2,}}|[{_SELECTORS}]{{2,}}"
)

# Made once: each call's arguments are measured.
_JSON = json.JSONEncoder(ensure_ascii=False)


def _mark(match: re.Match[str]) -> str:
    found = match.group()
    return found if found[0] == "\U0001f3f4" else "".join(f"[U+{ord(each):04X}]" for each in found)


def each_text(value: Any, change: Callable[[str], str]) -> Any:
    """Plain data with every text in it changed, names of fields too."""
    match value:
        case str():
            return change(value)
        case list():
            return [each_text(each, change) for each in value]
        case dict():
            return {change(name): each_text(each, change) for name, each in value.items()}
        case _:
            return value


def characters(content: Any) -> int:
    """How large a piece is: of a text its characters, of other data those of its JSON."""
    return len(content) if isinstance(content, str) else len(_JSON.encode(content))


def may_pass_to_tool(content: Any) -> bool:
    return _is_small(content) or characters(content) <= MOST_FOR_TOOL


def _is_small(content: Any) -> bool:
    """Whether it is far below any limit, as most arguments are, told without writing it out."""
    if type(content) is not dict or len(content) > 64:
        return False
    return all(len(name) < 1000 and _is_flat(each) for name, each in content.items())


def _is_flat(value: Any) -> bool:
    return len(value) < 1000 if type(value) is str else isinstance(value, (int, float, NoneType))


def _too_large(piece: Piece) -> Withhold | None:
    size, most = characters(piece.content), MOST_FOR_TOOL if piece.to == "tool" else MOST_FOR_MODEL
    return Withhold(f"{size} characters are more than {most}") if size > most else None


def _marked(piece: Piece) -> Redact | None:
    count = 0

    def change(text: str) -> str:
        nonlocal count
        if text.isascii() and text.isprintable():
            return text
        changed = _HIDDEN.sub(_mark, text)
        count += changed != text
        return changed

    content = each_text(piece.content, change)
    return Redact(content, f"hidden characters are shown by their codes, in {count} texts") if count else None


_ALL_SOURCES = frozenset(SOURCES)
SIZE = Screen("size", "1", _too_large, _ALL_SOURCES, frozenset({"model", "tool"}), is_quick=True)
HIDDEN_CHARACTERS = Screen("hidden_characters", "1", _marked, _ALL_SOURCES, frozenset({"model"}), is_quick=True)
# What nobody can switch off.
ALWAYS = (SIZE, HIDDEN_CHARACTERS)

_FOREIGN = tuple(source for source in SOURCES if source not in ("prompt", "node", "model"))
_MARKERS = re.compile(
    r"\b(?:ignore|disregard|forget)\W{1,9}(?:\w{1,30}\W{1,9}){0,3}?"
    r"(?:previous|prior|above|earlier|your)\W{1,9}(?:\w{1,30}\W{1,9}){0,2}?"
    r"(?:instructions?|prompts?|rules|directions)\b"
    r"|\byou\s{1,9}are\s{1,9}now\s{1,9}(?:in\s{1,9})?(?:developer|dan|jailbreak|god)\b"
    r"|\b(?:reveal|print|repeat|show)\s{1,9}(?:me\s{1,9})?(?:your|the)\s{1,9}(?:system|hidden|initial)\s{1,9}(?:prompt|instructions?)\b"
    r"|<\|(?:im_start|im_end|system|endoftext)\|>|\[/?INST\]|<</?SYS>>",
    re.IGNORECASE,
)


@screen(version="1", source=_FOREIGN, to=DESTINATIONS)
def prompt_injection_markers(piece: Piece) -> Withhold | None:
    """Withholds content from outside that speaks to the model as if it gave it orders. A list of markers: it stops what
    is copied, and nobody who words it anew."""
    hits = 0

    def look(text: str) -> str:
        nonlocal hits
        hits += len(_MARKERS.findall(text))
        return text

    each_text(piece.content, look)
    return Withhold(f"{hits} markers of a prompt injection") if hits else None
