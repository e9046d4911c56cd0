"""Send messages at least once, marked by id: a try is recorded before it and with its outcome after."""

# If a courier dies in between, the next one resends under the same id after `LEASE_SECONDS`: at most one duplicate, and
# the log shows it. No transaction is open while talking to a server. Rights and preferences are checked just before;
# grouped notices are judged and rendered separately, so an unreadable one doesn't affect others.

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from django.contrib.auth.models import User
from django.db import connection, transaction

from approvals.notices import chat, mail, phones, words
from approvals.notices.addressing import MAX_TRIES, after_quiet, is_for, retry_seconds, ways_of
from approvals.notices.kinds import CHOSEN, KINDS
from approvals.notices.mail import Outcome
from approvals.notices.recipients import case_of, may_be_told
from approvals.notices.sealed import Unreadable, opened
from approvals.outbox import Channel, Delivery, Preference
from ledger.clock import database_now
from ledger.errors import first_line
from runs.backoff import Patience
from runs.failpoints import hit
from runs.journal.database_errors import is_transient

log = logging.getLogger("approvals.notices")
# Longer than any try (mail.WHOLE_SECONDS, chat.WHOLE_SECONDS).
LEASE_SECONDS = 120.0
MAX_TOGETHER = 200
BY_MAIL, BY_CHAT, BY_PUSH = ("email", "mailbox"), ("webhook",), ("push",)
_UNKNOWN = "unknown"
_CHOSEN = frozenset(kind.name for kind in CHOSEN)
_OPEN = [Delivery.State.WAITING, Delivery.State.SENDING]
_NEXT = """
    SELECT id FROM approvals_delivery
    WHERE by = %s AND state IN ('waiting', 'sending') AND due_at <= statement_timestamp()
    ORDER BY due_at, id LIMIT 1 FOR UPDATE SKIP LOCKED"""


def is_due(by: Sequence[str]) -> str:
    """Return the SQL condition that something is due by these ways."""
    return " OR ".join(
        f"EXISTS (SELECT 1 FROM approvals_delivery WHERE by = '{each}' AND state IN ('waiting', 'sending') "
        "AND due_at <= statement_timestamp())"
        for each in by
    )


# Pauses after an unusable server, per process: every message would wait for it.
_rest: dict[str, tuple[Patience, float]] = {}


def carry(by: Sequence[str]) -> int:
    """Send all that is due by these ways; return the number of tries."""
    way = by[0]
    patience, until = _rest.setdefault(way, (Patience(first_seconds=5.0, last_seconds=60.0), 0.0))
    tried = 0
    while time.monotonic() >= until:
        unit = next((found for each in by if (found := _take(each)) is not None), None)
        if unit is None:
            break
        tried += 1
        outcome = _try(unit)
        if outcome is not None and outcome.is_down:
            until = time.monotonic() + patience.seconds()
        else:
            patience.reset()
    _rest[way] = (patience, until)
    return tried


@dataclass(frozen=True, slots=True)
class Unit:
    """One message and its deliveries."""

    message: UUID
    deliveries: list[Delivery]
    number: int  # of this message's tries

    @property
    def first(self) -> Delivery:
        return self.deliveries[0]


@transaction.atomic
def _take(by: str) -> Unit | None:
    """Take the next due message and record it as being sent; None if there is none, or another process has it."""
    while (head := _due(by)) is not None and _put_off(head):
        pass
    if head is None:
        return None
    if head.message is not None:
        of_it = Delivery.objects.filter(message=head.message, state__in=_OPEN)
        found = list(of_it.select_for_update(skip_locked=True, of=("self",)).order_by("pk"))
        if len(found) != of_it.count():
            return None
    elif head.is_grouped:
        found = _with_it(head)
    else:
        found = [head]
    now, message = database_now(), head.message or uuid4()
    for each in found:
        each.message, each.state, each.due_at = message, Delivery.State.SENDING, now + timedelta(seconds=LEASE_SECONDS)
        each.tries = [*each.tries, {"at": now.isoformat(), "outcome": _UNKNOWN, "why": "", "message": str(message)}]
    Delivery.objects.bulk_update(found, ["message", "state", "due_at", "tries"])
    of_this = [one for one in found[0].tries if one.get("message") == str(message)]
    return Unit(message, found, len(of_this))


def _due(by: str) -> Delivery | None:
    with connection.cursor() as cursor:
        cursor.execute(_NEXT, [by])
        row = cursor.fetchone()
    return None if row is None else Delivery.objects.get(pk=row[0])


def _put_off(head: Delivery) -> bool:
    """Postpone all of a person's due deliveries, grouped, if their quiet hours have begun; return whether so."""
    if head.person is None:
        return False
    now = database_now()
    later = after_quiet(Preference.objects.filter(pk=head.person).first(), now)
    if later <= now:
        return False
    theirs = Delivery.objects.filter(by=head.by, person=head.person, state__in=_OPEN, due_at__lte=now)
    rows = list(theirs.select_for_update(skip_locked=True, of=("self",)).order_by("pk"))
    for each in rows:
        each.due_at, each.is_grouped = later, each.is_grouped or each.message is None
    Delivery.objects.bulk_update(rows, ["due_at", "is_grouped"])
    return True


def _with_it(head: Delivery) -> list[Delivery]:
    rest = Delivery.objects.filter(
        by=head.by,
        person=head.person,
        device=head.device_id,
        is_grouped=True,
        state=Delivery.State.WAITING,
        message__isnull=True,
        due_at__lte=database_now(),
    ).exclude(pk=head.pk)
    return [head, *rest.select_for_update(skip_locked=True).order_by("due_at", "pk")[: MAX_TOGETHER - 1]]


def _try(unit: Unit) -> Outcome | None:
    """Try once; None if nothing was left to send."""
    hit("NP1", unit.first.by)
    try:
        still = _still_wanted(unit)
        outcome = _send(unit, still) if still else None
    except Exception as error:
        if is_transient(error):
            raise  # the record says that it may have been sent; it is tried again
        log.exception("message %s: it can't be sent", unit.message)
        outcome = Outcome("failed", f"it can't be made: {first_line(error)}"[:300])
    hit("NP2", unit.first.by)
    if outcome is not None:
        _record(unit, outcome)
    return outcome


def _still_wanted(unit: Unit) -> list[words.Said]:
    """Return the deliveries still wanted and allowed, as text; end the others with the reason."""
    person = unit.first.person
    user = None if person is None else User.objects.filter(pk=person).first()
    wish = None if person is None else Preference.objects.filter(pk=person).first()
    still = []
    for each in unit.deliveries:
        try:
            why, told = _told(each, user, wish)  # in no transaction: the first text of a process loads all URLs
        except Exception as error:
            if is_transient(error) or isinstance(error, OSError):
                raise  # not the row's fault
            log.exception("delivery %s: it can't be told", each.pk)
            _end([each], Delivery.State.DEAD, f"it can't be told: {first_line(error)}"[:300], unit)
            continue
        if told is None:
            _end([each], Delivery.State.NEEDLESS, why, unit)
        else:
            still.append(told)
    return still


def _told(each: Delivery, user: User | None, wish: Preference | None) -> tuple[str, words.Said | None]:
    """Return why a delivery is no longer sent, or its text."""
    kind, channel, device = each.notice.kind, each.channel, each.device
    if kind not in KINDS:
        return "this version of the application knows no such kind", None
    case = case_of(each.notice)
    why = case.over
    if not why and channel is not None:
        why = "" if is_for(channel, case) else "the channel is not told of it any more"
    elif not why:
        why = "" if may_be_told(case, user) else "they may not do anything about it any more"
    why = why or ("" if device is None else phones.why_not(device, each.person))
    if not why and each.person is not None and kind in _CHOSEN and each.by not in ways_of(wish, kind):
        why = "they don't want to be told of it like that any more"
    if why:
        return why, None
    return "", words.said(case, wish.zone if wish else "UTC")


def _send(unit: Unit, all_: list[words.Said]) -> Outcome:
    channel, person = unit.first.channel, unit.first.person
    if channel is not None and channel.form == Channel.Form.WEBHOOK:
        try:
            return chat.post(opened(channel.address), words.as_chat(all_), message=unit.message)
        except Unreadable as error:
            return Outcome("refused", str(error))
    if unit.first.device is not None:
        outcome = phones.post(unit.first.device, words.as_push(all_), message=unit.message)
        phones.came(unit.first.device, outcome)
        return outcome
    to = "" if channel is None else channel.address
    if person is not None:
        to = User.objects.filter(pk=person).values_list("email", flat=True).first() or ""
    if not to:
        return Outcome("refused", "the account has no e-mail address")
    if not mail.is_set():
        return Outcome("failed", "this installation names no mail server any more", is_down=True)
    text, html = words.as_text(all_, is_own=channel is None), words.as_html(all_, is_own=channel is None)
    return mail.post(to, words.subject_of(all_), text, html=html, message=unit.message)


# --- what came of it --------------------------------------------------------------------------------------------------


def _record(unit: Unit, outcome: Outcome) -> None:
    number = unit.number
    if outcome.state == "sent":
        _end(unit.deliveries, Delivery.State.SENT, "", unit)
    elif outcome.state == "refused":
        _end(unit.deliveries, Delivery.State.DEAD, outcome.why, unit)
    elif number >= MAX_TRIES:
        _end(unit.deliveries, Delivery.State.DEAD, f"given up after {number} tries: {outcome.why}", unit)
    else:
        _again(unit, outcome)


def _again(unit: Unit, outcome: Outcome) -> None:
    wish = None if unit.first.person is None else Preference.objects.filter(pk=unit.first.person).first()
    later = after_quiet(wish, database_now() + timedelta(seconds=retry_seconds(unit.number, outcome.retry_after)))
    with transaction.atomic():
        for each in _own(unit, unit.deliveries):
            each.state, each.due_at, each.note = Delivery.State.WAITING, later, outcome.why
            _say(each, "failed", outcome.why)
            each.save(update_fields=["state", "due_at", "note", "tries"])


@transaction.atomic
def _end(deliveries: Sequence[Delivery], state: str, why: str, unit: Unit) -> None:
    now: datetime = database_now()
    for each in _own(unit, deliveries):
        each.state, each.note, each.ended_at = state, why, now
        _say(each, {"dead": "refused"}.get(state, str(state)), why)
        each.save(update_fields=["state", "note", "ended_at", "tries"])
        if state == Delivery.State.DEAD:
            log.warning("delivery %s by %s is given up: %s", each.pk, each.by, why)


def _own(unit: Unit, deliveries: Sequence[Delivery]) -> list[Delivery]:
    """Lock and return the deliveries for which this try is still the last."""
    rows = Delivery.objects.select_for_update().filter(
        pk__in=[each.pk for each in deliveries], state=Delivery.State.SENDING, message=unit.message
    )
    tried = {each.pk: len(each.tries) for each in unit.deliveries}
    return [row for row in rows.order_by("pk") if len(row.tries) == tried[row.pk]]


def _say(row: Delivery, outcome: str, why: str) -> None:
    last: dict[str, Any] = {**row.tries[-1], "outcome": outcome, "why": why}
    row.tries = [*row.tries[:-1], last]


ADDRESS, MAIL, CHAT, PUSH = "notices: addressing", "notices: mail", "notices: chats", "notices: phones"
FORGET = "notices: forgetting"
