"""How many runs wait for an operator: the number in the navigation. And what a wait says of itself, whatever is in its detail."""

from __future__ import annotations

from django import template

from ledger.pages import counted_once
from runs import looks
from runs.lists import operator_count
from runs.models import Wait

register = template.Library()
BADGE_TO = 99


@register.simple_tag(takes_context=True)
def steering_count(context: template.Context) -> str:
    """Open waits that only an operator can settle; empty for none."""
    return counted_once(context, "steering", lambda: operator_count(to=BADGE_TO), BADGE_TO)


@register.filter
def named(wait: Wait | None) -> str:
    """What is waited for: title, tool, or at least the kind."""
    return looks.name_of(wait)


@register.filter
def told(wait: Wait | None, names: str) -> str:
    """The first of these names (separated by blanks) that the wait's detail has as text; empty if it has none."""
    return looks.told(wait, *names.split())
