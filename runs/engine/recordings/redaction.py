"""What leaves an installation with its records: without keys and tokens in any case, and without what is declared to be
private, which a text of the same shape stands for, the same one wherever it stood.

A placeholder keeps a value's length, and which of its characters are digits and letters, so that what is built from it
is built alike on a replay; what is computed from the value itself (a checksum, a sum, a branch on it) isn't.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import isfinite
from typing import Any, NamedTuple

from ledger import events as e
from runs.engine.recordings.recording import FULL, REDACTED, BadRecording, Recording, event_as_data, event_of, text_of

# Named so, however it is spelled (`apiKey`, `x-api-key`), a field holds a secret, whatever it belongs to.
_SECRET = frozenset({"passwd", "passphrase", "authorization", "cookie", "credential", "credentials"})
_SECRET_ENDS = ("password", "secret", "token", "apikey", "privatekey", "accesskey")
# Of people and processes, and of no call.
_LEFT_OUT = (e.RunClaimed, e.WorkerLost, e.PauseRequested, e.RunPaused)
_SHORTEST = 4  # what is shorter is replaced where it is a whole value, and not looked for in other texts
_SALT = 16
_IN_JSON = 2  # so often is a text escaped that stands in JSON in a text: a model's arguments as it writes them
# A text in JSON that can't be read, such as one that ends in the middle, and of a field what is there of its value.
_STRING = r'"((?:[^"\\]|\\.)*)(?:"|\\?\Z)'
_FIELD = re.compile(rf"{_STRING}(?:(\s*:\s*)(?:{_STRING}|([^\s\",\[\]{{}}]+))?)?", re.DOTALL)
_NAMED = re.compile(r'"([^"\\]*)"\s*:')  # whatever the signs before it were to mean


class Secrets(NamedTuple):
    """What models declare as secret: fields by their names, in small letters; of `keys` not the values but the names
    under which they stand, so many mappings or lists below. `is_all`: one of them has no name, so everything may be."""

    fields: frozenset[str] = frozenset()
    keys: frozenset[tuple[str, int]] = frozenset()
    is_all: bool = False


NOTHING = Secrets()


@dataclass
class Redaction:
    """What is private: fields by the ends of their paths (`iban`, `customer.name`, `*` for any one name), and what
    models `declared`, beside those whose names say so. `salt` makes the placeholders: another one in each export, so
    that none can be looked up."""

    paths: Sequence[str] = ()
    salt: bytes = b""
    declared: Secrets = NOTHING
    _known: dict[str, str] = field(default_factory=dict, init=False)
    _ways: dict[str, list[Callable[[str], str]]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        for path in self.paths:
            if not path or any(not part for part in path.split(".")):
                raise ValueError(f"{path!r} is no path of fields, such as iban or customer.name")
        self._patterns = [tuple(path.lower().split(".")) for path in self.paths]

    def keeps(self, event: e.Event) -> bool:
        return not isinstance(event, _LEFT_OUT)

    # --- what is private ---

    def is_private(self, path: tuple[str, ...]) -> bool:
        """Whether the field at this path is, by its own names."""
        name = path[-1] if path else ""
        spelled = name.lower().replace("-", "").replace("_", "")
        if spelled in _SECRET or spelled.endswith(_SECRET_ENDS):
            return True
        if name in self.declared.fields or self.declared.is_all:
            return True
        return any(
            len(path) >= len(pattern)
            and all(want in ("*", have) for want, have in zip(reversed(pattern), reversed(path), strict=False))
            for pattern in self._patterns
        )

    def _has_private_keys(self, path: tuple[str, ...]) -> bool:
        return any(
            len(path) > n and path[-1 - n] == name for name, within in self.declared.keys for n in range(within + 1)
        )

    def _collect(self, value: Any, path: tuple[str, ...] = (), *, inside: bool = False) -> None:
        """Learn every private value."""
        inside = inside or self.is_private(path)
        match value:
            case dict():
                is_secret = self._has_private_keys(path)
                for name, each in value.items():
                    if is_secret:
                        self._known.setdefault(str(name), "")
                    self._collect(each, (*path, str(name).lower()), inside=inside)
            case list():
                for each in value:
                    self._collect(each, path, inside=inside)
            case bool() | None:
                pass
            case str() | int() | float() if inside:
                self._known.setdefault(str(value), "")
            case str():
                self._collect_in(value, path)

    def _collect_in(self, text: str, path: tuple[str, ...]) -> None:
        """Learn what is private in a text that is JSON, or was to be."""
        if not _looks_like_json(text):
            return
        try:
            # A name that is there twice counts twice, whichever of its values a reader takes.
            self._collect(json.loads(text, object_pairs_hook=_every), path)
        except (ValueError, RecursionError):
            self._collect_unreadable(text, path)

    def _collect_unreadable(self, text: str, path: tuple[str, ...]) -> None:
        """JSON that ends in the middle, or is too deep: all of it is private where a private field is named."""
        keys = {name for name, _ in self.declared.keys}
        fields = [(_unescaped(name), words, bare) for name, is_named, words, bare in _FIELD.findall(text) if is_named]
        for name, words, bare in (*fields, *((name, "", "null") for name in _NAMED.findall(text))):
            place = (*path, name.lower())
            if place[-1] in keys or self.is_private(place):
                self._known.setdefault(text, "")
                if bare not in ("null", "true", "false"):
                    self._collect(_unescaped(words) or bare, place, inside=True)

    def _people(self, events: Iterable[e.Event]) -> None:
        for event in events:
            for name in ("by", "asked_by"):
                who = getattr(event, name, None)
                if isinstance(who, str) and who.startswith(("user:", "key:")):
                    kind = who.partition(":")[0]
                    self._known.setdefault(who, f"{kind}:{len(self._known) + 1}")

    # --- what stands for it ---

    def _stand_in(self, value: str) -> str:
        known = self._known.get(value)
        if not known:
            known = self._known[value] = self._shaped(value)
        return known

    def _shaped(self, value: str) -> str:
        """As long, digits for digits and letters for letters, and never the value itself."""
        for n in range(16):
            stream = hashlib.shake_256(hmac.new(self.salt, f"{n}|{value}".encode(), hashlib.sha256).digest()).digest(
                len(value)
            )
            made = "".join(map(_like, value, stream))
            if made != value:
                return made
        return "·" * len(value)

    def _replaced(self, value: Any, path: tuple[str, ...] = (), *, inside: bool = False) -> Any:
        inside = inside or self.is_private(path)
        match value:
            case dict():
                is_secret = self._has_private_keys(path)
                return {
                    (self._stand_in(name) if is_secret else self._in_text(name)): self._replaced(
                        each, (*path, str(name).lower()), inside=inside
                    )
                    for name, each in value.items()
                }
            case list():
                return [self._replaced(each, path, inside=inside) for each in value]
            case str():
                is_it = (inside and value) or (len(value) > 1 and value in self._known)
                return self._stand_in(value) if is_it else self._in_json(value, path)
            case bool() | None:
                return value
            case int() if inside or (str(value) in self._known and len(str(value)) > _SHORTEST):
                return int(self._stand_in(str(value)))
            case float() if inside and isfinite(value):
                return float(self._stand_in(f"{value:.6f}"))
            case _:
                return value

    def _in_json(self, text: str, path: tuple[str, ...]) -> str:
        """A text; one that is JSON stays JSON, without its private fields."""
        if _looks_like_json(text):
            try:
                found = json.loads(text)
                made = self._replaced(found, path)
            except (ValueError, RecursionError):
                return self._in_text(text)
            if made != found:
                return json.dumps(made, ensure_ascii=False)
        return self._in_text(text)

    def _in_text(self, text: str) -> str:
        """Without what is known to be private, the longest first."""
        for private in sorted((each for each in self._known if len(each) >= _SHORTEST), key=len, reverse=True):
            for written in self._as_written(private):
                if (found := written(private)) in text:
                    text = text.replace(found, written(self._stand_in(private)))
        return text

    def _as_written(self, private: str) -> list[Callable[[str], str]]:
        """The ways in which a text may hold it: as it is, or as JSON in a text does."""
        if private not in self._ways:
            by_text = {written(private): written for written in reversed(_WAYS)}
            self._ways[private] = sorted(by_text.values(), key=lambda written: -len(written(private)))
        return self._ways[private]

    def _in_texts(self, value: Any) -> Any:
        """The same in what a list holds; by its words only: what an event says in the clear has names of its own."""
        if isinstance(value, list):
            return [self._in_texts(each) for each in value]
        return self._in_text(value) if isinstance(value, str) else value

    # --- a recording ---

    def of(self, recording: Recording) -> Recording:
        """The same visit, without what is private. Raises BadRecording where something of it would be left."""
        events = [event for event in recording.events if self.keeps(event)]
        every = [recording.created, *recording.before, *events]
        for value in (recording.state, recording.after, *(event_as_data(event) for event in every)):
            self._collect(value)
        for event in (x for x in every if isinstance(x, e.AttributesSet)):
            for name, value in zip(event.names, event.values, strict=True):
                self._collect(value, (name.lower(),))
        self._people(every)
        made = replace(
            recording,
            created=self._event(recording.created),
            state=self._replaced(recording.state),
            after=self._replaced(recording.after),
            before=tuple(map(self._event, recording.before)),
            events=tuple(map(self._event, events)),
            times=(),
            payloads=REDACTED,
        )
        told = text_of(made)
        left = [each for each in self._known if len(each) > _SHORTEST and self._is_in(told, each)]
        if left:
            raise BadRecording(f"{len(left)} private value(s) would be left in it")
        return replace(made, placeholders=sorted({each for each in self._known.values() if each}))

    def _is_in(self, told: str, private: str) -> bool:
        return any(_escaped(written(private), ensure_ascii=False) in told for written in self._as_written(private))

    def _event(self, event: Any) -> Any:
        told = event_as_data(event)
        payload = told["payload"]
        if isinstance(payload, dict):
            payload = payload | {name: "" for name in _told_to_people(event, payload) if payload.get(name)}
        metadata = {name: self._in_texts(each) for name, each in told["event"].items()}
        return event_of({"event": metadata | {"kind": event.KIND}, "payload": self._replaced(payload)})


def without_keys(recording: Recording) -> Recording:
    """The same without idempotency keys and callback tokens, which are taken out in every mode: whoever has them can
    speak for the run."""
    return replace(
        recording, events=tuple(map(_without_key, recording.events)), before=tuple(map(_without_key, recording.before))
    )


def _without_key(event: e.Event) -> e.Event:
    if isinstance(event, e.ToolInvoked) and isinstance(event.payload, dict):
        kept = {n: v for n, v in event.payload.items() if n not in ("callback_token", "callback_base")}
        return replace(event, payload=kept | {"key": None})
    return event


def _told_to_people(event: e.Event, payload: dict[str, Any]) -> tuple[str, ...]:
    """What of a payload is words for people, which nothing is computed from: a fork's question tells of arguments that
    stand nowhere as fields, and cut."""
    is_a_forks = isinstance(event, e.WaitOpened) and "binds" in payload
    return ("traceback", "justification", *(("about",) if is_a_forks else ()))


def _looks_like_json(text: str) -> bool:
    return text.lstrip()[:1] in ("{", "[")


def _every(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, in a list all values of a name that it has more than once."""
    found: dict[str, list[Any]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def _unescaped(text: str) -> str:
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return text  # it ends in the middle of an escape


def _escaped(text: str, *, ensure_ascii: bool, times: int = 1) -> str:
    for _ in range(times):
        text = json.dumps(text, ensure_ascii=ensure_ascii)[1:-1]
    return text


_WAYS: list[Callable[[str], str]] = [
    str,
    *(partial(_escaped, ensure_ascii=is_ascii, times=n + 1) for n in range(_IN_JSON) for is_ascii in (False, True)),
]


def _like(character: str, random: int) -> str:
    if character.isdigit():
        return "123456789"[random % 9]
    if not character.isalpha():
        return character
    made = "abcdefghijklmnopqrstuvwxyz"[random % 26]
    return made.upper() if character.isupper() else made


__all__ = ["FULL", "REDACTED", "Redaction", "without_keys"]
