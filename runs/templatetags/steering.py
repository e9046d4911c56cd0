"""How many runs wait for an operator: the number in the navigation. And the chips, sentences and strips of run states."""

from __future__ import annotations

from django import template

from ledger.pages import counted_once
from runs.lists import operator_count

register = template.Library()
BADGE_TO = 99


@register.simple_tag(takes_context=True)
def steering_count(context: template.Context) -> str:
    """Open waits that only an operator can settle; empty for none."""
    return counted_once(context, "steering", lambda: operator_count(to=BADGE_TO), BADGE_TO)
