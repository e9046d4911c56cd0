"""The pages' templates, and the few ways of writing a value into them.

Every value in a template passes through ``show``, which is Jinja's ``finalize``, so it can't be forgotten. No filter
turns text into HTML.
"""

from __future__ import annotations

import html
import sqlite3
import unicodedata
from collections.abc import Sized
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from .. import mail

# Line and paragraph separators, control and format characters: all that can be there without being seen, save tab and
# newline.
_INVISIBLE = frozenset(("Cc", "Cf", "Cs", "Co", "Zl", "Zp"))
_MAX_MARKS = 3
# No quotes in it: where `plain` was forgotten, in an attribute, a value still can't end the attribute.
_SPELT_OUT = "<span class=u>U+{:04X}</span>"


def show(value: object) -> Markup:
    """Return any value as inert HTML; None and empty text become a dash."""
    if isinstance(value, Markup):
        return value
    if value is None or value == "":
        return Markup("<span class=muted>–</span>")
    return Markup(f"<bdi>{_inert(str(value), _SPELT_OUT)}</bdi>")


def plain(value: object) -> Markup:
    """Return the value as `show` does, but without elements, for attributes and other places that allow none."""
    return Markup(_inert(str(value), "U+{:04X}"))


def _inert(text: str, spelt_out: str) -> str:
    if text.isascii() and text.isprintable():
        return html.escape(text)
    shown: list[str] = []
    marks = 0
    for character in text:
        category = unicodedata.category(character)
        # A few combining marks make a letter, a heap of them climbs over the neighbouring rows.
        marks = marks + 1 if category == "Mn" else 0
        if (category in _INVISIBLE and character not in "\n\t") or marks > _MAX_MARKS:
            shown.append(spelt_out.format(ord(character)))
        else:
            shown.append(html.escape(character))
    return "".join(shown)


NEWEST = 200
TEMPLATES = Path(__file__).with_name("templates")


def render(name: str, **values: Any) -> str:
    return environment.get_template(name).render(values)


def _quoted(value: str) -> Markup:
    """Return a value quoted for a URL's query. Nothing in the result is special in HTML."""
    return Markup(quote(value, safe=""))


def _shortened(run_id: str) -> str:
    """Shorten an id in the middle, because ids of the same day begin alike."""
    return run_id if len(run_id) <= 16 else f"{run_id[:8]}…{run_id[-4:]}"


def _numbered(seq: int, prefix: str) -> str:
    return f"{prefix}-{seq:06d}"


def _dollars(amount: str) -> str:
    whole, _, cents = amount.partition(".")
    return f"${int(whole):,}.{cents or '00'}"


def _thousands(count: int) -> str:
    return f"{count:,}"


def _masked(secret: str) -> str:
    return f"{secret[:13]}••••••••"


def _host(url: str) -> str:
    return urlsplit(url).netloc


def _last_try(request: sqlite3.Row) -> str:
    """Return the result of the last callback and the number of attempts."""
    result: str = request["last_result"] or "under way"
    return f"{result} after {request['attempts']} tries" if request["attempts"] > 1 else result


def newest(rows: Sized) -> str:
    """Return a note for a list that shows only the newest rows; empty for a complete list."""
    return f"the newest {NEWEST}" if len(rows) == NEWEST else ""


environment = Environment(
    loader=FileSystemLoader(TEMPLATES),
    autoescape=True,
    finalize=show,
    undefined=StrictUndefined,
    auto_reload=False,
    trim_blocks=True,
    lstrip_blocks=True,
)
# These and no others: Jinja's own would let text pass as HTML (`safe`), or unseen characters with it (`escape`).
environment.filters = {
    "addresses": mail.addresses,
    "body_text": mail.body_text,
    "dollars": _dollars,
    "host": _host,
    "last_try": _last_try,
    "masked": _masked,
    "newest": newest,
    "numbered": _numbered,
    "plain": plain,
    "quoted": _quoted,
    "shortened": _shortened,
    "thousands": _thousands,
}
