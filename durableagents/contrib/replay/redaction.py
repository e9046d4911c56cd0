"""Redacts exported records.

Keys and tokens are removed, and private values are replaced with stable placeholders of the same shape. Values computed
from a private one (a checksum, a sum) may differ on a replay."""

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

from durableagents.contrib.replay.files import REDACTED, InvalidRecording, event_as_data, event_of, file_text
from ledger import events as e
from ledger.redacted import Pattern, matches, pattern_of
from runs.engine.recordings.recording import Recording

# Fields with these names hold secrets, in any spelling (`apiKey`, `x-api-key`).
_SECRET = frozenset({"passwd", "passphrase", "authorization", "cookie", "credential", "credentials"})
_SECRET_ENDS = ("password", "secret", "token", "apikey", "privatekey", "accesskey")
# These events are left out, since they are about people and processes, not calls.
_LEFT_OUT = (e.RunClaimed, e.WorkerLost, e.PauseRequested, e.RunPaused)
MIN_LENGTH = 4  # shorter values are replaced only as whole values, not within other texts
_SALT = 16
_IN_JSON = 2  # how often a text can be escaped when it is JSON within a text, such as a model's arguments
# Matches a text in JSON that can't be parsed (such as truncated JSON); for a field, also as much of its value as is
# present.
_STRING = r'"((?:[^"\\]|\\.)*)(?:"|\\?\Z)'
_FIELD = re.compile(rf"{_STRING}(?:(\s*:\s*)(?:{_STRING}|([^\s\",\[\]{{}}]+))?)?", re.DOTALL)
_NAMED = re.compile(r'"([^"\\]*)"\s*:')  # the match ignores the meaning of the characters before it


class Secrets(NamedTuple):
    """Declared secrets.

    `fields` are lower-case names, and `keys` are mappings (with depth) whose keys are secret. With `is_all`, any field
    may contain a secret. `patterns` are endings of the paths that tools redact."""

    fields: frozenset[str] = frozenset()
    keys: frozenset[tuple[str, int]] = frozenset()
    is_all: bool = False
    patterns: frozenset[Pattern] = frozenset()


NOTHING = Secrets()


@dataclass
class Redaction:
    """The redaction of one export.

    A field is private if its path ends with one of `paths` (such as `customer.name`; `*` matches any name), if its
    model declares it as secret, or if its name is a usual one for secrets.

    `salt` differs in each export."""

    paths: Sequence[str] = ()
    salt: bytes = b""
    declared: Secrets = NOTHING
    _known: dict[str, str] = field(default_factory=dict, init=False)
    _encodings: dict[str, list[Callable[[str], str]]] = field(default_factory=dict, init=False)
    # The members of `paths` that have not occurred in any document yet.
    unmatched: dict[str, Pattern] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.unmatched = {path: pattern_of(path) for path in self.paths}
        self._patterns = [*map(pattern_of, self.paths), *sorted(self.declared.patterns)]

    def keeps(self, event: e.Event) -> bool:
        return not isinstance(event, _LEFT_OUT)

    # --- private values ---

    def learn(self, value: Any) -> None:
        """Collect the private values of a document."""
        self._collect(value)

    @property
    def private_values(self) -> frozenset[str]:
        """Return the collected private values as texts."""
        return frozenset(self._known)

    def notice(self, path: tuple[str, ...]) -> None:
        """Record that a document has this path (in lower case)."""
        if self.unmatched:
            self.unmatched = {each: end for each, end in self.unmatched.items() if not matches(path, [end])}

    def is_private(self, path: tuple[str, ...]) -> bool:
        """Return whether a field's name or path is private."""
        name = path[-1] if path else ""
        spelled = name.lower().replace("-", "").replace("_", "")
        if spelled in _SECRET or spelled.endswith(_SECRET_ENDS):
            return True
        if name in self.declared.fields or self.declared.is_all:
            return True
        return matches(path, self._patterns)

    def _has_private_keys(self, path: tuple[str, ...]) -> bool:
        return any(
            len(path) > n and path[-1 - n] == name for name, within in self.declared.keys for n in range(within + 1)
        )

    def _collect(self, value: Any, path: tuple[str, ...] = (), *, inside: bool = False) -> None:
        self.notice(path)
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
        if not _looks_like_json(text):
            return
        try:
            # If a name occurs twice, both values are collected, because parsers differ in which one they use.
            self._collect(json.loads(text, object_pairs_hook=_object_with_duplicates), path)
        except (ValueError, RecursionError):
            self._collect_unreadable(text, path)

    def _collect_unreadable(self, text: str, path: tuple[str, ...]) -> None:
        """Collect from JSON that is truncated or nested too deeply.

        If the text names a private field, the whole text is private."""
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
                actor = getattr(event, name, None)
                if isinstance(actor, str) and actor.startswith(("user:", "key:")):
                    kind = actor.partition(":")[0]
                    self._known.setdefault(actor, f"{kind}:{len(self._known) + 1}")

    # --- placeholders ---

    def _placeholder(self, value: str) -> str:
        known = self._known.get(value)
        if not known:
            known = self._known[value] = self._same_shape(value)
        return known

    def _same_shape(self, value: str) -> str:
        """Return a different text of the same length, in which digits replace digits and letters replace letters."""
        for n in range(16):
            stream = hashlib.shake_256(hmac.new(self.salt, f"{n}|{value}".encode(), hashlib.sha256).digest()).digest(
                len(value)
            )
            made = "".join(map(_like, value, stream))
            if made != value:
                return made
        return "·" * len(value)

    def _redact(self, value: Any, path: tuple[str, ...] = (), *, inside: bool = False) -> Any:
        inside = inside or self.is_private(path)
        match value:
            case dict():
                is_secret = self._has_private_keys(path)
                return {
                    (self._placeholder(name) if is_secret else self._in_text(name)): self._redact(
                        each, (*path, str(name).lower()), inside=inside
                    )
                    for name, each in value.items()
                }
            case list():
                return [self._redact(each, path, inside=inside) for each in value]
            case str():
                is_it = (inside and value) or (len(value) > 1 and value in self._known)
                return self._placeholder(value) if is_it else self._in_json(value, path)
            case bool() | None:
                return value
            case int() if inside or (str(value) in self._known and len(str(value)) > MIN_LENGTH):
                return int(self._placeholder(str(value)))
            case float() if inside and isfinite(value):
                return float(self._placeholder(f"{value:.6f}"))
            case _:
                return value

    def _in_json(self, text: str, path: tuple[str, ...]) -> str:
        """Redact a text. If the text is JSON, the result is JSON too."""
        if _looks_like_json(text):
            try:
                found = json.loads(text)
                made = self._redact(found, path)
            except (ValueError, RecursionError):
                return self._in_text(text)
            if made != found:
                return json.dumps(made, ensure_ascii=False)
        return self._in_text(text)

    def _in_text(self, text: str) -> str:
        """Replace known private values in a text, longest first."""
        for private in sorted((each for each in self._known if len(each) >= MIN_LENGTH), key=len, reverse=True):
            for written in self._encodings_of(private):
                if (found := written(private)) in text:
                    text = text.replace(found, written(self._placeholder(private)))
        return text

    def _encodings_of(self, private: str) -> list[Callable[[str], str]]:
        """Return the encodings in which a text may contain the value: plain, or escaped as JSON within a text."""
        if private not in self._encodings:
            by_text = {written(private): written for written in reversed(_ENCODINGS)}
            self._encodings[private] = sorted(by_text.values(), key=lambda written: -len(written(private)))
        return self._encodings[private]

    def _in_texts(self, value: Any) -> Any:
        """Redact all texts in an event's metadata, whatever their field names."""
        if isinstance(value, list):
            return [self._in_texts(each) for each in value]
        return self._in_text(value) if isinstance(value, str) else value

    # --- a recording ---

    def redact(self, recording: Recording) -> Recording:
        """Return the visit redacted. Raises InvalidRecording if private values would remain."""
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
            state=self._redact(recording.state),
            after=self._redact(recording.after),
            before=tuple(map(self._event, recording.before)),
            events=tuple(map(self._event, events)),
            times=(),
            payloads=REDACTED,
        )
        text = file_text(made)
        left = [each for each in self._known if len(each) > MIN_LENGTH and self._is_in(text, each)]
        if left:
            raise InvalidRecording(f"{len(left)} private value(s) would remain in it")
        return replace(made, placeholders=sorted({each for each in self._known.values() if each}))

    def _is_in(self, text: str, private: str) -> bool:
        return any(_escaped(written(private), ensure_ascii=False) in text for written in self._encodings_of(private))

    def _event(self, event: Any) -> Any:
        data = event_as_data(event)
        payload = data["payload"]
        if isinstance(payload, dict):
            payload = payload | {name: "" for name in _texts_for_people(event, payload) if payload.get(name)}
        metadata = {name: self._in_texts(each) for name, each in data["event"].items()}
        return event_of({"event": metadata | {"kind": event.KIND}, "payload": self._redact(payload)})


def remove_keys(recording: Recording) -> Recording:
    """Remove idempotency keys and callback tokens.

    This is done in every mode, because they could be used to act as the run."""
    return replace(
        recording, events=tuple(map(_without_key, recording.events)), before=tuple(map(_without_key, recording.before))
    )


def _without_key(event: e.Event) -> e.Event:
    if isinstance(event, e.ToolInvoked) and isinstance(event.payload, dict):
        kept = {n: v for n, v in event.payload.items() if n not in ("callback_token", "callback_base")}
        return replace(event, payload=kept | {"key": None})
    return event


def _texts_for_people(event: e.Event, payload: dict[str, Any]) -> tuple[str, ...]:
    """Return the payload fields that hold text for people.

    These texts quote arguments in shortened form, so private values in them can't be found by matching."""
    is_a_forks = isinstance(event, e.WaitOpened) and "binds" in payload
    return ("traceback", "justification", *(("about",) if is_a_forks else ()))


def _looks_like_json(text: str) -> bool:
    return text.lstrip()[:1] in ("{", "[")


def _object_with_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object in which a name that occurs more than once has a list of its values."""
    found: dict[str, list[Any]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def _unescaped(text: str) -> str:
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return text  # the text ends within an escape sequence


def _escaped(text: str, *, ensure_ascii: bool, times: int = 1) -> str:
    for _ in range(times):
        text = json.dumps(text, ensure_ascii=ensure_ascii)[1:-1]
    return text


_ENCODINGS: list[Callable[[str], str]] = [
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
