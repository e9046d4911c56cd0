"""How many runs wait for an operator: the number in the navigation. And what a wait says of itself, whatever is in its detail."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from django import template
from django.utils.safestring import SafeString

from ledger.pages import shown_count
from ledger.templatetags.console import fragment
from runs import looks, pieces
from runs.lists import BADGE_TO
from runs.models import Wait
from runs.story import Effect, Line
from runs.story.scale import Placed
from runs.story.transcript import Said

register = template.Library()


@register.simple_tag(takes_context=True)
def steering_count(context: template.Context) -> str:
    """Open waits that only an operator can settle; empty for none."""
    return shown_count(context["tally"].badge("steering"), BADGE_TO)


@register.filter
def named(wait: Wait | None) -> str:
    """What is waited for: title, tool, or at least the kind."""
    return looks.name_of(wait)


@register.filter
def told(wait: Wait | None, names: str) -> str:
    """The first of these names (separated by blanks) that the wait's detail has as text; empty if it has none."""
    return looks.told(wait, *names.split())


@register.simple_tag(takes_context=True)
def piece(context: template.Context, folder: str, name: object, *key: object, **more: Any) -> SafeString:
    """A fragment that looks the same whenever it is drawn: of what `key` names, once in a process while the run is looked at. It may show
    nothing that depends on who is reading or on the time of day."""
    dossier = context["d"]
    whole = (folder, dossier.agent is None, *key)
    html = dossier.drawn.get(whole)
    if html is None:
        html = str(fragment(context, folder, name, **more))
        dossier.drawn.keep(whole, html)
    return SafeString(html)


@register.simple_tag(takes_context=True)
def effect(context: template.Context, shown: Effect) -> SafeString:
    """An effect of the lane. One that was drawn before has not been opened either."""
    dossier = context["d"]
    html = dossier.drawn_effects.get(shown.face)
    if html is None:
        html = pieces.effect(shown, dossier.tools)
        dossier.drawn.keep(("effect", dossier.agent is None, shown.face), html)
    return SafeString(html)


@register.simple_tag(takes_context=True)
def event(context: template.Context, line: Line) -> SafeString:
    """A line of the journal. It looks the same whenever it is drawn."""
    return _once(context, ("event", line.face), lambda: pieces.event(line, lambda: fragment(context, "runs/events", line.kind, line=line)))


@register.simple_tag(takes_context=True)
def thing_said(context: template.Context, said: Said) -> SafeString:
    """One thing said in a conversation. It looks the same whenever it is drawn."""
    return _once(context, ("said", said.face), lambda: pieces.thing_said(said))


def _once(context: template.Context, face: Hashable, draw: Callable[[], str]) -> SafeString:
    """A piece as it was drawn before, or drawn now and kept with the run's fold."""
    drawn = context["d"].drawn
    html = drawn.get(face)
    if html is None:
        html = draw()
        drawn.keep(face, html)
    return SafeString(html)


@register.simple_tag
def track(placed: Placed, point: str = "", has_seam: bool = False) -> SafeString:
    """The bars of a row of the timeline."""
    return pieces.track(placed, point=point, has_seam=has_seam)
