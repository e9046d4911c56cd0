"""How many runs wait for an operator: the number in the navigation. And the chips, sentences and strips of run states."""

from __future__ import annotations

from django import template

from runs.models import ENDED, Wait

register = template.Library()


@register.simple_tag
def steering_count() -> int:
    """Open waits that only an operator can settle."""
    kinds = [Wait.Kind.RECONCILE, Wait.Kind.OPERATOR]
    return Wait.objects.filter(kind__in=kinds, resolved_at__isnull=True).exclude(run__state__in=ENDED).count()
