"""A run's status in the console: a chip for each reason, and its sentence with links.
The texts are those of `runs/queries/sentences.py`. Texts about a call in progress, which come from the journal, are
added here."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

from django.utils.safestring import SafeString

from ledger.templatetags.console import amount, clock, datum, due, short, since, title_of, until, visible
from runs.console.run_page import Dossier
from runs.console.tables.event_words import contradicted, link_to, witness
from runs.queries.run_list import Card
from runs.queries.sentences import Part, Text
from runs.queries.status import Reason, notes_of, sentence_of


@dataclass(frozen=True, slots=True)
class Verb:
    """An action on a run: two button labels, an explanation, and the effect on active children.
    The first button opens the form, the second one sends it. `view` handles the POST."""

    label: str
    view: str
    opener: str
    button: str
    means: str
    for_children: str = ""


def chip(reason: Reason) -> SafeString:
    label, tone = CHIPS[reason]
    return SafeString(f'<span class="chip {tone}">{label}</span>\n')


def row(card: Card) -> SafeString:
    """Return the text for a list: only the beginnings of the sentences."""
    return SafeString(" · ".join(markup(said.lead) for said in (sentence_of(card.facts), *notes_of(card.facts))))


def why(d: Dossier) -> SafeString:
    """Return why the run doesn't progress, or what it is doing."""
    said = [markup(each.parts) for each in (sentence_of(d.facts), *notes_of(d.facts))]
    return SafeString(" ".join([*said, *_from_journal(d)]))


def markup(text: Text) -> str:
    """Return the text as HTML, with links, and with times that the page's script keeps current."""
    return "".join(map(_linked, text))


def _linked(part: Part) -> str:
    return link_to(_marked(part), *part.to) if part.to else _marked(part)


def _marked(part: Part) -> str:
    if part.at is not None:
        if part.look == "due":
            return str(due(part.at))
        past_or_left = {"since": since, "until": until}.get(part.look)
        return f"{clock(part.at)} ({past_or_left(part.at)})" if past_or_left else str(clock(part.at))
    match part.look:
        case "name":
            return f"<b>{visible(part.text)}</b>"
        case "data":
            return datum(part.text)
        case "amount":
            return f"<b>{amount(part.text)}</b>"
        case "id":
            return f'<code title="{escape(part.text)}">{escape(short(part.text))}</code>'
        case _:
            return visible(part.text)


def _from_journal(d: Dossier) -> list[str]:
    """Return sentences about facts that are only in the run's journal."""
    call = f"<b>{visible(title_of(d.tools, d.story.under_way))}</b>" if d.story.under_way else ""
    match d.reason:
        case "driven" if owner := d.story.owner:
            pid, host = escape(str(owner.clear["pid"])), visible(owner.clear["host"])
            return [f"{f'Now: {call}, in' if call else 'In'} process {pid} on {host} since {clock(owner.at)}."]
        case "pausing" | "cancelling" if call:
            return [f"{call} was sent; the result is recorded first."]
        case "unknown_outcome" if d.unknown is not None and d.unknown.contradicted:
            again = "It is unknown again" if not d.unknown.is_of_earlier else "But"
            return [f"{again}: {contradicted(d.unknown)}, and {witness(d.unknown)}."]
        case "cancelled":
            return _cancelled(d)
    return []


def _cancelled(d: Dossier) -> list[str]:
    last: Any = d.story.last.clear.get("in_flight") if d.story.last is not None else None
    n = len(last) if isinstance(last, list) else 0
    said = d.story.output.get("justification") if isinstance(d.story.output, dict) else None
    because = f"Justification: {visible(said)}" if isinstance(said, str) and said.strip() else ""
    calls = f"{n} call{'' if n == 1 else 's'} had no answer: see side effects." if n else ""
    return [text for text in (because, calls) if text]


# Each label and its tone.
CHIPS: dict[Reason, tuple[str, str]] = {
    "queued": ("queued", ""),
    "behind_key": ("queued behind", "wait"),
    "not_due": ("not due", "wait"),
    "no_worker": ("blocked", "hold"),
    "no_version": ("blocked", "hold"),
    "draining": ("blocked", "hold"),
    "no_key": ("blocked", "hold"),
    "halted": ("halted", "hold"),
    "driven": ("running", "run"),
    "pausing": ("pausing", "hold"),
    "cancelling": ("cancelling", "hold"),
    "approval": ("waiting for approval", "wait"),
    "question": ("waiting for an answer", "wait"),
    "callback": ("waiting for a system", "wait"),
    "retry_timer": ("waiting to retry", "wait"),
    "timer": ("waiting for time", "wait"),
    "limit": ("at a limit", "wait"),
    "breaker": ("at a circuit breaker", "wait"),
    "pool": ("at a shared budget", "wait"),
    "signal": ("waiting for a signal", "wait"),
    "message": ("waiting for a message", "wait"),
    "child": ("waiting for child runs", "wait"),
    "unknown_outcome": ("outcome unknown", "unsure"),
    "stopped": ("needs an operator", "bad"),
    "damaged": ("damaged", "bad"),
    "budget": ("needs budget", "wait"),
    "paused": ("paused", "hold"),
    "undoing": ("undoing", "hold"),
    "completed": ("completed", "ok"),
    "renewed": ("renewed", "ok"),
    "handed_off": ("handed off", "ok"),
    "failed": ("failed", "bad"),
    "cancelled": ("cancelled", ""),
}

VERBS: dict[str, Verb] = {
    "pause": Verb(
        "Pause",
        "pauses",
        opener="",
        button="main",
        means="The current step ends first. Then nothing happens until someone resumes the run.",
        for_children="paused and resumed together with it.",
    ),
    "resume": Verb(
        "Resume",
        "resumptions",
        opener="go",
        button="go",
        means="The run continues where it stopped. Nothing is repeated.",
        for_children="resumed with it, except those paused separately.",
    ),
    "cancel": Verb(
        "Cancel",
        "cancellations",
        opener="stop",
        button="stop full",
        means="Nothing new is sent. Calls in progress are settled first. This can't be undone.",
        for_children="cancelled with it.",
    ),
    "retry": Verb(
        "Retry",
        "retries",
        opener="main",
        button="main",
        means="The failed node runs again. Calls that succeeded are not repeated. Approvals still in time"
        " are reused; others are requested again. Failed or cancelled child runs are started again.",
        for_children="they continue.",
    ),
    "requeue": Verb(
        "Requeue",
        "requeues",
        opener="",
        button="main",
        means="Another worker takes over the run now, as after a crash. A call in progress is checked,"
        " sent again under its key, or shown to a person.",
    ),
}
