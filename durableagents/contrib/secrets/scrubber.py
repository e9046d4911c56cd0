"""Replaces the values of secrets that this process has read, in all encodings used in texts. Pure."""

from __future__ import annotations

import base64
import html
import json
import threading
from collections import OrderedDict
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

MIN_LENGTH = 6  # replacing shorter values would garble unrelated text
MAX_VALUES = 1000  # includes former values, which errors may still quote
# minimum length of a line in a value of several lines (such as a private key) that is replaced on its own
_MIN_LINE = 16
_MIN_CUT, _MAX_CUT = 8, 16  # lengths at which the beginning or the end of a value is replaced in errors
_MIN_ENCODED = 8


class Forms:
    """The forms in which a text may contain a value, longest first."""

    def __init__(self, name: str, value: str) -> None:
        self.reference = f"secret://{name}"
        self.all = sorted(set(_forms(value)), key=len, reverse=True)
        self.plain = sorted({value, json.dumps(value)[1:-1]}, key=len)

    def replaced(self, text: str) -> str:
        """Return the text with the reference instead of the value."""
        for form in self.all:
            if form in text:
                text = text.replace(form, self.reference)
        return text

    def cut_replaced(self, text: str) -> str:
        """Replace the beginning and the end of the value as well, because errors shorten long values in the middle."""
        for form in self.plain:
            least = min(max(_MIN_CUT, len(form) // 4), _MAX_CUT)
            if len(form) > least and form[:least] in text:
                text = _replace_cut(text, form, least, self.reference)
            if len(form) > least and form[-least:] in text:
                text = _replace_cut(text[::-1], form[::-1], least, self.reference[::-1])[::-1]
        return text


class ProcessScrubber:
    """The values that this process has read. Threads may read and add at the same time."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], Forms] = OrderedDict()
        self._forms: tuple[Forms, ...] = ()
        self._lock = threading.Lock()

    def learn(self, name: str, value: str) -> None:
        """Add a value to those that are replaced."""
        if (name, value) in self._known:
            return
        with self._lock:
            self._known[name, value] = Forms(name, value)
            while len(self._known) > MAX_VALUES:
                self._known.popitem(last=False)
            self._forms = tuple(self._known.values())

    def text(self, text: str) -> str:
        """Return a text with all values replaced."""
        for forms in self._forms:
            text = forms.replaced(text)
        return text

    def error(self, text: str) -> str:
        """Return an error's text with all values replaced, and also their beginnings and ends."""
        text = self.text(text)
        for forms in self._forms:
            text = forms.cut_replaced(text)
        return text


def _forms(value: str) -> Iterator[str]:
    lines = [line for line in value.splitlines() if len(line) >= _MIN_LINE]
    for each in (value, *(lines if len(value.splitlines()) > 1 else ())):
        yield each
        in_json = {json.dumps(each, ensure_ascii=is_ascii)[1:-1] for is_ascii in (False, True)}
        yield from in_json
        yield from (json.dumps(text)[1:-1] for text in in_json)
        yield repr(each)[1:-1]
        yield from (quote(each), quote(each, safe=""), quote_plus(each), html.escape(each))
    data = value.encode()
    yield from (data.hex(), data.hex().upper())
    yield from _in_base64(data)


def _in_base64(data: bytes) -> Iterator[str]:
    """Yield the base64 forms of a value within a longer text, such as `user:value`.

    Each form has only the characters that don't depend on the surrounding text."""
    for before in range(3):
        first = (before * 8 + 5) // 6
        last = ((before + len(data)) * 8) // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            text = encode(b"\0" * before + data).decode()[first:last]
            if len(text) >= _MIN_ENCODED:
                yield text


def _replace_cut(text: str, form: str, least: int, reference: str) -> str:
    start, at = form[:least], 0
    while (at := text.find(start, at)) >= 0:
        size = least
        while size < len(form) and text[at + size : at + size + 1] == form[size]:
            size += 1
        text = text[:at] + reference + text[at + size :]
        at += len(reference)
    return text
