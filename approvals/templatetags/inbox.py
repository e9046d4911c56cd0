"""How many gates and questions wait for the reader: the number in the navigation."""

from __future__ import annotations

from django import template

from approvals.inbox import BADGE_TO, waiting_for
from ledger.pages import counted_once

register = template.Library()


@register.simple_tag(takes_context=True)
def inbox_count(context: template.Context, held: frozenset[str]) -> str:
    """Open approvals that these roles may decide, and questions that are put to them; empty for none."""
    return counted_once(context, "inbox", lambda: waiting_for(held), BADGE_TO)
