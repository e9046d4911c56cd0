"""Turn notices into deliveries: recipient, channel and time. Each notice has its own transaction and SKIP LOCKED, so
one process addresses it, and a crash leaves it unchanged. An unreadable row is set aside and delays nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo

from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import Q
from django.db.models.functions import Now

from approvals import push
from approvals.deadlines import deadlines
from approvals.notices import mail, phones
from approvals.notices.kinds import KINDS, OF_OPERATORS, OF_QUEUES, TEST, Way, tell
from approvals.notices.recipients import Case, case_of, recipients
from approvals.outbox import Channel, Delivery, Device, Notice, Preference
from ledger.clock import database_now
from ledger.errors import first_line
from runs.backoff import pause_seconds
from runs.journal.database_errors import is_transient
from runs.services import halted_time

MAX_TRIES = 16  # about ten hours
FIRST_SECONDS, MAX_SECONDS = 30.0, 3600.0
MAX_WAIT_SECONDS = 86_400.0  # maximum that a receiver's Retry-After may ask for
# A deadline is near in the last quarter of its time, at most a day. Short ones are always near, so no notice is sent.
NEAR_SHARE, NEAR_MOST, NEAR_LEAST = 4, timedelta(days=1), timedelta(hours=1)
# After so many in an hour, the rest is grouped each quarter of an hour.
FLOOD, FLOOD_MINUTES = 20, 15


@dataclass(frozen=True, slots=True)
class Rhythm:
    """A person's times for notices: outside quiet hours; digests (`hourly`, `daily`) on the hour or at `digest_at`."""

    zone: str = "UTC"
    quiet_from: time | None = None
    quiet_until: time | None = None
    digest: str = "none"
    digest_at: time = time(8)


def zone_of(name: str) -> tzinfo:
    """Return a time zone by name; UTC if unknown."""
    try:
        return ZoneInfo(name)
    except (ValueError, KeyError, OSError):
        return UTC


def told_at(rhythm: Rhythm, now: datetime) -> datetime:
    """Return when to notify of what happens now: `now` itself for at once."""
    local = now.astimezone(zone_of(rhythm.zone))
    at = local
    if rhythm.digest == "hourly":
        at = local.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    elif rhythm.digest == "daily":
        at = _next(local, rhythm.digest_at)
    begins, ends = rhythm.quiet_from, rhythm.quiet_until
    if begins is not None and ends is not None and _is_within(at.time(), begins, ends):
        at = _next(at, ends)
    return now if at is local else at.astimezone(UTC)


def _is_within(moment: time, begins: time, ends: time) -> bool:
    """Return whether a time of day is quiet; the range may span midnight."""
    return begins <= moment < ends if begins <= ends else moment >= begins or moment < ends


def _next(local: datetime, moment: time) -> datetime:
    """Return the next such time of day by local clock, also across DST changes."""
    at = datetime.combine(local.date(), moment, tzinfo=local.tzinfo)
    return at if at > local else datetime.combine(local.date() + timedelta(days=1), moment, tzinfo=local.tzinfo)


def next_quarter(now: datetime) -> datetime:
    start = now.replace(minute=now.minute - now.minute % FLOOD_MINUTES, second=0, microsecond=0)
    return start + timedelta(minutes=FLOOD_MINUTES)


def near_from(opened_at: datetime, deadline: datetime) -> datetime | None:
    """Return when a deadline becomes near; None if it always is."""
    whole = deadline - opened_at
    return None if whole < NEAR_LEAST else deadline - min(whole / NEAR_SHARE, NEAR_MOST)


def retry_seconds(tries: int, asked: float | None = None) -> float:
    """Return the delay after so many tries, at least what the receiver asked for up to the maximum."""
    own = pause_seconds(tries, first=FIRST_SECONDS, longest=MAX_SECONDS, spread=0.3)
    return max(own, min(asked or 0.0, MAX_WAIT_SECONDS))


log = logging.getLogger("approvals.notices")
IS_DUE = "EXISTS (SELECT 1 FROM approvals_notice WHERE state = 'new' AND due_at <= statement_timestamp())"
_NEXT = """
    SELECT id FROM approvals_notice WHERE state = 'new' AND due_at <= statement_timestamp()
    ORDER BY due_at, id LIMIT 1 FOR UPDATE SKIP LOCKED"""
_OLD_TOLD = """
    DELETE FROM approvals_delivery d USING approvals_notice n
    WHERE n.id = d.notice_id AND d.ended_at IS NOT NULL AND n.at < statement_timestamp() - make_interval(days => %s)"""
_OLD = """
    DELETE FROM approvals_notice n WHERE n.id IN (
        SELECT o.id FROM approvals_notice o
        WHERE o.at < statement_timestamp() - make_interval(days => %s) AND o.state <> 'new'
        AND NOT EXISTS (SELECT 1 FROM approvals_delivery d WHERE d.notice_id = o.id)
        ORDER BY o.at LIMIT %s)"""
KEPT_DAYS, OLD_AT_ONCE = 90, 1000
UNSEEN = timedelta(days=1)
WHILE_HALTED = timedelta(minutes=10)  # until a deadline under a halt is checked again
IS_OLD = """
    EXISTS (SELECT 1 FROM approvals_notice WHERE at < statement_timestamp() - interval '90 days' AND state <> 'new')
    OR EXISTS (SELECT 1 FROM approvals_delivery WHERE by = 'browser' AND state IN ('waiting', 'sending')
               AND due_at < statement_timestamp() - interval '1 day')"""


def address_all() -> int:
    """Address all due notices; return their number."""
    count = 0
    while _address_next():
        count += 1
    return count


def retire() -> int:
    """Delete old notices that were delivered; return their number."""
    unseen = Delivery.objects.filter(by=Way.BROWSER, state=Delivery.State.WAITING, due_at__lt=Now() - UNSEEN)
    unseen.update(state=Delivery.State.NEEDLESS, note="no page was open to show it", ended_at=Now())
    with connection.cursor() as cursor:
        cursor.execute(_OLD_TOLD, [KEPT_DAYS])
        cursor.execute(_OLD, [KEPT_DAYS, OLD_AT_ONCE])
        return cursor.rowcount


def _address_next() -> bool:
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(_NEXT)
            row = cursor.fetchone()
        if row is None:
            return False
        notice = Notice.objects.get(pk=row[0])
        try:
            with transaction.atomic():
                _address(notice, database_now())
        except Exception as error:
            if is_transient(error):
                raise
            log.exception("notice %s (%s): nobody can be told of it", notice.pk, notice.fact)
            _close(notice, Notice.State.OVER, f"it can't be told: {first_line(error)}"[:500])
        return True


def _address(notice: Notice, now: datetime) -> None:
    if notice.kind not in KINDS:
        _close(notice, Notice.State.OVER, "this version of the application knows no such kind")
        return
    case = case_of(notice)
    if over := case.over:
        _close(notice, Notice.State.OVER, over)
        return
    if notice.kind == "due_soon":
        if _is_told_later(case):
            _close(notice, Notice.State.OVER, "its deadline is another since: that this one is near is told by itself")
            return
        if (later := _not_near_yet(case, now)) is not None:
            notice.due_at = later
            notice.save(update_fields=["due_at"])
            return
    deliveries = [*_to_people(case, now), *_to_channels(case, now)]
    Delivery.objects.bulk_create(deliveries, ignore_conflicts=True)
    _close(notice, Notice.State.ADDRESSED, "" if deliveries else "nobody is told of it")
    if notice.kind in ("opened", "escalated"):
        _look_ahead(case)


def _close(notice: Notice, state: str, note: str) -> None:
    notice.state, notice.note = state, note
    notice.save(update_fields=["state", "note"])


def _look_ahead(case: Case) -> None:
    """Schedule the notice for a near deadline, here instead of in the worker's step."""
    approval, near = case.approval, _near(case)
    if approval is not None and near is not None:
        tell(
            "due_soon",
            case.notice.fact,
            run_id=approval.run_id,
            approval_id=approval.pk,
            wait_id=approval.wait_id,
            due_at=near,
        )


def _near(case: Case) -> datetime | None:
    """Return when its deadline becomes near; None without deadline, or if it always is."""
    approval = case.approval
    if approval is None or deadlines().texts(approval).is_endless:
        return None
    went = approval.escalations.order_by("-n").first()
    ends, later = deadlines().effective(approval, approval.wait, database_now())  # a halt was no time for people
    return near_from((approval.opened_at if went is None else went.at) + later, ends)


def _not_near_yet(case: Case, now: datetime) -> datetime | None:
    """Return when to check a moved or halted deadline again; None if it is near now."""
    near = _near(case)
    if near is not None and near > now:
        return near
    is_standing = case.approval is not None and halted_time.is_halted(case.approval.run_id)
    return now + WHILE_HALTED if is_standing else None


def _is_told_later(case: Case) -> bool:
    """Return whether a newer escalation or revision will notify of its own deadline."""
    if case.approval is None:
        return False
    facts = [Q(fact__startswith=f"due_soon:{kind}:{case.approval.pk}") for kind in ("opened", "escalated")]
    return Notice.objects.filter(facts[0] | facts[1], pk__gt=case.notice.pk).exists()


# --- people -----------------------------------------------------------------------------------------------------------


def _to_people(case: Case, now: datetime) -> Iterator[Delivery]:
    people = recipients(case)
    wishes = Preference.objects.in_bulk([user.pk for user in people])
    for user in people:
        wish = wishes.get(user.pk)
        for way in ways_of(wish, case.notice.kind):
            for device in _ends(user, way):
                at, is_grouped = _when(wish, user, way, now)
                yield Delivery(
                    notice=case.notice,
                    by=way,
                    person=user.pk,
                    device=device,
                    due_at=at,
                    is_grouped=is_grouped,
                    made_at=now,
                )


def _ends(user: User, way: str) -> list[Device | None]:
    """Return the recipient's devices for push, or one None for the person."""
    if way == Way.PUSH:
        return [*phones.of_person(user.pk)] if push.is_set() else []
    return [] if way == Way.EMAIL and not (mail.is_set() and user.email) else [None]


def ways_of(wish: Preference | None, kind: str) -> list[str]:
    given = wish.ways.get(kind) if wish is not None and isinstance(wish.ways, dict) else None
    ways = KINDS[kind].ways if given is None else given
    return [way.value for way in Way if way.value in ways]


def rhythm_of(wish: Preference | None) -> Rhythm:
    if wish is None:
        return Rhythm()
    return Rhythm(wish.zone, wish.quiet_from, wish.quiet_until, wish.digest, wish.digest_at)


def after_quiet(wish: Preference | None, at: datetime) -> datetime:
    """Return when someone may be notified at or after `at`, outside their quiet hours."""
    rhythm = rhythm_of(wish)
    return told_at(Rhythm(rhythm.zone, rhythm.quiet_from, rhythm.quiet_until), at)


def _when(wish: Preference | None, user: User, way: str, now: datetime) -> tuple[datetime, bool]:
    """Return when to deliver, and whether grouped. Browsers show only current events; quiet hours apply to all."""
    if way == Way.BROWSER:
        return after_quiet(wish, now), False
    at = told_at(rhythm_of(wish), now)
    if at == now and _is_flooded(user, way, now):
        at = next_quarter(now)
    return at, at != now


def _is_flooded(user: User, way: str, now: datetime) -> bool:
    lately = Delivery.objects.filter(person=user.pk, by=way, made_at__gt=now - timedelta(hours=1))
    return lately[:FLOOD].count() >= FLOOD


# --- chats and shared mailboxes ---------------------------------------------------------------------------------------


def _to_channels(case: Case, now: datetime) -> Iterator[Delivery]:
    if case.notice.person is not None:
        return
    for channel in Channel.objects.filter(ended_at__isnull=True).select_related("queue"):
        if is_for(channel, case) and (channel.form == Channel.Form.WEBHOOK or mail.is_set()):
            yield Delivery(notice=case.notice, by=str(channel.form), channel=channel, due_at=now, made_at=now)


def is_for(channel: Channel, case: Case) -> bool:
    """Return whether a channel gets the notice. A forged channel gets nothing."""
    kind = case.notice.kind
    if channel.ended_at is not None or not channel.is_authentic:
        return False
    if kind == TEST.name:
        return case.notice.about == str(channel.pk)
    if kind not in channel.kinds:
        return False
    if channel.queue is None:
        return kind in OF_OPERATORS
    return kind in OF_QUEUES and channel.queue.name in case.queues
