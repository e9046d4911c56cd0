"""How many gates and questions wait for the reader: the number in the navigation."""

from __future__ import annotations

from django import template

from approvals.inbox import BADGE_TO
from ledger.pages import shown_count

register = template.Library()


@register.simple_tag(takes_context=True)
def inbox_count(context: template.Context) -> str:
    """Open approvals that the reader's roles may decide, and questions that are put to them; empty for none."""
    return shown_count(context["tally"].badge("inbox"), BADGE_TO)
