"""How many runs wait for an operator: the number in the navigation. And what a wait says of itself, whatever is in its detail."""

from __future__ import annotations

from django import template

from runs import looks
from runs.models import ENDED, Wait

register = template.Library()


@register.simple_tag
def steering_count() -> int:
    """Open waits that only an operator can settle."""
    kinds = [Wait.Kind.RECONCILE, Wait.Kind.OPERATOR]
    return Wait.objects.filter(kind__in=kinds, resolved_at__isnull=True).exclude(run__state__in=ENDED).count()


@register.filter
def named(wait: Wait | None) -> str:
    """What is waited for: title, tool, or at least the kind."""
    return looks.name_of(wait)


@register.filter
def told(wait: Wait | None, names: str) -> str:
    """The first of these names (separated by blanks) that the wait's detail has as text; empty if it has none."""
    return looks.told(wait, *names.split())
