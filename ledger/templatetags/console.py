"""How values look on the console: outside text inert, times that tick, durations and numbers in plain words."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from django import template
from django.template.loader import select_template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from ledger import visible as seen
from ledger.pages import ROLE_NAMES

register = template.Library()


@register.filter
def visible(value: object) -> SafeString:
    """Outside text with everything hidden made visible. Every piece is escaped; only our own markup is markup."""
    return format_html_join(
        "",
        "{}",
        ((_mark(piece) if piece.is_mark else piece.text,) for piece in seen.pieces(str(value))),
    )


def _mark(piece: seen.Piece) -> SafeString:
    return format_html('<span class="u" title="{}">{}</span>', piece.title, piece.text)


@register.filter
def visible_code(value: object) -> SafeString:
    """The same for tracebacks, whose indentation means something."""
    return format_html_join(
        "",
        "{}",
        ((_mark(piece) if piece.is_mark else piece.text,) for piece in seen.pieces(str(value), is_code=True)),
    )


@register.filter
def plainly(value: object) -> str:
    """The same as plain text, for attributes and drawings that can hold no markup of ours."""
    return "".join(piece.text for piece in seen.pieces(str(value)))


@register.filter
def leaves(value: object) -> list[seen.Leaf]:
    return seen.leaves(value)


@register.filter
def pretty(value: object) -> str:
    """JSON for reading. Not for hashing: order is kept, indentation added."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


@register.filter
def lapse(seconds: float | timedelta | None) -> str:
    """A duration with the two units that matter: `0.4 s`, `38 s`, `2 h 14 m`, `3 d 4 h`."""
    if seconds is None:
        return ""
    total = seconds.total_seconds() if isinstance(seconds, timedelta) else float(seconds)
    total = max(total, 0.0)
    if total < 0.95:
        return f"{round(total * 1000)} ms"
    if total < 9.95:
        return f"{total:.1f} s"
    if total < 60:
        return f"{round(total)} s"
    minutes, rest = divmod(round(total), 60)
    if minutes < 60:
        return f"{minutes} m {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes:02d} m"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


@register.simple_tag
def since(at: datetime | None) -> SafeString | str:
    """How long ago; the page's script keeps it ticking."""
    if at is None:
        return ""
    text = lapse(datetime.now(UTC) - at)
    return format_html('<time datetime="{}" data-since title="{}">{}</time>', at.isoformat(), _stamp(at), text)


@register.simple_tag
def until(at: datetime | None) -> SafeString | str:
    """How long from now, or by how much it is overdue."""
    if at is None:
        return ""
    left = at - datetime.now(UTC)
    text = f"in {lapse(left)}" if left > timedelta(0) else f"{lapse(-left)} ago"
    return format_html('<time datetime="{}" data-until title="{}">{}</time>', at.isoformat(), _stamp(at), text)


@register.simple_tag
def clock(at: datetime | None, form: str = "auto") -> SafeString | str:
    """A moment: time of day if it is today (UTC here; the page's script shows the reader's own time)."""
    if at is None:
        return ""
    text = at.strftime("%H:%M:%S") if form == "seconds" else at.strftime("%H:%M")
    if form != "seconds" and at.date() != datetime.now(UTC).date():
        text = at.strftime("%d %b %H:%M")
    return format_html(
        '<time datetime="{}" data-clock="{}" title="{}">{}</time>', at.isoformat(), form, _stamp(at), f"{text} UTC"
    )


def _stamp(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f UTC")


@register.filter
def short(value: object) -> str:
    """An id by its two ends: first and last characters tell ids of one second apart."""
    text = str(value).removeprefix("sha256:")
    return text if len(text) <= 13 else f"{text[:4]}…{text[-4:]}"


@register.filter
def quads(value: object) -> str:
    """A digest in groups of four, as people compare it."""
    text = str(value)
    head, colon, digest = text.rpartition(":")
    grouped = " ".join(digest[n : n + 4] for n in range(0, len(digest), 4))
    return f"{head}{colon} {grouped}".strip()


@register.filter
def role_name(role: str) -> str:
    return ROLE_NAMES.get(role, role)


@register.filter
def words(name: object) -> str:
    """`create_vendor` as people say it: `create vendor`."""
    return str(name).replace("_", " ").replace("-", " ")


@register.filter
def sentence(text: object) -> str:
    """First letter up, the rest untouched."""
    whole = str(text)
    return whole[:1].upper() + whole[1:]


@register.filter
def title_of(known: dict[str, Any], name: object) -> str:
    """The title of a node or tool as its author wrote it, or its name as people say it."""
    found = known.get(str(name)) if known else None
    title = found if isinstance(found, str) else getattr(found, "title", "")
    return title or words(name)


@register.filter
def item(mapping: dict[Any, Any], key: Any) -> Any:
    return mapping.get(key)


@register.simple_tag(takes_context=True)
def fragment(context: template.Context, folder: str, name: object, **more: Any) -> SafeString:
    """The template `folder/name.html`, or `folder/default.html`: a new state or kind adds a file and edits none."""
    chosen = select_template([f"{folder}/{name}.html", f"{folder}/default.html"])
    with context.push(**more):
        return SafeString(chosen.template.render(context))  # type: ignore[attr-defined]


@register.filter
def took(end: datetime | None, start: datetime | None) -> str:
    """The time between two moments."""
    return lapse(end - start) if end and start else ""
