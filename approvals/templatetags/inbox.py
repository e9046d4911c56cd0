"""How an approval is shown in its state."""

from __future__ import annotations

from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from approvals import account_words
from approvals.account_words import Change, changes
from approvals.brief import Brief, chip_of
from approvals.claims.shown import Shown, shown
from approvals.deadlines.listed import ShownTiming
from approvals.granting import views
from approvals.models import Approval
from approvals.queues import labels
from approvals.timing.words import TimeWords
from approvals.timing.words import time_of as words_of_time
from ledger.models import AccountRecord
from ledger.web.page_forms import Refused

register = template.Library()


@register.simple_tag
def account_changes(record: AccountRecord) -> list[Change]:
    return changes(record)


@register.simple_tag
def time_of(approval: Approval) -> TimeWords:
    """What is said of its time: how it was counted, what comes when nobody answers, what has come."""
    return words_of_time(approval)


@register.simple_tag
def claims_of(opened: Brief, me: int | None) -> Shown:
    return shown(opened.approval, me, opened.now.missing if opened.now is not None else 1)


@register.simple_tag
def on_it(approval: Approval, me: int | None) -> Shown:
    return shown(approval, me)


@register.simple_tag
def chosen_reason(opened: Brief, number: str | None) -> str:
    """The reason that the address names, of those that are offered now: for whoever has no scripts."""
    by_number = {str(n): reason for n, reason in enumerate(opened.reasons, start=1)}
    return by_number.get(number or "", "")


@register.simple_tag
def offer_again(opened: Brief) -> dict[str, Any] | None:
    """How far the reader may allow the same again with their yes; nothing where they may not."""
    return views.offer(opened)


@register.simple_tag
def typed_again(refused: Refused | None) -> dict[str, str]:
    return views.typed_again(refused)


@register.simple_tag
def timing_form(shown: ShownTiming, refused: Refused | None) -> dict[str, Any]:
    return shown.form(refused.typed if refused is not None and refused.act == "QueueTimings" else None)


@register.simple_tag
def wrong_in(refused: Refused | None) -> list[labels.Wrong]:
    """What is wrong with a form about queues, calendars or policies, by the names that its fields have on the page."""
    return labels.wrong_in(refused or None)


@register.simple_tag
def changed(name: str, was: object, now: object) -> tuple[str, str, str]:
    """What a rule's change sets another way: what people call it, what it was and would be, in words."""
    return account_words.label_of(name), *account_words.was_and_is(name, was, now)


@register.simple_tag
def part(act: str, n: object, refused: Refused | None) -> Refused | None:
    """What was refused, if it was this form: the act's name, and its number where there are several."""
    return refused if refused is not None and refused.act == f"{act}{n}" else None


@register.simple_tag
def approval_chip(approval: Approval) -> SafeString:
    words, tone = chip_of(approval)
    return format_html('<span class="chip {}">{}</span>\n', tone, words)
