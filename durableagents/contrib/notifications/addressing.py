"""Turns notices into deliveries: determines the recipient, medium and time.

Each notice is processed in a transaction of its own with SKIP LOCKED, so only one process handles it, and a crash
leaves it unchanged. A notice that can't be read is set aside, so that it doesn't delay the others."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo

from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import Q
from django.db.models.functions import Now

from approvals.deadlines import deadlines
from durableagents.contrib.notifications import devices, web_push
from durableagents.contrib.notifications.kinds import KINDS, OF_OPERATORS, OF_QUEUES, TEST, Medium, tell
from durableagents.contrib.notifications.models import Channel, Delivery, Device, Notice, Preference
from durableagents.contrib.notifications.recipients import Subject, find_recipients, read_subject
from durableagents.outgoing import mail
from ledger.clock import database_now
from ledger.errors import first_line
from runs.features import Notification
from runs.journal.database_errors import is_transient
from runs.services import halted_time

log = logging.getLogger("durableagents.notifications")
# A deadline is near in the last quarter of its period, but at most a day before the deadline. No notice is sent for
# short periods.
NEAR_SHARE, NEAR_MAX, NEAR_MIN = 4, timedelta(days=1), timedelta(hours=1)
# After this many deliveries in an hour, further ones are grouped and sent every quarter of an hour.
FLOOD, FLOOD_MINUTES = 20, 15
KEPT_DAYS, MAX_DELETED = 90, 1000
UNSEEN = timedelta(days=1)
WHILE_HALTED = timedelta(minutes=10)  # after this time, the deadline of a halted approval is checked again
IS_DUE = "EXISTS (SELECT 1 FROM approvals_notice WHERE state = 'new' AND due_at <= statement_timestamp())"
_NEXT = """
    SELECT * FROM approvals_notice WHERE state = 'new' AND due_at <= statement_timestamp()
    ORDER BY due_at, id LIMIT 1 FOR UPDATE SKIP LOCKED"""
_DELETE_DELIVERIES = """
    DELETE FROM approvals_delivery d USING approvals_notice n
    WHERE n.id = d.notice_id AND d.ended_at IS NOT NULL AND n.at < statement_timestamp() - make_interval(days => %s)"""
_DELETE_NOTICES = """
    DELETE FROM approvals_notice n WHERE n.id IN (
        SELECT o.id FROM approvals_notice o
        WHERE o.at < statement_timestamp() - make_interval(days => %s) AND o.state <> 'new'
        AND NOT EXISTS (SELECT 1 FROM approvals_delivery d WHERE d.notice_id = o.id)
        ORDER BY o.at LIMIT %s)"""
IS_OLD = f"""
    EXISTS (SELECT 1 FROM approvals_notice
            WHERE at < statement_timestamp() - interval '{KEPT_DAYS} days' AND state <> 'new')
    OR EXISTS (SELECT 1 FROM approvals_delivery WHERE by = 'browser' AND state IN ('waiting', 'sending')
               AND due_at < statement_timestamp() - interval '1 day')"""


# --- when people are told ---------------------------------------------------------------------------------------------


def zone_of(name: str) -> tzinfo:
    """Return a time zone by name; UTC if unknown."""
    try:
        return ZoneInfo(name)
    except (ValueError, KeyError, OSError):
        return UTC


def preference_of(person: int | None) -> Preference:
    """Return a person's settings, or the defaults for channels and for people who have saved none."""
    return Preference.objects.filter(pk=person or 0).first() or Preference()


def sending_time(row: Preference, now: datetime, *, for_digest: bool = True) -> datetime:
    """Return when to notify a person of an event that happens now; `now` itself for at once.

    Quiet hours are respected and, with `for_digest`, the times of the person's digest."""
    local = now.astimezone(zone_of(row.zone))
    at = local
    if for_digest and row.digest == Preference.Digest.HOURLY:
        at = local.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    elif for_digest and row.digest == Preference.Digest.DAILY:
        at = _next_time(local, row.digest_at)
    begins, ends = row.quiet_from, row.quiet_until
    if begins is not None and ends is not None and _is_within(at.time(), begins, ends):
        at = _next_time(at, ends)
    return now if at is local else at.astimezone(UTC)


def _is_within(moment: time, begins: time, ends: time) -> bool:
    """Return whether a time of day is within the quiet hours, which may span midnight."""
    return begins <= moment < ends if begins <= ends else moment >= begins or moment < ends


def _next_time(local: datetime, moment: time) -> datetime:
    """Return the next occurrence of this local time of day, also across DST changes."""
    at = datetime.combine(local.date(), moment, tzinfo=local.tzinfo)
    return at if at > local else datetime.combine(local.date() + timedelta(days=1), moment, tzinfo=local.tzinfo)


def next_quarter(now: datetime) -> datetime:
    """Return the end of the current quarter of an hour."""
    start = now.replace(minute=now.minute - now.minute % FLOOD_MINUTES, second=0, microsecond=0)
    return start + timedelta(minutes=FLOOD_MINUTES)


def near_from(opened_at: datetime, deadline: datetime) -> datetime | None:
    """Return when a deadline becomes near; None if its whole time is too short for a notice."""
    whole = deadline - opened_at
    return None if whole < NEAR_MIN else deadline - min(whole / NEAR_SHARE, NEAR_MAX)


def media_of(row: Preference, kind: str) -> list[str]:
    """Return the media by which a person is notified of a kind."""
    chosen = row.ways.get(kind, KINDS[kind].media)
    return [medium.value for medium in Medium if medium.value in chosen]


# --- notices ----------------------------------------------------------------------------------------------------------


def address_all() -> int:
    """Turn all due notices into deliveries; return their number."""
    count = 0
    while _address_next():
        count += 1
    return count


def delete_old() -> int:
    """Delete old notices whose deliveries have ended; return their number."""
    unseen = Delivery.objects.filter(by=Medium.BROWSER, state=Delivery.State.WAITING, due_at__lt=Now() - UNSEEN)
    unseen.update(state=Delivery.State.NEEDLESS, note="no page was open to show it", ended_at=Now())
    with connection.cursor() as cursor:
        cursor.execute(_DELETE_DELIVERIES, [KEPT_DAYS])
        cursor.execute(_DELETE_NOTICES, [KEPT_DAYS, MAX_DELETED])
        return cursor.rowcount


@transaction.atomic
def _address_next() -> bool:
    notice = next(iter(Notice.objects.raw(_NEXT)), None)
    if notice is None:
        return False
    try:
        with transaction.atomic():
            _address(notice, database_now())
    except Exception as error:
        if is_transient(error):
            raise
        log.exception("notice %s (%s): nobody can be told of it", notice.pk, notice.fact)
        _close(notice, Notice.State.OVER, f"the message can't be composed: {first_line(error)}"[:500])
    return True


def _address(notice: Notice, now: datetime) -> None:
    if notice.kind not in KINDS:
        return _close(notice, Notice.State.OVER, "this version of the application does not know its kind")
    subject = read_subject(notice)
    if reason := subject.obsolete_reason:
        return _close(notice, Notice.State.OVER, reason)
    if notice.kind == "due_soon":
        if _has_newer_deadline(subject):
            why = "its deadline has changed; the new one has a notification of its own"
            return _close(notice, Notice.State.OVER, why)
        if (later := _not_near_yet(subject, now)) is not None:
            notice.due_at = later
            return notice.save(update_fields=["due_at"])
    deliveries = [*_to_people(subject, now), *_to_channels(subject, now)]
    Delivery.objects.bulk_create(deliveries, ignore_conflicts=True)
    _close(notice, Notice.State.ADDRESSED, "" if deliveries else "it has no recipients")
    if notice.kind in ("opened", "escalated"):
        _plan_deadline_notice(subject)
    return None


def _close(notice: Notice, state: str, note: str) -> None:
    notice.state, notice.note = state, note
    notice.save(update_fields=["state", "note"])


# --- near deadlines ---------------------------------------------------------------------------------------------------


def _plan_deadline_notice(subject: Subject) -> None:
    """Plan the notice of a near deadline. This happens here, so that the worker's step doesn't have to do it."""
    approval, near = subject.approval, _near(subject)
    if approval is not None and near is not None:
        news = Notification(
            kind="due_soon",
            fact=subject.notice.fact,
            run_id=approval.run_id,
            approval_id=approval.pk,
            wait_id=approval.wait_id,
        )
        tell(news, due_at=near)


def _near(subject: Subject) -> datetime | None:
    """Return when the approval's deadline becomes near; None if it has no deadline or too short a time."""
    approval = subject.approval
    if approval is None or deadlines().texts(approval).is_endless:
        return None
    last = approval.escalations.order_by("-n").first()
    # halted time doesn't count, because people could not decide
    ends, later = deadlines().effective(approval, approval.wait, database_now())
    return near_from((approval.opened_at if last is None else last.at) + later, ends)


def _not_near_yet(subject: Subject, now: datetime) -> datetime | None:
    """Return when to check the deadline again, if it was moved or is halted; None if it is near now."""
    near = _near(subject)
    if near is not None and near > now:
        return near
    is_halted = subject.approval is not None and halted_time.is_halted(subject.approval.run_id)
    return now + WHILE_HALTED if is_halted else None


def _has_newer_deadline(subject: Subject) -> bool:
    """Return whether there is a newer escalation or revision, whose own notice will report the deadline."""
    if subject.approval is None:
        return False
    facts = [Q(fact__startswith=f"due_soon:{kind}:{subject.approval.pk}") for kind in ("opened", "escalated")]
    return Notice.objects.filter(facts[0] | facts[1], pk__gt=subject.notice.pk).exists()


# --- people -----------------------------------------------------------------------------------------------------------


def _to_people(subject: Subject, now: datetime) -> Iterator[Delivery]:
    people = find_recipients(subject)
    rows = Preference.objects.in_bulk([user.pk for user in people])
    for user in people:
        row = rows.get(user.pk, Preference())
        for by in media_of(row, subject.notice.kind):
            for device in _devices(user, by):
                at, is_grouped = _delivery_time(row, user, by, now)
                yield Delivery(
                    notice=subject.notice,
                    by=by,
                    person=user.pk,
                    device=device,
                    due_at=at,
                    is_grouped=is_grouped,
                    made_at=now,
                )


def _devices(user: User, by: str) -> list[Device | None]:
    """Return the devices to deliver to. For media other than push, return a single None."""
    if by == Medium.PUSH:
        return [*devices.devices_of(user.pk)] if web_push.is_available() else []
    return [] if by == Medium.EMAIL and not (mail.is_set() and user.email) else [None]


def _delivery_time(row: Preference, user: User, by: str, now: datetime) -> tuple[datetime, bool]:
    """Return when to deliver, and whether to group it with others.

    Browsers show only current events, so notices to them are not grouped; quiet hours apply to all media."""
    if by == Medium.BROWSER:
        return sending_time(row, now, for_digest=False), False
    at = sending_time(row, now)
    if at == now and _is_flooded(user, by, now):
        at = next_quarter(now)
    return at, at != now


def _is_flooded(user: User, by: str, now: datetime) -> bool:
    lately = Delivery.objects.filter(person=user.pk, by=by, made_at__gt=now - timedelta(hours=1))
    return lately[:FLOOD].count() >= FLOOD


# --- chats and shared mailboxes ---------------------------------------------------------------------------------------


def _to_channels(subject: Subject, now: datetime) -> Iterator[Delivery]:
    if subject.notice.person is not None:
        return
    for channel in Channel.objects.filter(ended_at__isnull=True).select_related("queue"):
        if receives(channel, subject) and (channel.form == Channel.Form.WEBHOOK or mail.is_set()):
            yield Delivery(notice=subject.notice, by=str(channel.form), channel=channel, due_at=now, made_at=now)


def receives(channel: Channel, subject: Subject) -> bool:
    """Return whether a channel receives the notice. A channel with a forged row receives nothing."""
    kind = subject.notice.kind
    if channel.ended_at is not None or not channel.is_authentic:
        return False
    if kind == TEST.name:
        return subject.notice.about == str(channel.pk)
    if kind not in channel.kinds:
        return False
    if channel.queue is None:
        return kind in OF_OPERATORS
    return kind in OF_QUEUES and channel.queue.name in subject.queues
