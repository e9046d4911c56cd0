"""Template tags for an approval and its state."""

from __future__ import annotations

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from approvals import account_words
from approvals.account_words import Change, changes
from approvals.brief import ApprovalDetail, chip_of
from approvals.deadlines import DeadlineTexts, deadlines
from approvals.models import Approval
from approvals.queues import labels
from ledger.models import AccountRecord
from ledger.web.page_forms import Refused

register = template.Library()


@register.simple_tag
def account_changes(record: AccountRecord) -> list[Change]:
    return changes(record)


@register.simple_tag
def time_of(approval: Approval) -> DeadlineTexts:
    """Return the texts about an approval's time."""
    return deadlines().texts(approval)


@register.simple_tag
def chosen_reason(opened: ApprovalDetail, number: str | None) -> str:
    """Return the offered reason that the URL selects, for browsers without scripts."""
    by_number = {str(n): reason for n, reason in enumerate(opened.reasons, start=1)}
    return by_number.get(number or "", "")


@register.simple_tag
@register.simple_tag
@register.simple_tag
def wrong_in(refused: Refused | None) -> list[labels.Wrong]:
    """Return the invalid fields of a refused form, with their labels."""
    return labels.wrong_in(refused or None)


@register.simple_tag
def changed(name: str, was: object, now: object) -> tuple[str, str, str]:
    """Return label, old value and new value of a change of a rule."""
    return account_words.label_of(name), *account_words.was_and_is(name, was, now)


@register.simple_tag
def part(act: str, n: object, refused: Refused | None) -> Refused | None:
    """Return the refusal if it concerns this form.

    `act` is the act's name, and `n` the form's number if there are several.
    """
    return refused if refused is not None and refused.act == f"{act}{n}" else None


@register.simple_tag
def approval_chip(approval: Approval) -> SafeString:
    words, tone = chip_of(approval)
    return format_html('<span class="chip {}">{}</span>\n', tone, words)
