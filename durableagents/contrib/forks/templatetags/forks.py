"""Template filters for pages about effects."""

from __future__ import annotations

from datetime import datetime

from django import template

from runs.engine.forks import COMMITTED, UNDONE, Evidence

register = template.Library()


@register.filter
def moment(text: str) -> datetime | None:
    """Parse a time in ISO 8601; return None for any other text."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


@register.filter
def outcome_text(effect: Evidence) -> str:
    """Describe an effect's outcome."""
    return {COMMITTED: "done", UNDONE: "done, then undone"}.get(effect.outcome, "outcome unknown")
