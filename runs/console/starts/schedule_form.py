"""The form that sets a schedule, or sets one anew: what it is filled with, and what it asks for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ledger.errors import InvalidInput
from ledger.templatetags.console import tags as tags_of
from ledger.web import strict_json
from ledger.web.bodies import does_not_fit, fit, unstorable
from ledger.web.page_forms import Sent
from runs.console import budgets
from runs.models import Schedule
from runs.services.bodies import ScheduleBody
from runs.services.schedules import acts

PLAIN = ("name", "agent", "cron", "zone", "missed", "overlap")
SEEN = "seen"
_FIELDS = (*PLAIN, "input", "tags", "token", SEEN, *budgets.beside())


def empty() -> dict[str, str]:
    """What the form for a new schedule holds."""
    return {"zone": "UTC", "input": "{}"}


def filled(schedule: Schedule) -> dict[str, str]:
    """What the form holds that sets a schedule anew: the schedule as it is, and which state of it that was."""
    texts = {name: str(getattr(schedule, name)) for name in PLAIN}
    caps = schedule.budget if isinstance(schedule.budget, dict) else {}
    typed = {f"budget.{name}": budgets.in_field(name, cap) for name, cap in caps.items() if name in budgets.AT_START}
    return {
        **texts,
        **typed,
        "tags": ", ".join(tags_of(schedule.tags)),
        SEEN: schedule.updated_at.isoformat(),
        "input": json.dumps(schedule.input, indent=2, ensure_ascii=False) if acts.reads(schedule) else "",
    }


def asked(form: Sent, before: Schedule | None = None) -> ScheduleBody:
    """What the form asks for, as the API takes it. Caps that `before` has and the form has no fields for stay, and so
    does one whose field shows what it showed. Raises InvalidInput, TooLarge."""
    form.check(_FIELDS)
    texts = form.texts
    if problems := unstorable(texts):
        raise does_not_fit(problems, "form")
    found: dict[str, Any] = {name: texts[name] for name in PLAIN if texts.get(name)}
    found["tags"] = [tag for tag in map(str.strip, texts.get("tags", "").split(",")) if tag]
    if "input" in texts:
        found["input"] = _json(texts["input"])
    if caps := _caps(texts, before):
        found["budget"] = caps
    if problems := unstorable(found):
        raise does_not_fit(problems, "form")
    return fit(ScheduleBody, found, "form")


def _caps(texts: Mapping[str, str], before: Schedule | None) -> dict[str, Any]:
    had = before.budget if before is not None and isinstance(before.budget, dict) else {}
    typed = budgets.at_start(texts)
    same = {name: cap for name, cap in had.items() if texts.get(f"budget.{name}") == budgets.in_field(name, cap)}
    return {name: cap for name, cap in had.items() if name not in budgets.AT_START} | typed | same


def _json(text: str) -> Any:
    """The input as it was typed. Raises InvalidInput, at the field."""
    try:
        return strict_json.loads(text.encode("utf-8", "replace"))
    except strict_json.MalformedJSON as error:
        problem = {"field": "input", "problem": f"is no JSON: {error}", "fix": 'such as {} or {"item": "chairs"}'}
        raise InvalidInput("The input can't be read.", errors=[problem]) from None
