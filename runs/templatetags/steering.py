"""Template tags for a run's status, the parts of its page, and the text of a wait, even with a damaged detail."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any

from django import template
from django.template.loader import render_to_string
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from ledger.errors import Forbidden
from ledger.spans import span_id
from ledger.templatetags.console import datum, visible
from ledger.web.seeing.payloads import HIDDEN
from ledger.web.seeing.viewers import reads
from runs.console import budgets, pieces, timeline_rows
from runs.console.run_page import Point
from runs.console.tables import event_words, statuses
from runs.console.tables.event_words import WHY
from runs.models import LogLine, Run, Wait
from runs.queries import display
from runs.queries.actions import Offer
from runs.queries.progress import masked_text
from runs.queries.run_list import Card
from runs.queries.shown_attributes import ShownAttribute
from runs.queries.status import Reason
from runs.services.undo import Preview, effects_to_decide
from runs.story import Effect, EventLine, Fact
from runs.story.scale import Placed
from runs.story.transcript import TranscriptMessage

register = template.Library()


@register.filter
def attribute(one: ShownAttribute) -> SafeString:
    """Return an attribute's value as HTML. Text from outside is marked as data."""
    return format_html_join(", ", "{}", ((datum(text),) for text in one.texts)) if one.texts else visible(one.words)


@register.filter
def log_text(line: LogLine) -> SafeString:
    """Return a log line as HTML, with secrets masked."""
    return visible(masked_text(line))


@register.filter
def named(wait: Wait | None) -> str:
    """Return the name of a wait: its title, its tool, or at least its kind."""
    return display.name_of(wait)


@register.filter
def told(wait: Wait | None, names: str) -> str:
    """Return the first text in the wait's detail under these names (separated by spaces).
    "" if there is none."""
    return display.detail_text(wait, *names.split())


@register.filter
def begun_again(made: Fact) -> SafeString:
    return SafeString(event_words.fork_made(made.clear))


@register.simple_tag(takes_context=True)
def checkpoint(context: template.Context, point: Point) -> SafeString:
    """Return a checkpoint as HTML.
    The HTML can be cached, because nothing in the template depends on reader or time."""
    dossier = context["d"]
    seen = {"point": point, "d": dossier}
    return _once(
        context,
        ("checkpoint", dossier.agent is None, point.face),
        lambda: render_to_string("runs/parts/point.html", seen),
    )


@register.simple_tag
def trace_link(run: Run) -> SafeString:
    """Return the id of a run's own span, as a link to its trace."""
    return pieces.span_link(run, span_id(str(run.pk)))


@register.simple_tag(takes_context=True)
def effect(context: template.Context, effect: Effect) -> SafeString:
    """Return an effect in the page's list of effects as HTML. If it is cached, its payloads were not read."""
    dossier = context["d"]
    html = dossier.drawn_effects.get(effect.face)
    if html is None:
        span = pieces.span_link(dossier.run, span_id(str(dossier.run.pk), effect.slot, effect.attempts - 1, "call"))
        html = pieces.effect(effect, dossier.tools, dossier.payload_url, span)
        dossier.drawn.keep(("effect", dossier.agent is None, effect.face), html)
    return SafeString(html)


@register.filter
def contradicted(effect: Effect) -> SafeString:
    return SafeString(event_words.contradicted(effect))


@register.filter
def witness(effect: Effect) -> SafeString:
    return SafeString(event_words.witness(effect))


@register.simple_tag
def late_news(news: Mapping[str, Any], tools: dict[str, Any]) -> SafeString:
    """Return a description of a call with a late result: the recorded outcome, and the result."""
    return event_words.late_news(news, tools)


@register.simple_tag(takes_context=True)
def event(context: template.Context, line: EventLine) -> SafeString:
    """Return a line of the journal as HTML. It can be cached."""
    return _once(context, ("event", line.face), lambda: pieces.event(line, context["d"].payload_url))


@register.simple_tag(takes_context=True)
def thing_said(context: template.Context, message: TranscriptMessage) -> SafeString:
    """Return one message of a conversation as HTML. It can be cached."""
    return _once(context, ("said", message.face), lambda: pieces.thing_said(message, context["d"].payload_url))


def _once(context: template.Context, face: Hashable, draw: Callable[[], str]) -> SafeString:
    """Return cached HTML; if there is none, render it and cache it with the run's fold."""
    drawn = context["d"].drawn
    html = drawn.get(face)
    if html is None:
        html = draw()
        drawn.keep(face, html)
    return SafeString(html)


@register.simple_tag(takes_context=True)
def timeline_row(context: template.Context, placed: Placed) -> SafeString:
    return timeline_rows.timeline_row(placed, context["d"])


@register.simple_tag
def undoable(run: Run) -> Preview | None:
    """Return the effects that a cancel must decide about; None if there are none or they are unreadable."""
    found = effects_to_decide(run)
    if found is None or reads(run.pk):
        return found
    return Preview([replace(each, arguments=str(HIDDEN)) if each.arguments else each for each in found.effects])


@register.simple_tag
def chip(reason: Reason) -> SafeString:
    return statuses.chip(reason)


@register.filter
def label(reason: Reason) -> str:
    return statuses.CHIPS[reason][0]


@register.simple_tag
def row_words(card: Card) -> SafeString:
    return statuses.row(card)


@register.simple_tag(takes_context=True)
def why(context: template.Context) -> SafeString:
    """Return why the page's run doesn't progress, or what it is doing."""
    return statuses.why(context["d"])


@register.filter
def assigned_why(assigned: Mapping[str, Any]) -> str:
    """Return why a ramp gave the run its version."""
    side = "the newer side" if assigned["is_new"] else "the older side"
    return f"{side}, {WHY.get(assigned['why'], assigned['why'])}"


@register.filter
def called(field: str) -> str:
    return budgets.called(field)


@register.filter
def cap_changes(record: Any) -> list[str]:
    """Return the caps that an action set, each as a text, from the action's record."""
    return budgets.changes(record.before, record.after)


@register.simple_tag
def verbs(acts: Mapping[str, Offer]) -> dict[str, statuses.Verb]:
    """Return the actions that the reader may perform on the run now."""
    return {name: verb for name, verb in statuses.VERBS.items() if acts[name].allowed}


@register.filter
def not_now(acts: Mapping[str, Offer]) -> list[tuple[str, str]]:
    """Return the actions that the run's state doesn't allow now, with the reasons."""
    return [
        (statuses.VERBS[name].label, offer.why_not)
        for name, offer in acts.items()
        if not offer.allowed and offer.code != Forbidden.code
    ]
