"""Hooks that check a piece of content before it reaches a model, a tool or a node."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from runs.engine.errors import DefinitionError

SOURCES = ("prompt", "transcript", "tool", "child", "signal", "message", "answer", "model", "node")
DESTINATIONS = ("model", "tool", "node")
MAX_REASON_LENGTH = 200
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_MAX_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of content on its way to a model, a tool or a node. `content` is plain data.

    `source` tells where it comes from: `prompt` (of a node), `transcript` (a conversation to be compacted, or the
    summary of its older turns), `tool` (a result), `child` (an output), `signal`, `message`, `answer` (of a person),
    `model` (its call of a tool), `node` (its call of a tool); `name` is the name of that tool, agent, signal and so on.
    `to` tells where it goes: `model`, `tool` (as its arguments), `node`; `target` is the name of that assistant, tool
    or node. `agent` is the version that drives the run, `run_id` the run. `is_restored`: it was read from the journal,
    where another worker or an earlier visit had written it.
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
    """A hook's verdict: block the piece. `reason` is recorded, so it must not quote the content."""

    reason: str


@dataclass(frozen=True, slots=True)
class Redact:
    """A hook's verdict: replace the piece with `content` (plain data).

    `reason` is recorded, so it must not quote the original.
    """

    content: Any
    reason: str


@dataclass(frozen=True)
class Screen:
    """A hook, as made by `screen`. `name` and `version` are recorded with each verdict of the `function`.

    It checks pieces from these sources (`source`) on their way to these targets (`to`), within `timeout` seconds.
    `is_quick`: it is called directly, not in a thread (for the engine's own hooks).
    """

    name: str
    version: str
    function: Callable[[Piece], Any]
    source: frozenset[str]
    to: frozenset[str]
    timeout: float = 2.0
    is_quick: bool = False

    @property
    def id(self) -> str:
        """Name and version in their recorded form."""
        return f"{self.name}@{self.version}"

    def is_for(self, piece: Piece) -> bool:
        """Return whether the hook checks a `piece` of this kind."""
        return piece.source in self.source and piece.to in self.to


def screen(
    *,
    version: str,
    source: Iterable[str] = SOURCES,
    to: Iterable[str] = DESTINATIONS,
    timeout: float = 2.0,
    name: str = "",
) -> Callable[[Callable[[Piece], Any]], Screen]:
    """Turn a function of a `Piece` into a hook.

    A plain function is called in a thread, an `async def` is awaited. The function returns None (pass),
    `Redact(content, reason)` or `Withhold(reason)`. If it raises, returns something else, or takes longer than
    `timeout` seconds (2), the piece is withheld. `version` is recorded with each verdict: change it whenever the
    function changes. `source` and `to` select the pieces (default: all). `name` defaults to the function's. Raises
    DefinitionError.
    """

    def register(function: Callable[[Piece], Any]) -> Screen:
        called = name or str(getattr(function, "__name__", ""))
        whose = f"screen {called!r}"
        if not _NAME.fullmatch(called):
            raise DefinitionError(f"{whose}: its name is invalid: use lower_snake_case, at most 64 characters")
        if not isinstance(version, str) or not _VERSION.fullmatch(version):
            raise DefinitionError(f'{whose}: version is {version!r}: give a text such as "1"')
        if not callable(function) or len(inspect.signature(function).parameters) != 1:
            raise DefinitionError(f"{whose}: it must take exactly one argument, the Piece")
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout <= _MAX_SECONDS:
            raise DefinitionError(f"{whose}: timeout is {timeout!r}: give seconds, at most {_MAX_SECONDS:g}")
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
    """Raise DefinitionError unless `screens` is a list of hooks with different names."""
    if not isinstance(screens, (list, tuple)) or not all(isinstance(each, Screen) for each in screens):
        raise DefinitionError(f"{whose}: screens={screens!r}: give a list of functions made hooks by @screen(…)")
    names = [each.name for each in screens]
    for name in names:
        if names.count(name) > 1:
            raise DefinitionError(f"{whose}: there are two screens named {name!r}: rename one")


def _some(whose: str, what: str, given: Iterable[str], known: tuple[str, ...]) -> frozenset[str]:
    wanted = (given,) if isinstance(given, str) else tuple(given)
    unknown = [each for each in wanted if each not in known]
    if unknown or not wanted:
        raise DefinitionError(f"{whose}: {what}={given!r}: give some of {', '.join(known)}")
    return frozenset(wanted)


# Maximum characters of one piece. Tool results are shortened to a part of the model's window long before this limit.
MAX_FOR_MODEL = 2_000_000
MAX_FOR_TOOL = 4_000_000

_SELECTORS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
# Characters that a model sees but a person doesn't: control characters (except tab and line breaks), direction marks,
# zero-width characters, tags (except in a flag emoji). A single joiner shapes letters and emoji, and a single variation
# selector picks a form; a sequence of them can hide text.
_HIDDEN = re.compile(
    "\U0001f3f4[\U000e0061-\U000e007a]{3,6}\U000e007f"  # a flag emoji, which is allowed
    "|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u180e\u200b\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
    "|[\U000e0000-\U000e007f]"
    f"|[\u200c\u200d]{{2,}}|[{_SELECTORS}]{{2,}}"
)

# The encoder is built only once, because the arguments of each call are measured.
_JSON = json.JSONEncoder(ensure_ascii=False)


def _mark(match: re.Match[str]) -> str:
    found = match.group()
    return found if found[0] == "\U0001f3f4" else "".join(f"[U+{ord(each):04X}]" for each in found)


def each_text(value: Any, change: Callable[[str], str]) -> Any:
    """Return plain data with `change` applied to every text, including field names."""
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
    """Return the size of a piece: the characters of a text, or of other data's JSON."""
    return len(content) if isinstance(content, str) else len(_JSON.encode(content))


def _too_large(piece: Piece) -> Withhold | None:
    size, most = characters(piece.content), MAX_FOR_TOOL if piece.to == "tool" else MAX_FOR_MODEL
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
# The hooks that can't be switched off.
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
    """Withhold external content that gives the model orders.

    It matches only known markers, so rephrased attacks pass.
    """
    hits = 0

    def look(text: str) -> str:
        nonlocal hits
        hits += len(_MARKERS.findall(text))
        return text

    each_text(piece.content, look)
    return Withhold(f"{hits} markers of a prompt injection") if hits else None
