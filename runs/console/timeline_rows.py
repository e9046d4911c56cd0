"""Timeline rows as HTML, with one function for each kind of row.
They aren't templates, because a page has hundreds of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape

from django.utils.safestring import SafeString

from ledger.clock import lapse
from ledger.templatetags.console import clock, plainly, since, title_of, visible, visible_code, words
from runs.console import pieces
from runs.console.run_page import Dossier
from runs.console.tables.event_words import link_to
from runs.story.rows import Row, RowKind
from runs.story.scale import Placed


def timeline_row(p: Placed, d: Dossier) -> SafeString:
    """Return a row as HTML: name, bars, end, and details below."""
    row, kind = p.row, KINDS[p.row.kind]
    bars = pieces.track(p, has_seam=kind.has_seam, point=kind.point(row))
    return SafeString(
        f'<div class="tl-row {kind.place}" role="listitem" id="tl-{kind.anchor or row.seq}">{kind.name(row, d)}'
        f'{bars}<span class="d">{kind.end(row)}</span>{kind.below(row)}</div>'
    )


# --- names ------------------------------------------------------------------------------------------------------------


def _named(text: Callable[[Row, Dossier], str]) -> Callable[[Row, Dossier], str]:
    return lambda row, d: f'<span class="name">└ {text(row, d)}</span>'


def _label(row: Row, d: Dossier) -> str:
    return visible(row.label)


def _tool(row: Row, d: Dossier) -> str:
    return visible(title_of(d.tools, row.label))


def _call(row: Row, d: Dossier) -> str:
    attempt = f'<span class="nowrap">&nbsp;· attempt {row.count + 1}</span>' if row.count else ""
    return f'<span class="name"><span class="cut">└ {_tool(row, d)}</span>{attempt}</span>'


def _visit(row: Row, d: Dossier) -> str:
    visit = f'<span class="muted nowrap">&nbsp;· visit {row.visit}</span>' if row.visit > 1 else ""
    title = visible(title_of(d.titles, row.label))
    return f'<span class="name" title="event {row.seq}"><span class="cut">{title}</span>{visit}</span>'


def _think(row: Row, d: Dossier) -> str:
    turns = f"{row.count} turn{'' if row.count == 1 else 's'}"
    return f'<span class="name" title="{escape(plainly(row.note))}">└ think, {turns}</span>'


def _wait(row: Row, d: Dossier) -> str:
    return f"{_label(row, d)}{f' · {visible(words(row.note))}' if row.note else ''}"


def _child(row: Row, d: Dossier) -> str:
    attempt = f'<span class="nowrap">&nbsp;· attempt {row.count + 1}</span>' if row.count else ""
    return f'<span class="name"><span class="cut">└ {link_to(_label(row, d), "run", row.run)}</span>{attempt}</span>'


# --- ends -------------------------------------------------------------------------------------------------------------


def _lasted(row: Row) -> str:
    return str(since(row.start)) if row.is_open else lapse(row.took)


def _row_time(row: Row) -> str:
    return str(clock(row.start, "seconds"))


# --- details ----------------------------------------------------------------------------------------------------------


def _nothing(row: Row) -> str:
    return ""


def _note(row: Row) -> str:
    return f'<span class="sub">{visible(row.note)}</span>' if row.note else ""


def _trouble(row: Row) -> str:
    trace = (
        f'<details class="more" id="trace-tl-{row.seq}"><summary>Traceback</summary>'
        f'<pre class="trace">{visible_code(row.trace)}</pre></details>'
        if row.trace
        else ""
    )
    return f'<div class="sub {escape(row.tone)}">{visible(row.note)}{trace}</div>'


def _answer(row: Row) -> str:
    settled = f'<span class="sub">{visible(row.note)}</span>' if row.tone == "settled" else ""
    return _trouble(row) if row.tone in ("bad", "unsure") else settled


def _decision(row: Row) -> str:
    if row.tone == "bad":
        return f'<span class="sub bad">rejected: {visible(row.note)}</span>'
    if row.tone == "late":
        return f'<span class="sub bad">nobody answered: {visible(row.note)}</span>'
    if row.tone == "amended":
        return f'<span class="sub">changed {visible(row.note.rstrip(": "))}</span>'
    return f'<span class="sub">approved: {visible(row.note)}</span>' if row.tone == "ok" and row.note else ""


def _end(row: Row) -> str:
    return f'<span class="sub {escape(row.tone)}">{visible(row.note.rstrip(": "))}</span>' if row.note else ""


def _loss(row: Row) -> str:
    stood = f" {_STOOD[row.reached]}" if row.reached in _STOOD else ""
    silent = f" (last heartbeat {lapse(row.silent_seconds)} earlier)" if row.silent_seconds else ""
    if row.is_open:
        then = "Another worker is taking over."
    elif row.is_cut:
        then = "The next worker was also lost, before its first step."
    else:
        then = f"Another worker took over after {lapse(row.took)}."
    lost = f'<span title="{escape(plainly(row.note))}">Worker {row.count} was lost</span>'
    return f'<span class="sub bad">{lost}{stood}{silent}. {then}</span>'


_STOOD = {
    "claimed": "before its first step",
    "intent_durable": "after recording a call and before its answer",
    "result_durable": "after recording a result",
    "visit_entered": "at the start of a step",
    "wait_opened": "after starting to wait",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """The functions and styles for one kind of row. `point` returns the tone of the dot of a row without duration;
    `place` is the indentation."""

    name: Callable[[Row, Dossier], str]
    below: Callable[[Row], str] = _nothing
    end: Callable[[Row], str] = _lasted
    point: Callable[[Row], str] = _nothing
    has_seam: bool = False
    place: str = "deep"
    anchor: str = ""


KINDS: Mapping[RowKind, Kind] = {
    "queued": Kind(lambda row, d: '<span class="name muted">queued</span>', place="", anchor="queued"),
    "visit": Kind(_visit, place="visit"),
    "think": Kind(_think, lambda row: _trouble(row) if row.tone == "bad" else ""),
    "call": Kind(_call, _answer),
    "read": Kind(_named(_tool), end=lambda row: "read", point=lambda row: "read"),
    "mark": Kind(_named(_label), _note, end=_row_time, point=lambda row: row.tone or "read"),
    "gate": Kind(_named(lambda row, d: f"{_label(row, d)} gate"), _decision),
    "wait": Kind(_named(_wait)),
    "child": Kind(_child, _end),
    "crash": Kind(_named(lambda row, d: escape(row.label)), _loss, has_seam=True),
    "pause": Kind(_named(lambda row, d: "paused")),
    "error": Kind(_named(_label), _trouble, end=_row_time, point=lambda row: "bad"),
}
