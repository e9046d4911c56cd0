"""How an approval is shown in its state."""

from __future__ import annotations

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from approvals.account_words import Change, changes
from approvals.brief import chip_of
from approvals.models import Approval
from approvals.timing.words import TimeWords
from approvals.timing.words import time_of as words_of_time
from ledger.models import AccountRecord

register = template.Library()


@register.simple_tag
def account_changes(record: AccountRecord) -> list[Change]:
    """What changed about an account, a role or a key, in words."""
    return changes(record)


@register.simple_tag
def time_of(approval: Approval) -> TimeWords:
    """What is said of its time: how it was counted, what comes when nobody answers, what has come."""
    return words_of_time(approval)


@register.simple_tag
def approval_chip(approval: Approval) -> SafeString:
    """What became of it, or whom it waits for, in its tone."""
    words, tone = chip_of(approval)
    return format_html('<span class="chip {}">{}</span>\n', tone, words)
