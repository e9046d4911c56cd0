"""Template filters and tags for values on the console: untrusted text, times, durations, numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from html import escape
from typing import Any, TypeGuard

from django import template
from django.conf import settings
from django.template.defaultfilters import filesizeformat
from django.utils.html import format_html
from django.utils.safestring import SafeString

from ledger.clock import lapse
from ledger.codec import Cut
from ledger.errors import Moved
from ledger.web import navigation as around
from ledger.web import text_safety as seen
from ledger.web.page_base import may_open
from ledger.web.page_forms import Refused
from ledger.web.roles import name_of, ordered
from ledger.web.seeing.payloads import ERASED, WHO_GIVES, Hidden

register = template.Library()
register.filter(lapse)


# Longer texts, and values with more leaves, are shown only in part.
MAX_SHOWN, MAX_LEAVES = 16_000, 400
HEAD_SHOWN, HEAD_LEAVES = 2_000, 50


@register.simple_tag(takes_context=True)
def leads_to(context: template.Context, name: str, *args: object) -> bool:
    """Return whether the reader may open the page of this name."""
    return may_open(name, args, context["held"], context.get("request"))


@register.filter
def visible(value: object) -> SafeString:
    """Return untrusted text, escaped, with hidden characters made visible.

    Of a long text, only the beginning and the length of the rest are shown.
    """
    text = str(value)
    if len(text) <= MAX_SHOWN:
        return whole(text)
    return SafeString(f"{whole(text[:HEAD_SHOWN])}{_left_out(len(text) - HEAD_SHOWN)}")


@register.filter
def whole(value: object) -> SafeString:
    """Return a text in full, otherwise like `visible`: deciders must see everything that their decision covers."""
    text = str(value)
    return SafeString(escape(text)) if seen.is_harmless(text) else _drawn(seen.pieces(text))


def _left_out(characters: int) -> str:
    return f'<span class="u" title="{characters:,} more characters not shown">… {characters:,} more</span>'


@register.filter
def listed(values: Iterable[object]) -> SafeString:
    """Join untrusted texts. (Django's `join` escapes, and a second escaping would show the entities.)"""
    return visible(", ".join(map(str, values)))


@register.filter
def datum(value: object) -> SafeString:
    """Return an untrusted value on one bounded line, marked so that it can't pose as the console's own text."""
    text = str(value or "")
    return _datum(text) if len(text) <= _SHORT else _datum.__wrapped__(text)


# Cached, because the same names and tags recur in many rows and pages.
_SHORT = 200


@lru_cache(maxsize=4096)
def _datum(text: str) -> SafeString:
    if not text.strip():
        return SafeString("")
    return format_html(
        '<span class="data" title="A value from the run\u2019s data">{}</span>',
        _drawn(seen.middle(text, seen.MAX_LINE)),
    )


@register.filter
def amount(headline: object) -> SafeString:
    """Return a plan's headline: a plain amount of money unchanged, any other text as a marked value."""
    text = str(headline or "")
    return format_html("{}", text) if is_amount(text) else datum(text)


@register.filter
def is_amount(text: object) -> bool:
    return _AMOUNT.fullmatch(str(text)) is not None


_AMOUNT = re.compile(r"(?:[A-Z]{3} )?[$€£¥]?[0-9][0-9,. ]{0,18}(?: ?[A-Z]{3}|[€£¥])?", re.ASCII)


@register.filter
def way(path: object) -> SafeString:
    """Return a value's path, shortened in the middle if it is long."""
    text = str(path)
    is_plain = len(text) <= seen.MAX_PATH and "\n" not in text and seen.is_harmless(text)
    return SafeString(escape(text)) if is_plain else _drawn(seen.middle(text))


# The text is joined and escaped by hand, because a page has thousands of these and Django's own means take ten times as
# long.
def _drawn(pieces: Iterable[seen.Piece]) -> SafeString:
    return SafeString("".join([_mark(piece) if piece.is_mark else escape(piece.text) for piece in pieces]))


def _mark(piece: seen.Piece) -> str:
    return f'<span class="u" title="{escape(piece.title)}">{escape(piece.text)}</span>'


@register.filter
def visible_code(value: object) -> SafeString:
    text = str(value)
    rest = len(text) - HEAD_SHOWN if len(text) > MAX_SHOWN else 0
    drawn = _drawn(seen.pieces(text[:HEAD_SHOWN] if rest else text, is_code=True))
    return SafeString(f"{drawn}{_left_out(rest)}") if rest else drawn


@register.filter
def plainly(value: object) -> str:
    """Return the text of `visible` without markup, for attributes and drawings."""
    return "".join(piece.text for piece in seen.pieces(str(value)))


@register.filter
def line_of(value: object) -> str:
    return "".join(piece.text for piece in seen.line_pieces(str(value)))


@register.filter
def leaves(value: object) -> list[seen.Leaf]:
    return seen.leaves(value)


@register.simple_tag
def drawn_leaves(value: object, is_wide: object = False, url: str = "") -> SafeString:
    """Return a document's leaves with their paths.

    For a large document, return the beginning, its size, and a download link to `url`; for a hidden one, a note about
    who grants the right to read it.
    """
    if value is ERASED:
        return SafeString('<p class="small muted" data-hidden>Erased.</p>\n')
    if isinstance(value, Hidden):
        return SafeString(f'<p class="small muted" data-hidden>Not shown to you. {escape(WHO_GIVES)}</p>\n')
    head_text, is_cut = _head(value)
    drawn = [f'<dl class="args small{" wide-2" if is_wide else ""}">']
    for leaf in head_text:
        text = whole(leaf.text) if leaf.kind in ("string", "cut") else escape(leaf.text)
        is_empty = leaf.kind == "string" and not leaf.text
        drawn.append(f"<dt>{way(leaf.path or 'value')}</dt>\n<dd>{text}{_EMPTY if is_empty else ''}</dd>")
    return SafeString("".join([*drawn, "</dl>\n", cut_note(value, url) if is_cut else ""]))


def _head(value: object) -> tuple[list[seen.Leaf], bool]:
    """Return the leaves to show, and whether others are left out."""
    leaves: list[seen.Leaf] = []
    size, is_cut = 0, False
    for leaf in seen.each_leaf(value):
        size, is_cut = size + len(leaf.text), leaf.kind == "cut"
        leaves.append(leaf)
        if is_cut or size > MAX_SHOWN or len(leaves) > MAX_LEAVES:
            break
    if not is_cut and size <= MAX_SHOWN and len(leaves) <= MAX_LEAVES:
        return leaves, False
    head, room = [], HEAD_SHOWN
    for leaf in leaves[:HEAD_LEAVES]:
        head.append(replace(leaf, text=leaf.text[:room]))
        if (room := room - len(leaf.text)) <= 0:
            break
    return head, True


def cut_note(value: object, url: str = "") -> str:
    """Return the note below a truncated value: its size, and where to download all of it."""
    size = filesizeformat(_size(value))
    link = f'<a class="target" href="{escape(url)}" download>Download all</a>.' if url else ""
    return f'<p class="small muted" data-cut>Only the beginning of {escape(size)} is shown. {link}</p>\n'


def _size(value: object) -> int:
    """Return the size in bytes of a value, or of the whole value if this is only its beginning."""
    last = value
    while isinstance(last, (dict, list)) and last:
        last = last[next(reversed(last))] if isinstance(last, dict) else last[-1]
    return last.size if isinstance(last, Cut) else len(json.dumps(value, ensure_ascii=False, default=str).encode())


_EMPTY = '<span class="kind">empty text</span>'


@register.filter
def as_json(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


@register.filter
def pretty(value: object) -> str:
    """Return indented JSON for reading, in the original order. Not for hashing."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


# A row may have no time, and a missing template variable resolves to empty text: nothing is shown for both.
def _is_moment(at: object) -> TypeGuard[datetime]:
    return isinstance(at, datetime)


@register.simple_tag
def typed_or(typed: Mapping[str, str], name: str, *values: object) -> object:
    """Return a field's submitted text, even if empty; if the form wasn't sent, the first non-empty default."""
    return typed[name] if typed and name in typed else next((each for each in values if each), "")


@register.simple_tag
def typed_in(refused: Refused | None, *act: object) -> Mapping[str, str]:
    """Return the input of the refused form if it is this form, whose name is the concatenated `act`."""
    return refused.typed if refused and refused.act == "".join(map(str, act)) else {}


@register.simple_tag
def seen_in(refused: Refused | None, typed: Mapping[str, str], now: str) -> str:
    """Return the `seen` value of a form: the one that was sent, so that the next attempt detects a change.

    After a Moved error, return `now`, because the error has just reported the change.
    """
    was = typed.get("seen") if typed else None
    return now if was is None or (refused and isinstance(refused.error, Moved)) else was


@register.simple_tag
def wrong_in_any(refused: Refused | None, *acts: str) -> Mapping[str, str]:
    return refused.at if refused and refused.act in acts else {}


@register.simple_tag
def ticked_or(typed: Mapping[str, str], name: str, is_set: object = False) -> SafeString:
    """Return whether a box is ticked.

    An unticked box submits nothing, so other fields show whether the form was sent.
    """
    is_on = typed.get(name, "off") != "off" if typed else bool(is_set)
    return SafeString(" checked" if is_on else "")


@register.simple_tag
def since(at: datetime | str | None) -> SafeString | str:
    """Return the time that has passed since `at`; the page's script keeps it current."""
    if not _is_moment(at):
        return ""
    text = lapse(datetime.now(UTC) - at)
    return format_html('<time datetime="{}" data-since title="{}">{}</time>', at.isoformat(), _stamp(at), text)


@register.simple_tag
def until(at: datetime | str | None) -> SafeString | str:
    if not _is_moment(at):
        return ""
    left = at - datetime.now(UTC)
    text = f"in {lapse(left)}" if left > timedelta(0) else f"{lapse(-left)} ago"
    return format_html('<time datetime="{}" data-until title="{}">{}</time>', at.isoformat(), _stamp(at), text)


@register.simple_tag
def due(at: datetime | str | None) -> SafeString | str:
    """Return when something is due: `due in 2 h 14 m`, or `overdue by 5 m 00 s` with its style."""
    if not _is_moment(at):
        return ""
    left = at - datetime.now(UTC)
    is_late = left <= timedelta(0)
    text = f"overdue by {lapse(-left)}" if is_late else f"due in {lapse(left)}"
    css_class = SafeString(' class="late"' if is_late else "")
    return format_html(
        '<time datetime="{}" data-due{} title="{}">{}</time>', at.isoformat(), css_class, _stamp(at), text
    )


@register.simple_tag
def clock(at: datetime | str | None, form: str = "full") -> SafeString | str:
    """Return a time in UTC; the page's script shows local time and its zone.

    `full` shows year, seconds and zone, as needed for evidence; `brief` day and minute, for lists; `seconds` the time
    of day.
    """
    if not _is_moment(at):
        return ""
    at = at.astimezone(UTC)
    text = at.strftime(_FORMS.get(form, _FORMS["full"]))
    return SafeString(
        f'<time datetime="{at.isoformat()}" data-clock="{escape(form)}" title="{_stamp(at)}">{text} UTC</time>'
    )


@register.simple_tag
def clock_now() -> SafeString | str:
    return clock(datetime.now(UTC))


_FORMS = {"full": "%-d %b %Y %H:%M:%S", "brief": "%-d %b %H:%M", "seconds": "%H:%M:%S"}


def _stamp(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f UTC")


@register.filter
def short(value: object) -> str:
    """Shorten an id to its beginning and end, which together distinguish ids from the same second."""
    text = str(value).removeprefix("sha256:")
    return text if len(text) <= 13 else f"{text[:4]}…{text[-4:]}"


@register.filter
def quads(value: object) -> str:
    """Return a digest in groups of four, for comparison by people."""
    text = str(value)
    head, colon, digest = text.rpartition(":")
    grouped = " ".join(digest[n : n + 4] for n in range(0, len(digest), 4))
    return f"{head}{colon} {grouped}".strip()


@register.simple_tag
def field_error(words: str, id: str) -> SafeString | str:
    """Return a field's error under the id that its `aria-describedby` names: `id` with `_error` appended."""
    return format_html('<span class="error" id="{}_error">{}</span>', id, visible(words)) if words else ""


@register.filter
def role_name(role: str) -> str:
    return name_of(role)


@register.filter
def roles_in(held: Iterable[str]) -> list[str]:
    return ordered(held)


@register.filter
def words(name: object) -> str:
    """Return a name as text: `create_vendor` is `create vendor`."""
    return str(name).replace("_", " ").replace("-", " ")


@register.filter
def sentence(text: object) -> str:
    """Return the text with its first letter in upper case."""
    whole = str(text)
    return whole[:1].upper() + whole[1:]


@register.filter
def title_of(known: dict[str, Any], name: object) -> str:
    """Return the title of a node or tool as its author wrote it, or its name as text."""
    entry = known.get(str(name)) if known else None
    title = entry if isinstance(entry, str) else getattr(entry, "title", "")
    return title or words(name)


@register.filter
def item(mapping: dict[Any, Any], key: Any) -> Any:
    return mapping.get(key) if mapping else None


@register.simple_tag(takes_context=True)
def navigation(context: template.Context) -> list[around.Entry]:
    """Return the sections that the reader may open, with their counts."""
    request = context.get(
        "request"
    )  # no counts in a rendering that readers share, because they have only their roles in common

    def may(permission: str) -> bool:
        return request is not None and request.user.is_staff and request.user.has_perm(permission)

    return around.entries(context["held"], context["tally"], may)


@register.simple_tag
def more_of(entries: list[around.Entry], section: str) -> dict[str, Any] | None:
    """Return the entries under "More" and the open section among them; None if there are none."""
    more = [entry for entry in entries if entry.is_more]
    here = next((entry.section for entry in more if entry.section.name == section), None)
    return {"entries": more, "here": here} if more else None


@register.simple_tag
def help_link(section: str) -> str:
    """Return the address of the documentation about this section; empty if no address is configured."""
    site = settings.DURABLEAGENTS.docs_url
    return f"{site.rstrip('/')}/{around.help_about(section)}.html" if site else ""


@register.simple_tag(takes_context=True)
def pages_on(context: template.Context, page: str) -> list[around.SectionPage]:
    """Return the links that apps add to this page."""
    request = context.get("request")  # no links on a page that several readers share
    is_admin = request is not None and bool(request.user.is_superuser)
    return around.pages_on(page, frozenset(context.get("held") or ()), is_admin=is_admin)


@register.simple_tag
def notices() -> list[around.Notice]:
    return around.notices()


@register.simple_tag
def accounts() -> list[Any]:
    return around.accounts()


@register.filter
def tags(value: object) -> list[str]:
    """Return a run's tags as text: `key`, or `key: value`."""
    if isinstance(value, dict):
        return [f"{key}: {inner}" if inner not in ("", None) else str(key) for key, inner in value.items()]
    return [str(tag) for tag in value] if isinstance(value, list) else []


_CLASS = re.compile(r"\A(?:(?:[A-Za-z_]\w*\.)+[A-Z]\w*|[A-Z]\w*(?:Error|Exception)): (?=\S)")


@register.filter
def said(message: object) -> str:
    """Return an error's message without its class name: `a.b.TransportError: the line` becomes `the line`."""
    return _CLASS.sub("", str(message))


@register.filter
def took(end: object, start: object) -> str:
    return lapse(end - start) if _is_moment(end) and _is_moment(start) else ""
