"""Pages without a template engine: text is inert unless it was built here.

``Markup`` marks what is HTML already; everything else is escaped, kept from reordering its surroundings, and has its invisible
characters spelt out, so a vendor named after a script tag or a right-to-left override is only an ugly name.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterable, Sequence
from urllib.parse import quote

_NAVIGATION = (
    ("/", "Overview"),
    ("/erp", "ERP"),
    ("/portal", "Portal"),
    ("/credentials", "Credentials"),
    ("/mail", "Mail"),
    ("/effects.html", "Effects"),
    ("/faults.html", "Faults"),
)
# Line and paragraph separators, control and format characters: all that can be there without being seen, save tab and newline.
_INVISIBLE = frozenset(("Cc", "Cf", "Cs", "Co", "Zl", "Zp"))
_MOST_MARKS = 3


class Markup(str):
    """HTML made by us."""


def show(value: object) -> Markup:
    """Any value as inert HTML; None is a dash."""
    if isinstance(value, Markup):
        return value
    if value is None or value == "":
        return Markup('<span class="muted">–</span>')
    return Markup(f"<bdi>{_inert(str(value))}</bdi>")


def _inert(text: str) -> str:
    shown: list[str] = []
    marks = 0
    for character in text:
        category = unicodedata.category(character)
        # A few combining marks make a letter, a heap of them climbs over the neighbouring rows.
        marks = marks + 1 if category == "Mn" else 0
        if (category in _INVISIBLE and character not in "\n\t") or marks > _MOST_MARKS:
            shown.append(f'<span class="u">U+{ord(character):04X}</span>')
        else:
            shown.append(html.escape(character))
    return "".join(shown)


def code(value: object) -> Markup:
    """Short, so it stays on one line; `long_code` breaks anywhere."""
    return show(None) if value is None else Markup(f"<code>{show(value)}</code>")


def long_code(value: object) -> Markup:
    return show(None) if value is None else Markup(f'<code class="long">{show(value)}</code>')


def run(run_id: str | None) -> Markup:
    """A link to what the run did. Shortened in the middle: ids of one day share their beginning."""
    if run_id is None:
        return show(None)
    shown = run_id if len(run_id) <= 16 else f"{run_id[:8]}…{run_id[-4:]}"
    title, href = html.escape(run_id), f"/effects.html?run_id={quote(run_id, safe='')}"
    return Markup(f'<a href="{href}" title="{title}">{code(shown)}</a>')


def chip(kind: str, label: str) -> Markup:
    return Markup(f'<span class="chip {kind}">{html.escape(label)}</span>')


def link(href: str, label: object) -> Markup:
    return Markup(f'<a href="{html.escape(href)}">{show(label)}</a>')


def time(value: str | None) -> Markup:
    """To the second; the exact text stays in the page."""
    if value is None:
        return show(None)
    shown = value[:19].replace("T", " ")
    return Markup(
        f'<time datetime="{html.escape(value)}" title="{html.escape(value)}">{html.escape(shown)}</time>'
    )


def button(action: str, label: str) -> Markup:
    return Markup(
        f'<form method="post" action="{html.escape(action)}"><button class="btn">{html.escape(label)}</button></form>'
    )


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> Markup:
    """On a phone each row becomes a block with its heads as labels, hence ``data-label``."""
    body = "".join(
        "<tr>"
        + "".join(
            f'<td data-label="{html.escape(head)}">{show(cell)}</td>'
            for head, cell in zip(heads, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    if not body:
        return Markup(f'<p class="body muted">{html.escape(empty)}</p>')
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in heads)
    return Markup(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")


def panel(title: str, body: Markup, note: object = "") -> Markup:
    aside = f'<span class="right small muted">{show(note)}</span>' if note else ""
    return Markup(
        f'<section class="panel"><header><h2>{html.escape(title)}</h2>{aside}</header>{body}</section>'
    )


def page(path: str, title: str, *parts: Markup) -> str:
    links = "".join(
        f'<a href="{href}"{_current(href == path)}>{label}</a>' for href, label in _NAVIGATION
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<title>{html.escape(title)} · Sandbox</title><link rel="stylesheet" href="/sandbox.css">'
        '<link rel="icon" href="data:,"></head><body>'
        f'<a class="skip" href="#main">Skip to content</a><header class="top"><b>Sandbox</b><nav aria-label="Systems">{links}</nav></header>'
        f'<main id="main"><h1>{html.escape(title)}</h1>{"".join(parts)}</main></body></html>'
    )


def _current(is_current: bool) -> str:
    return ' class="on" aria-current="page"' if is_current else ""
