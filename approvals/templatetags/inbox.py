"""How many gates and questions wait for the reader: the number in the navigation."""

from __future__ import annotations

from django import template

from approvals.models import Approval
from approvals.policy import QUEUES, may_decide
from runs.questions import open_for

register = template.Library()


@register.simple_tag
def inbox_count(held: frozenset[str]) -> int:
    """Open approvals that these roles may decide, and questions that are put to them. No query for whoever decides nothing."""
    queues = [queue for queue in QUEUES if may_decide(queue, held)]
    if not queues:
        return 0
    return Approval.objects.filter(queue__in=queues, state="open").count() + open_for(held).count()
