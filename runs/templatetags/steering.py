"""How many runs wait for an operator: the number in the navigation. And what a wait says of itself, whatever is in its detail."""

from __future__ import annotations

from django import template

from ledger.pages import shown_count
from runs import looks
from runs.lists import BADGE_TO
from runs.models import Wait

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
