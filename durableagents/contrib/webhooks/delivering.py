"""Sends messages at least once, with the same id at each attempt.

An attempt is counted before it is made, and logged afterwards. If a worker dies in between, the message is sent again
after `LEASE_SECONDS`, and the log mentions it."""

# No transaction is open while a server is contacted. Each message is sent in a separate thread, which doesn't use the
# database; everything else happens in the calling thread. A webhook gets only a few threads, and a failing one only a
# single thread, so that a slow endpoint doesn't delay the others.

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from queue import Empty, SimpleQueue

from django.db import connection, transaction

from durableagents.contrib.webhooks.events import KEPT_DAYS, PAUSE_AFTER_DAYS, retry_seconds
from durableagents.contrib.webhooks.messages import body_of, headers_of
from durableagents.contrib.webhooks.models import Attempt, Message, Webhook
from durableagents.contrib.webhooks.services import drop, locked, stop
from durableagents.outgoing import http
from durableagents.outgoing.encryption import Undecryptable, decrypt
from durableagents.outgoing.mail import Outcome
from ledger.clock import database_now
from ledger.errors import first_line
from ledger.web.seeing.viewers import is_erased
from runs import features
from runs.failpoints import hit
from runs.journal.database_errors import is_transient
from runs.models import Run

log = logging.getLogger("durableagents.webhooks")
LEASE_SECONDS = 120.0  # longer than any attempt can take (http.WHOLE_SECONDS)
MAX_AT_ONCE = 4  # messages of one webhook that all workers send at the same time; 1 while it fails
LOOK_SECONDS = 0.5
MAX_FORGOTTEN = 1000
IS_DUE = """EXISTS (
    SELECT FROM webhooks_webhook w WHERE w.state = 'active' AND EXISTS (
        SELECT FROM webhooks_message m WHERE m.webhook_id = w.id AND m.state IN ('waiting', 'sending')
        AND m.due_at <= statement_timestamp()))"""
IS_OLD = f"""EXISTS (
    SELECT FROM webhooks_message WHERE at < statement_timestamp() - interval '{KEPT_DAYS} days')"""
_DUE = (
    f"SELECT w.id FROM webhooks_webhook w WHERE w.state = 'active' AND {IS_DUE.split('AND', 1)[1][:-1]} ORDER BY w.id"
)
# A message waits for earlier ones about its run, unless these have failed and wait for their next attempt.
_NEXT = """
    SELECT m.id FROM webhooks_message m
    WHERE m.webhook_id = %s AND m.state IN ('waiting', 'sending') AND m.due_at <= statement_timestamp()
    AND NOT EXISTS (
        SELECT FROM webhooks_message e WHERE e.webhook_id = m.webhook_id AND e.run_id = m.run_id AND e.id < m.id
        AND e.state IN ('waiting', 'sending') AND (e.attempts = 0 OR e.state = 'sending'))
    ORDER BY m.due_at, m.id LIMIT 1 FOR UPDATE OF m SKIP LOCKED"""


@dataclass(frozen=True, slots=True)
class Sending:
    """A message that is being sent."""

    webhook: int
    message: int
    attempt: int
    url: str
    body: bytes
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Sent:
    """The outcome of an attempt."""

    sending: Sending
    outcome: Outcome
    milliseconds: int


def deliver() -> int:
    """Send all messages that are due; return the number of attempts.

    A failure of one webhook or message doesn't stop the others."""
    results: SimpleQueue[Sent] = SimpleQueue()
    on_the_way, attempts = 0, 0
    broken: set[int] = set()
    while True:
        for webhook in _due():
            while webhook not in broken and (sending := _begun(webhook, broken)) is not None:
                threading.Thread(target=_send, args=[sending, results], name="webhooks: send", daemon=True).start()
                on_the_way, attempts = on_the_way + 1, attempts + 1
        if not on_the_way:
            return attempts
        try:
            on_the_way -= _settle(results.get(timeout=LOOK_SECONDS))
            while True:
                on_the_way -= _settle(results.get_nowait())
        except Empty:
            continue


def _due() -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(_DUE)
        return [webhook for (webhook,) in cursor.fetchall()]


def _begun(webhook: int, broken: set[int]) -> Sending | None:
    """Take the next message that can be composed; None if there is none.

    If taking a message fails, the webhook is added to `broken`, and tried again in the next round."""
    try:
        while (taken := _take(webhook)) is not None:
            if (sending := _request_of(taken)) is not None:
                return sending
    except Exception:
        log.exception("webhook %s: its next message can't be taken", webhook)
        broken.add(webhook)
    return None


def _send(sending: Sending, results: SimpleQueue[Sent]) -> None:
    """Send one message. It runs in a thread of its own and doesn't use the database."""
    began = time.monotonic()
    hit("WP1")
    try:
        outcome = http.post(sending.url, sending.body, sending.headers, skips_silent=False, is_patient=True)
    except Exception as error:
        log.exception("a message can't be sent")
        outcome = Outcome("failed", f"the message can't be sent: {http.one_line(first_line(error))}"[:300])
    hit("WP2")
    results.put(Sent(sending, outcome, int((time.monotonic() - began) * 1000)))


@transaction.atomic
def _take(webhook_id: int) -> Message | None:
    """Take the next due message and count the attempt.

    Returns None if there is none, or if enough messages of the webhook are being sent."""
    webhook = locked(webhook_id, skips=True)
    if webhook is None or webhook.state != Webhook.State.ACTIVE:
        return None
    now = database_now()
    on_the_way = webhook.messages.filter(state=Message.State.SENDING, due_at__gt=now).count()
    if on_the_way >= (1 if webhook.failing_since else MAX_AT_ONCE):
        return None
    while (row := _next_message(webhook)) is not None:
        if row.state == Message.State.SENDING:
            why = "The worker ended before it recorded a response. The message may have been sent."
            Attempt.objects.create(message=row, at=now, outcome="unknown", why=why)
        if why := _why_not(row, webhook):
            _end(row, Message.State.NOT_SENT, why)
            continue
        row.state, row.attempts = Message.State.SENDING, row.attempts + 1
        row.due_at = now + timedelta(seconds=LEASE_SECONDS)
        row.save(update_fields=["state", "attempts", "due_at"])
        return row
    return None


def _request_of(row: Message) -> Sending | None:
    """Return the request for a message that was taken. If it can't be composed, end the message and return None.

    This is called outside transactions, because the first call in a process loads all URLs, which takes long.
    """
    try:
        body = body_of(row)
        headers = headers_of(row, body, database_now())
        return Sending(row.webhook_id, row.pk, row.attempts, decrypt(row.webhook.address), body.encode(), headers)
    except Exception as error:
        if is_transient(error):
            raise  # according to the counted attempt, the message may have been sent, so it is tried again
        if not isinstance(error, Undecryptable):
            log.exception("message %s can't be made", row)
        _end(row, Message.State.FAILED, f"the message can't be composed: {http.one_line(first_line(error))}"[:300])
        return None


def _next_message(webhook: Webhook) -> Message | None:
    with connection.cursor() as cursor:
        cursor.execute(_NEXT, [webhook.pk])
        found = cursor.fetchone()
    if found is None:
        return None
    row = Message.objects.get(pk=found[0])
    row.webhook = webhook
    return row


def _why_not(row: Message, webhook: Webhook) -> str:
    """Return why a message should no longer be sent; empty if it should."""
    if not webhook.is_authentic:
        return "the webhook was not written by this installation"
    if row.run_id is not None and is_erased(row.run_id):
        return "the content of its run was erased"
    if row.run_id is not None and not Run.objects.filter(pk=row.run_id).exists():
        return "its run was moved to the archive"
    return ""


def _settle(sent: Sent) -> int:
    """Record an attempt. Returns 1.

    If the response can't be recorded, a failure is recorded instead."""
    message = sent.sending.message
    try:
        return _record(sent)
    except Exception as error:
        log.exception("the answer to message %s can't be recorded", message)
        is_lost = not is_transient(error)
    try:
        return _record(replace(sent, outcome=Outcome("failed", "its answer can't be recorded")) if is_lost else sent)
    except Exception:
        log.exception("no attempt can be recorded for message %s: it is sent again after its lease", message)
        return 1


@transaction.atomic
def _record(sent: Sent) -> int:
    """Log the attempt and update the message, unless another worker has taken it. Returns 1."""
    outcome, webhook = sent.outcome, locked(sent.sending.webhook)  # the webhook is locked first, as everywhere else
    row = Message.objects.select_for_update(no_key=True).filter(pk=sent.sending.message).first()
    if row is None or webhook is None:
        return 1  # the message was removed in the meantime
    Attempt.objects.create(
        message=row,
        at=database_now(),
        outcome="sent" if outcome.state == "sent" else "failed",
        status=outcome.status,
        milliseconds=sent.milliseconds,
        answer=escaped(outcome.answer),
        why=outcome.why,
    )
    if row.state != Message.State.SENDING or row.attempts != sent.sending.attempt:
        return 1
    if outcome.state == "sent":
        _end(row, Message.State.SENT, "")
        _note_failing(webhook, None)
    else:
        _failed(row, webhook, outcome)
    return 1


def _failed(row: Message, webhook: Webhook, outcome: Outcome) -> None:
    """Plan the next attempt, or give up.

    The webhook is disabled if its endpoint is gone, and paused if it has failed for a long time."""
    now = database_now()
    seconds = retry_seconds(row.attempts)
    if seconds is None:
        _end(row, Message.State.FAILED, f"given up after {row.attempts} attempts: {outcome.why}")
        log.warning("message %s is given up: %s", row, outcome.why)
    else:
        row.state, row.note = Message.State.WAITING, outcome.why
        row.due_at = now + timedelta(seconds=max(seconds, outcome.retry_after or 0.0))
        row.save(update_fields=["state", "note", "due_at"])
    if webhook.state != Webhook.State.ACTIVE or not webhook.is_authentic:
        return
    if outcome.status == 410:
        stop(webhook, Webhook.State.DISABLED, "its endpoint answered 410 Gone")
        drop(webhook, Message.State.FAILED, "the endpoint answered 410 Gone", now)
    elif webhook.failing_since is None:
        return _note_failing(webhook, now)
    elif webhook.failing_since < now - timedelta(days=PAUSE_AFTER_DAYS):
        stop(webhook, Webhook.State.PAUSED, f"it failed for {PAUSE_AFTER_DAYS} days: {outcome.why}"[:500])
    else:
        return None
    log.warning("webhook %s is %s: %s", webhook.name, webhook.state, webhook.why)
    fact, about = f"webhook {webhook.pk}:{now.isoformat()}", f"{webhook.name} ({webhook.state})"
    features.notify(features.Notification(kind="endpoint_stopped", fact=fact, about=about))


def _note_failing(webhook: Webhook, since: datetime | None) -> None:
    if webhook.failing_since != since:
        Webhook.objects.filter(pk=webhook.pk).update(failing_since=since)


def _end(row: Message, state: Message.State, note: str) -> None:
    row.state, row.note, row.ended_at = state, note, database_now()
    row.save(update_fields=["state", "note", "ended_at"])


def escaped(answer: bytes) -> str:
    """Return the bytes of a response as one line without control characters."""
    return http.one_line(answer.decode("utf-8", "backslashreplace"))


def forget() -> int:
    """Remove old messages; return their number."""
    removed = 0
    while True:
        with connection.cursor() as cursor:
            cursor.execute("SELECT webhooks_forget(%s)", [MAX_FORGOTTEN])
            (some,) = cursor.fetchone()
        removed += some
        if some < MAX_FORGOTTEN:
            return removed
