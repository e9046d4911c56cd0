"""Sends messages at least once, with the same id at each attempt.

An attempt is recorded before it is made, and its outcome afterwards. If a worker dies in between, the message is sent
again after `LEASE_SECONDS`, and the log mentions it."""

# No transaction is open while a server is contacted. Rights and preferences are checked immediately before. Grouped
# notices are checked and rendered one by one, so that an unreadable one doesn't affect the others. Notifications for
# open pages are not sent here, but fetched by the pages.

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from django.contrib.auth.models import User
from django.db import transaction

from durableagents.contrib.notifications import devices, texts
from durableagents.contrib.notifications.addressing import media_of, preference_of, receives, sending_time
from durableagents.contrib.notifications.kinds import CHOSEN, KINDS
from durableagents.contrib.notifications.models import Channel, Delivery, Preference
from durableagents.contrib.notifications.recipients import may_receive, read_subject
from durableagents.outgoing import http, mail
from durableagents.outgoing.encryption import Undecryptable, decrypt
from durableagents.outgoing.mail import Outcome
from ledger.clock import database_now
from ledger.errors import first_line
from runs.backoff import Patience, pause_seconds
from runs.failpoints import hit
from runs.journal.database_errors import is_transient

log = logging.getLogger("durableagents.notifications")
LEASE_SECONDS = 120.0  # longer than any attempt can take (mail.WHOLE_SECONDS, http.WHOLE_SECONDS)
MAX_TRIES = 16  # the attempts take about ten hours
FIRST_SECONDS, MAX_SECONDS = 30.0, 3600.0
MAX_IN_A_MESSAGE = 200
MAX_AGE = timedelta(minutes=15)  # events older than this are not shown in open pages
MAX_SHOWN = 5
BY_MAIL, BY_CHAT, BY_PUSH = ("email", "mailbox"), ("webhook",), ("push",)
SENDERS = {"mail": BY_MAIL, "chats": BY_CHAT, "push": BY_PUSH}
_CHOSEN = frozenset(kind.name for kind in CHOSEN)
_OPEN = [Delivery.State.WAITING, Delivery.State.SENDING]
_NEXT = """
    SELECT * FROM approvals_delivery
    WHERE by = %s AND state IN ('waiting', 'sending') AND due_at <= statement_timestamp()
    ORDER BY due_at, id LIMIT 1 FOR UPDATE SKIP LOCKED"""


def is_due(by: Sequence[str]) -> str:
    """Return the SQL condition for deliveries that are due over one of these media."""
    return " OR ".join(
        f"EXISTS (SELECT 1 FROM approvals_delivery WHERE by = '{each}' AND state IN ('waiting', 'sending') "
        "AND due_at <= statement_timestamp())"
        for each in by
    )


# Pauses that this process makes when a server can't be used, because every message would fail the same way.
_pauses: dict[str, tuple[Patience, float]] = {}


def deliver(by: Sequence[str]) -> int:
    """Send all deliveries that are due over these media; return the number of attempts."""
    patience, until = _pauses.setdefault(by[0], (Patience(first_seconds=5.0, last_seconds=60.0), 0.0))
    attempts = 0
    while time.monotonic() >= until:
        message = next((found for each in by if (found := _take(each)) is not None), None)
        if message is None:
            break
        attempts += 1
        outcome = _try(message)
        if outcome is not None and outcome.is_down:
            until = time.monotonic() + patience.seconds()
        else:
            patience.reset()
    _pauses[by[0]] = (patience, until)
    return attempts


@dataclass(frozen=True, slots=True)
class Message:
    """One message, with the deliveries that it covers."""

    id: UUID
    deliveries: list[Delivery]
    attempt: int

    @property
    def first(self) -> Delivery:
        return self.deliveries[0]


@transaction.atomic
def _take(by: str) -> Message | None:
    """Take the next due message and record the attempt.

    Returns None if there is none, or if another process has taken it."""
    while (head := next(iter(Delivery.objects.raw(_NEXT, [by])), None)) is not None and _postpone(head):
        pass
    if head is None:
        return None
    found = [head]
    if head.message is not None:
        of_message = Delivery.objects.filter(message=head.message, state__in=_OPEN)
        found = list(of_message.select_for_update(skip_locked=True, of=("self",)).order_by("pk"))
        if len(found) != of_message.count():
            return None
    elif head.is_grouped:
        found += _grouped_with(head)
    now, message = database_now(), head.message or uuid4()
    for each in found:
        each.message, each.state, each.due_at = message, Delivery.State.SENDING, now + timedelta(seconds=LEASE_SECONDS)
        each.tries = [*each.tries, {"at": now.isoformat(), "outcome": "unknown", "why": "", "message": str(message)}]
    Delivery.objects.bulk_update(found, ["message", "state", "due_at", "tries"])
    return Message(message, found, sum(each.get("message") == str(message) for each in found[0].tries))


def _postpone(head: Delivery) -> bool:
    """During a person's quiet hours, postpone their due deliveries over one medium; return whether it did."""
    if head.person is None:
        return False
    now = database_now()
    later = sending_time(preference_of(head.person), now, for_digest=False)
    if later <= now:
        return False
    theirs = Delivery.objects.filter(by=head.by, person=head.person, state__in=_OPEN, due_at__lte=now)
    rows = list(theirs.select_for_update(skip_locked=True, of=("self",)).order_by("pk"))
    for each in rows:
        each.due_at, each.is_grouped = later, each.is_grouped or each.message is None
    Delivery.objects.bulk_update(rows, ["due_at", "is_grouped"])
    return True


def _grouped_with(head: Delivery) -> list[Delivery]:
    rest = Delivery.objects.filter(
        by=head.by,
        person=head.person,
        device=head.device_id,
        is_grouped=True,
        state=Delivery.State.WAITING,
        message__isnull=True,
        due_at__lte=database_now(),
    ).exclude(pk=head.pk)
    return list(rest.select_for_update(skip_locked=True).order_by("due_at", "pk")[: MAX_IN_A_MESSAGE - 1])


def _try(message: Message) -> Outcome | None:
    """Try to send once. Returns None if no delivery was left to send."""
    hit("NP1", message.first.by)
    try:
        wanted = _still_wanted(message)
        outcome = _send(message, wanted) if wanted else None
    except Exception as error:
        if is_transient(error):
            raise  # according to the recorded attempt it may have been sent, so it is tried again
        log.exception("message %s: it can't be sent", message.id)
        outcome = Outcome("failed", f"the message can't be composed: {first_line(error)}"[:300])
    hit("NP2", message.first.by)
    if outcome is not None:
        _record(message, outcome)
    return outcome


def _still_wanted(message: Message) -> list[texts.Text]:
    """Return the texts of deliveries that are still wanted and allowed; end the others with the reason."""
    person = message.first.person
    user, row = User.objects.filter(pk=person or 0).first(), preference_of(person)
    wanted = []
    for each in message.deliveries:
        try:
            # outside transactions, because the first text of a process loads all URLs, which takes long
            found = text_or_reason(each, user, row)
        except Exception as error:
            if is_transient(error) or isinstance(error, OSError):
                raise  # the error isn't caused by this delivery
            log.exception("delivery %s: it can't be told", each.pk)
            _end(message, [each], Delivery.State.DEAD, f"the message can't be composed: {first_line(error)}"[:300])
            continue
        if isinstance(found, str):
            _end(message, [each], Delivery.State.NEEDLESS, found)
        else:
            wanted.append(found)
    return wanted


def text_or_reason(each: Delivery, user: User | None, row: Preference) -> texts.Text | str:
    """Return the text of a delivery, or why it is no longer sent.

    This depends on the recipient's current rights and settings."""
    kind, channel, device = each.notice.kind, each.channel, each.device
    if kind not in KINDS:
        return "this version of the application does not know its kind"
    subject = read_subject(each.notice)
    if reason := subject.obsolete_reason:
        return reason
    if channel is not None and not receives(channel, subject):
        return "the channel no longer receives it"
    if channel is None and not may_receive(subject, user):
        return "they may no longer act on it"
    if device is not None and (reason := devices.why_not(device, each.person)):
        return reason
    if each.person is not None and kind in _CHOSEN and each.by not in media_of(row, kind):
        return "they no longer want it over this medium"
    return texts.text_of(subject, row.zone)


def _send(message: Message, wanted: list[texts.Text]) -> Outcome:
    channel, person, device = message.first.channel, message.first.person, message.first.device
    if channel is not None and channel.form == Channel.Form.WEBHOOK:
        try:
            return post_to_chat(decrypt(channel.address), texts.as_chat(wanted), message=message.id)
        except Undecryptable as error:
            return Outcome("refused", str(error))
    if device is not None:
        outcome = devices.send(device, texts.as_push(wanted), message=message.id)
        devices.record(device, outcome)
        return outcome
    to = "" if channel is None else channel.address
    if person is not None:
        to = User.objects.filter(pk=person).values_list("email", flat=True).first() or ""
    if not to:
        return Outcome("refused", "the account has no e-mail address")
    if not mail.is_set():
        return Outcome("failed", "this installation no longer has a mail server", is_down=True)
    is_own = channel is None
    text, html = texts.as_text(wanted, is_own=is_own), texts.as_html(wanted, is_own=is_own)
    return mail.send(to, texts.mail_subject(wanted), text, html=html, message=message.id)


def post_to_chat(url: str, payload: Any, *, message: UUID) -> Outcome:
    """Post one message to a chat. Receivers can recognize repetitions by the same `message` id."""
    headers = {
        "Content-Type": "application/json; charset=utf-8",
        "Idempotency-Key": str(message),
        "X-Durable-Agents-Message": str(message),
    }
    return http.post(url, json.dumps(payload).encode(), headers)


# --- outcomes ---------------------------------------------------------------------------------------------------------


def _record(message: Message, outcome: Outcome) -> None:
    if outcome.state == "sent":
        _end(message, message.deliveries, Delivery.State.SENT, "")
    elif outcome.state == "refused":
        _end(message, message.deliveries, Delivery.State.DEAD, outcome.why)
    elif message.attempt >= MAX_TRIES:
        why = f"given up after {message.attempt} attempts: {outcome.why}"
        _end(message, message.deliveries, Delivery.State.DEAD, why)
    else:
        _try_again_later(message, outcome)


@transaction.atomic
def _try_again_later(message: Message, outcome: Outcome) -> None:
    own = pause_seconds(message.attempt, first=FIRST_SECONDS, longest=MAX_SECONDS, spread=0.3)
    at = database_now() + timedelta(seconds=max(own, outcome.retry_after or 0.0))
    later = sending_time(preference_of(message.first.person), at, for_digest=False)
    for each in _locked(message, message.deliveries, "failed", outcome.why):
        each.state, each.due_at, each.note = Delivery.State.WAITING, later, outcome.why
        each.save(update_fields=["state", "due_at", "note", "tries"])


@transaction.atomic
def _end(message: Message, deliveries: Sequence[Delivery], state: Delivery.State, why: str) -> None:
    now, outcome = database_now(), "refused" if state == Delivery.State.DEAD else str(state)
    for each in _locked(message, deliveries, outcome, why):
        each.state, each.note, each.ended_at = state, why, now
        each.save(update_fields=["state", "note", "ended_at", "tries"])
        if state == Delivery.State.DEAD:
            log.warning("delivery %s by %s is given up: %s", each.pk, each.by, why)


def _locked(message: Message, deliveries: Sequence[Delivery], outcome: str, why: str) -> list[Delivery]:
    """Lock deliveries, keep those for which this attempt is still the last one, and record its outcome in them."""
    rows = Delivery.objects.select_for_update().filter(
        pk__in=[each.pk for each in deliveries], state=Delivery.State.SENDING, message=message.id
    )
    attempts = {each.pk: len(each.tries) for each in message.deliveries}
    found = [row for row in rows.order_by("pk") if len(row.tries) == attempts[row.pk]]
    for row in found:
        row.tries = [*row.tries[:-1], {**row.tries[-1], "outcome": outcome, "why": why}]
    return found


# --- open pages -------------------------------------------------------------------------------------------------------


@transaction.atomic
def take_for_page(user: User) -> list[dict[str, str]]:
    """Take and return the notifications for a user's open page. Each is returned to only one page."""
    now, row = database_now(), preference_of(user.pk)
    waiting = Delivery.objects.select_related("notice").filter(
        person=user.pk, by=Delivery.By.BROWSER, state=Delivery.State.WAITING, due_at__lte=now
    )
    notices = []
    for each in waiting.select_for_update(skip_locked=True, of=("self",)).order_by("due_at", "pk")[:MAX_SHOWN]:
        try:
            with transaction.atomic():  # a savepoint, so that a database error affects only this delivery
                found = text_or_reason(each, user, row)
        except Exception as error:
            if is_transient(error):
                raise
            log.exception("delivery %s: it can't be shown", each.pk)
            found = f"the message can't be composed: {first_line(error)}"[:500]
        if not isinstance(found, str) and now - each.due_at > MAX_AGE:
            found = "no page was open to show it"
        if isinstance(found, str):
            each.state, each.note = Delivery.State.NEEDLESS, found
        else:
            each.state = Delivery.State.SENT
            notices.append(texts.as_browser_notification(found, tag=str(each.pk)))
        each.ended_at = now
        each.save(update_fields=["state", "note", "ended_at"])
    return notices
