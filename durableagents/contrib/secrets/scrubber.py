"""Replaces the values of secrets that this process has read, however a text writes them. Pure."""

from __future__ import annotations

import base64
import html
import json
import threading
from collections import OrderedDict
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

MIN_LENGTH = 6  # replacing shorter values would destroy texts
MAX_VALUES = 1000  # also of former values, which errors may still quote
_MIN_LINE = 16  # a line of a value of several lines, such as a private key
_MIN_CUT, _MAX_CUT = 8, 16  # characters of a beginning or an end that count, in errors
_MIN_ENCODED = 8


class Forms:
    """A value as texts may write it, longest first."""

    def __init__(self, name: str, value: str) -> None:
        self.reference = f"secret://{name}"
        self.all = sorted(set(_forms(value)), key=len, reverse=True)
        self.plain = sorted({value, json.dumps(value)[1:-1]}, key=len)

    def replaced(self, text: str) -> str:
        """Return the text with the reference in place of the value."""
        for form in self.all:
            if form in text:
                text = text.replace(form, self.reference)
        return text

    def cut_replaced(self, text: str) -> str:
        """Replace beginnings and ends of the value as well: errors quote long values with their middle left out."""
        for form in self.plain:
            least = min(max(_MIN_CUT, len(form) // 4), _MAX_CUT)
            if len(form) > least and form[:least] in text:
                text = _replace_cut(text, form, least, self.reference)
            if len(form) > least and form[-least:] in text:
                text = _replace_cut(text[::-1], form[::-1], least, self.reference[::-1])[::-1]
        return text


class ProcessScrubber:
    """The values read in this process. Threads may read and add at once."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], Forms] = OrderedDict()
        self._forms: tuple[Forms, ...] = ()
        self._lock = threading.Lock()

    def learn(self, name: str, value: str) -> None:
        """Add a value."""
        if (name, value) in self._known:
            return
        with self._lock:
            self._known[name, value] = Forms(name, value)
            while len(self._known) > MAX_VALUES:
                self._known.popitem(last=False)
            self._forms = tuple(self._known.values())

    def text(self, text: str) -> str:
        """Return a text without values."""
        for forms in self._forms:
            text = forms.replaced(text)
        return text

    def error(self, text: str) -> str:
        """Return an error text without values, nor beginnings and ends of them."""
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
    """Yield what base64 makes of the value anywhere in a longer text, such as `user:value`: the characters that
    depend on nothing else."""
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
