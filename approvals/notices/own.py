"""A person's notice settings, and notices in their open pages."""

from __future__ import annotations

import logging
from dataclasses import asdict
from datetime import datetime, time, timedelta
from functools import cache
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from approvals.notices import words
from approvals.notices.addressing import rhythm_of, ways_of
from approvals.notices.channels import PreferenceBody
from approvals.notices.kinds import CHOSEN, KINDS, TEST, tell
from approvals.notices.recipients import case_of, may_be_told
from approvals.outbox import Delivery, Preference
from approvals.queues.who import wrong
from ledger.actors import Actor
from ledger.append import acted
from ledger.clock import database_now
from ledger.errors import Forbidden, first_line
from ledger.zones import zones as known_zones
from runs.journal.database_errors import is_transient

log = logging.getLogger(__name__)
FRESH = timedelta(minutes=15)  # older events are not shown in the corner of a screen
MAX_SHOWN = 5


def preference_of(person: int) -> dict[str, Any]:
    wish = Preference.objects.filter(pk=person).first()
    told = asdict(rhythm_of(wish))
    for name in ("quiet_from", "quiet_until", "digest_at"):
        told[name] = None if told[name] is None else f"{told[name]:%H:%M}"
    return {"ways": {kind.name: ways_of(wish, kind.name) for kind in CHOSEN}, **told}


@transaction.atomic
def prefer(body: PreferenceBody, *, by: Actor) -> dict[str, Any]:
    """Replace a person's settings. Raises InvalidInput by the wrong field."""
    if by.person is None:
        raise Forbidden("Only a person with an account receives notifications.")
    unknown = sorted(set(body.ways) - {kind.name for kind in CHOSEN})
    if unknown:
        raise wrong(
            "ways", f"names {unknown[0][:40]}, which is not a kind of notification", f"some of {', '.join(_names())}"
        )
    if body.zone not in known_zones():
        raise wrong("zone", "is no time zone", "a name such as Europe/Berlin")
    if (body.quiet_from is None) != (body.quiet_until is None):
        raise wrong("quiet_until", "and quiet_from belong together", "both times, or none")
    if body.quiet_from is not None and body.quiet_from == body.quiet_until:
        raise wrong("quiet_until", "equals the start, so nothing would ever be sent", "another time")
    User.objects.select_for_update().get(pk=by.person)
    before = preference_of(by.person)
    Preference.objects.update_or_create(
        person=by.person,
        defaults={
            "ways": {name: sorted(set(ways)) for name, ways in body.ways.items()},
            "zone": body.zone,
            "quiet_from": _time(body.quiet_from),
            "quiet_until": _time(body.quiet_until),
            "digest": body.digest,
            "digest_at": time.fromisoformat(body.digest_at),
            "changed_at": database_now(),
        },
    )
    after = preference_of(by.person)
    if after != before:
        acted("notice_settings", by=by, subject=by.name, before=before, after=after)
    return after


def ask_for_test(*, by: Actor) -> None:
    """Send a test to oneself, at most one a minute."""
    tell(TEST.name, f"{by.person}:{database_now():%Y-%m-%dT%H:%M}", person=by.person)


@transaction.atomic
def show(user: User) -> list[dict[str, str]]:
    """Take and return what a user's page shows; whichever page asks first gets it."""
    now: datetime = database_now()
    waiting = Delivery.objects.select_related("notice").filter(
        person=user.pk, by=Delivery.By.BROWSER, state=Delivery.State.WAITING, due_at__lte=now
    )
    shown = []
    for each in waiting.select_for_update(skip_locked=True, of=("self",)).order_by("due_at", "pk")[:MAX_SHOWN]:
        told: dict[str, str] = {}
        try:
            with transaction.atomic():  # a database error of one leaves the others intact
                why, told = _told(each, user, now)
        except Exception as error:
            if is_transient(error):
                raise
            log.exception("delivery %s: it can't be shown", each.pk)
            why = f"it can't be told: {first_line(error)}"[:500]
        each.state = Delivery.State.NEEDLESS if why else Delivery.State.SENT
        each.note, each.ended_at = why, now
        each.save(update_fields=["state", "note", "ended_at"])
        if not why:
            shown.append(told)
    return shown


def _told(row: Delivery, user: User, now: datetime) -> tuple[str, dict[str, str]]:
    """Return why a notice is no longer shown, or what the page shows."""
    if row.notice.kind not in KINDS:
        return "this version of the application knows no such kind", {}
    case = case_of(row.notice)
    why = case.over or ("" if may_be_told(case, user) else "they may not do anything about it any more")
    why = why or ("no page was open to show it" if now - row.due_at > FRESH else "")
    if why:
        return why, {}
    told = words.said(case)
    lines = [text for label, text in told.lines if label in ("Amount", "Queue", "Why")]
    return "", {"tag": str(row.pk), "title": told.subject, "body": "\n".join(lines), "url": words.page_of(case)}


@cache
def zones() -> tuple[str, ...]:
    return tuple(sorted(known_zones()))


def _names() -> list[str]:
    return [kind.name for kind in CHOSEN]


def _time(text: str | None) -> time | None:
    return None if text is None else time.fromisoformat(text)
