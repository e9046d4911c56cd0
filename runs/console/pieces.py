"""HTML of the repeated parts of a run's page: effects, events, messages, bars.
Django's templates would take 200 µs for each. All text from outside is passed through `visible` or `escape`."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

from django.conf import settings
from django.utils.html import format_html
from django.utils.safestring import SafeString

from ledger.spans import viewer_url
from ledger.templatetags.console import (
    MAX_SHOWN,
    clock,
    cut_note,
    datum,
    drawn_leaves,
    quads,
    short,
    title_of,
    visible,
    words,
)
from ledger.templatetags.console import said as without_class
from runs.console.tables.event_words import contradicted, link_to, phrase, witness
from runs.models import Run
from runs.queries.tool_cards import ToolCard
from runs.story import Effect, EventLine, findings
from runs.story.scale import Placed
from runs.story.transcript import TranscriptMessage

# By status of an effect: text and tone of the chip, text and tone of the note.
STANDINGS: dict[str, tuple[str, str, str, str]] = {
    "held": ("held", "wait", "Waiting for approval. Not sent.", "muted"),
    "cleared": ("approved", "ok", "Approved. About to be sent.", "muted"),
    "rejected": ("rejected", "", "Rejected. Not sent.", "muted"),
    "expired": ("expired", "", "Expired. Not sent.", "muted"),
    "sent": ("in flight", "run", "", ""),
    "accepted": ("accepted", "wait", "Accepted upstream; result pending.", "muted"),
    "not_sent": ("not sent", "hold", "Not sent. Retried automatically.", "muted"),
    "committed": ("committed", "ok", "", ""),
    "failed": ("refused", "bad", "", ""),
    "undone": ("undone", "hold", "Undone.", "muted"),
    "unknown": ("unknown", "unsure", "May have happened. Not repeated without a decision.", "muted"),
    "settled_not": ("did not happen", "hold", "Settled by a person. About to be sent again.", "muted"),
}
# The verdict of a person and the status of the effect that it led to.
_SETTLED = {("happened", "committed"), ("did_not", "settled_not")}
_CLASSES = {"idempotent_with_key": "idempotent", "unsafe_on_replay": "not repeatable", "": "never sent"}


# Returns the URL of an event's whole payload, given its number.
Downloads = Callable[[int], str]


def _nowhere(seq: int) -> str:
    return ""


def effect(e: Effect, tools: dict[str, Any], downloads: Downloads = _nowhere, span: str = "") -> SafeString:
    """Return an effect as HTML. `span` is HTML with the id of its span."""
    chip, tone, note, note_tone = STANDINGS.get(e.status, (e.status, "", "", ""))
    is_answered = e.result is not None
    if e.contradicted and e.status == "settled_not":
        note = "Settled by a person, who must confirm before anything is sent."
    return SafeString(
        f'<div class="e" id="effect-{e.seq}"><b>{visible(title_of(tools, e.tool))}</b>'
        f'<span class="chip {tone}">{escape(chip)}</span>\n'
        f'<span class="small muted break">{_upstream(e, tools.get(e.tool))}{_sending(e)}</span>'
        f'<span class="small muted">{clock(e.changed_at, "brief")}</span>\n'
        f"{_wide(note_tone, note) if note else ''}\n{_afterwards(e)}\n"
        f"{_wide('break', visible(without_class(e.error))) if e.error and e.status != 'committed' else ''}\n"
        f'<details class="more wide-row" id="effect-more-{e.seq}">'
        f"<summary>Arguments{' and result' if is_answered else ''}</summary>"
        f"{drawn_leaves(e.arguments, url=downloads(e.requests[-1] if e.requests else e.seq))}"
        f"{_RESULT + drawn_leaves(e.result, url=downloads(e.answered)) if is_answered else ''}"
        f'<dl class="pairs small">{"".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in _pairs(e, span))}</dl>'
        "</details></div>\n\n"
    )


_RESULT = '<p class="small muted">Result</p>'


def _wide(tone: str, html: str) -> str:
    return f'<span class="wide-row small {tone}">{html}</span>'


def _upstream(e: Effect, tool: ToolCard | None) -> str:
    named = visible(e.external_id) if e.external_id else ""
    if tool is not None and tool.system:
        return f"{visible(tool.system)}{f' {named}' if named else ''} · "
    return f"{named} · " if named else ""


def _sending(e: Effect) -> str:
    html = f"{escape(_CLASSES.get(e.replay_class, e.replay_class))}\n"
    if e.sends > 1:
        html += f" · sent {e.sends} times"
        if e.is_keyed:
            html += ", one effect" if e.status == "committed" else " under one key"
    elif e.sends == 1:
        html += " · sent once"
    if e.attempts > 1:
        html += f" · {e.attempts} attempts"
    if (e.verdict, e.status) in _SETTLED:
        html += f" · settled by {escape(e.settled_by)}"
    return html


def _afterwards(e: Effect) -> str:
    if e.contradicted:
        return _wide("bad", f"<b>Check this:</b> {contradicted(e)}, and {witness(e)}.")
    return _wide("muted", f"{_sentence(witness(e))}: recorded, without effect.") if e.late else ""


def _sentence(html: str) -> str:
    return html[:1].upper() + html[1:]


def span_link(run: Run, span: str) -> SafeString:
    """Return a span's id as HTML, with a link to the trace viewer if the settings have one."""
    url = viewer_url(settings.DURABLEAGENTS.trace_url, run.trace_id, span)
    code = format_html("<code>{}</code>", span)
    return format_html('<a href="{}" rel="noreferrer">{}</a>', url, code) if url else code


def _pairs(e: Effect, span: str) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    if e.key:
        pairs.append(("key", f"<code>{visible(e.key)}</code>"))
    if e.sent_at:
        pairs.append(("intent", f"{clock(e.sent_at)} · event {e.seq}"))
    if e.plan_hash:
        pairs.append(("bound to", _plan(e)))
    if e.interrupted:
        pairs.append(("crashes", f"a worker died {_times(e.interrupted)} during the call"))
    if e.not_sent:
        pairs.append(("not sent", f"{_times(e.not_sent)}; retried"))
    if e.verdict and e.settled_by:
        pairs.append(("settled", f"{escape(words(findings.on_record(e.verdict)))} by {escape(e.settled_by)}"))
    if e.attempts and span:
        pairs.append(("span", span))
    return pairs


def _times(number: int) -> str:
    return f"{number} time{'' if number == 1 else 's'}"


def _plan(e: Effect) -> str:
    return link_to(f"<code>{escape(short(e.plan_hash))}</code>", "approval", e.approval_id)


def event(line: EventLine, downloads: Downloads = _nowhere) -> SafeString:
    """Return a line of the journal as HTML. For a damaged event, nothing specific to its kind is shown."""
    kind = escape(line.kind) if line.is_known else datum(line.kind)
    says = f'<b class="bad">damaged: {visible(line.damage)}</b>' if line.damage else phrase(line)
    slot = f" · slot {visible(line.slot)}" if line.slot else ""
    says += f'<br><b class="bad">{escape(line.gap)}</b>' if line.gap else ""
    digest = line.hash_hex
    return SafeString(
        f'<div class="event" id="e{line.seq}"><span class="seq">{line.seq}</span>\n'
        f'<span class="break"><span class="kind">{kind}</span> <span class="small">{says}</span></span>\n'
        f'<span class="small muted when">{clock(line.at)}</span>\n'
        f'<details class="more" id="ev-{line.seq}">'
        f"<summary>epoch {line.epoch}{slot} · <code>{digest[:12]}…</code></summary>\n"
        f"{drawn_leaves(line.facts)}"
        f"{drawn_leaves(line.shown, url=downloads(line.seq)) if line.shown is not None else ''}\n"
        f'<p class="hash muted">hash {quads(digest)}<br>after {quads(line.prev_hex)}</p></details></div>\n'
    )


def thing_said(message: TranscriptMessage, downloads: Downloads = _nowhere) -> SafeString:
    """Return one message of a conversation as HTML."""
    who = '<span class="chip hold">agent</span>' if message.role == "agent" else f"<b>{escape(message.role)}</b>"
    title = f"<span>{visible(message.title)}</span>" if message.title else ""
    tool = f"<code>{visible(message.tool)}</code>" if message.tool else ""
    tokens = (
        ""
        if message.tokens_in is None
        else f" · {escape(str(message.tokens_in))} in, {escape(str(message.tokens_out))} out"
    )
    url = downloads(message.seq)
    text = f'<div class="text" tabindex="0">{visible(message.text)}</div>' if message.text else ""
    text += cut_note(message.text, url) if len(message.text) > MAX_SHOWN else ""
    return SafeString(
        f'<div class="said {escape(message.role)}"><p class="who-said">{who}{title}{tool}'
        f'<span class="right">{clock(message.at)}{tokens}</span></p>'
        f"{text}{drawn_leaves(message.data, url=url) if message.data is not None else ''}</div>\n"
    )


def track(p: Placed, *, has_seam: bool = False, point: str = "") -> SafeString:
    """Return the bars of a timeline row as HTML.
    A row without duration gets a dot, and a lost worker a vertical line."""
    bars = "".join(
        f'<rect class="bar {bar.tone}" x="{bar.x}" y="1" width="{bar.width}" height="14" rx="3"'
        f"{_HATCHED if bar.tone == 'wait' else ''}/>"
        for bar in p.bars
    )
    seam = f'<line class="seam" x1="{p.at}" x2="{p.at}" y1="-2" y2="18"/>' if has_seam else ""
    moment = (
        f'<svg x="{p.at}" overflow="visible"><circle class="point {escape(point)}" cx="3" cy="8" r="4"/></svg>'
        if point
        else ""
    )
    return SafeString(f"{_TRACK}{bars}{seam}{moment}</svg>\n")


_TRACK = (
    '<svg class="track" width="100%" height="16" aria-hidden="true" focusable="false">'
    '<rect class="base" width="100%" height="16" rx="3"/>'
)
_HATCHED = ' fill="url(#hatch)"'
