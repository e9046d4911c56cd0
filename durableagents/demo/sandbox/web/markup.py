"""Text from outside is inert on a page, whoever forgets to think of it.

``show`` is what the templates do with every value they write (``rendering.py``): only ``Markup`` is HTML already. Everything
else is escaped, kept from reordering its surroundings, and has its invisible characters spelt out, so a vendor named after a
script tag or a right-to-left override is only an ugly name.
"""

from __future__ import annotations

import html
import unicodedata

from markupsafe import Markup

# Line and paragraph separators, control and format characters: all that can be there without being seen, save tab and
# newline.
_INVISIBLE = frozenset(("Cc", "Cf", "Cs", "Co", "Zl", "Zp"))
_MOST_MARKS = 3
# No quotes in it: where `plain` was forgotten, in an attribute, a value still can't end the attribute.
_SPELT_OUT = "<span class=u>U+{:04X}</span>"


def show(value: object) -> Markup:
    """Any value as inert HTML; None is a dash."""
    if isinstance(value, Markup):
        return value
    if value is None or value == "":
        return Markup("<span class=muted>–</span>")
    return Markup(f"<bdi>{_inert(str(value), _SPELT_OUT)}</bdi>")


def plain(value: object) -> Markup:
    """The same without elements, for attributes and where HTML allows none."""
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
        if (category in _INVISIBLE and character not in "\n\t") or marks > _MOST_MARKS:
            shown.append(spelt_out.format(ord(character)))
        else:
            shown.append(html.escape(character))
    return "".join(shown)
