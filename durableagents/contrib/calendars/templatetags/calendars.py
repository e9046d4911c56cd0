"""Template tags for queue timings."""

from __future__ import annotations

from typing import Any

from django import template

from durableagents.contrib.calendars.queries import ShownTiming
from ledger.web.page_forms import Refused

register = template.Library()


@register.simple_tag
def timing_form(shown_timing: ShownTiming, refused: Refused | None) -> dict[str, Any]:
    """Return the form's values: the refused input, or else the current settings."""
    return shown_timing.form(refused.typed if refused is not None and refused.act == "QueueTimings" else None)
