"""A person's notification settings."""

from __future__ import annotations

from datetime import time
from typing import Annotated, Literal

from django.contrib.auth.models import User
from django.db import transaction
from pydantic import Field

from approvals.queues.who import wrong
from durableagents.contrib.notifications.addressing import media_of, preference_of
from durableagents.contrib.notifications.kinds import CHOSEN, TEST, tell
from durableagents.contrib.notifications.models import Preference
from ledger.actors import Actor
from ledger.append import acted
from ledger.clock import database_now
from ledger.errors import Forbidden
from ledger.web.bodies import Strict
from ledger.web.fields import Zone
from ledger.web.shapes import Shape
from ledger.zones import zones
from runs.features import Notification

Clock = Annotated[str, Field(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]
KindName = Annotated[str, Field(max_length=40)]
Media = Annotated[list[Literal["email", "push", "browser"]], Field(max_length=3)]


class PreferenceBody(Strict):
    """Notification preferences.

    A kind that isn't named follows its default. Quiet hours need both a start and an end."""

    ways: Annotated[dict[KindName, Media], Field(max_length=40)] = Field(
        default={}, description="Media by kind of notification; a kind that is not named follows the default."
    )
    zone: Annotated[str, Field(max_length=200)] = Field(
        default="UTC", description="IANA time zone of the quiet hours and the digest."
    )
    quiet_from: Clock | None = Field(default=None, description="Start of the quiet hours, as HH:MM.")
    quiet_until: Clock | None = Field(default=None, description="End of the quiet hours, as HH:MM.")
    digest: Literal["none", "hourly", "daily"] = Field(
        default="none", description="How often notifications are collected in one message."
    )
    digest_at: Clock = Field(default="08:00", description="Time of the daily digest, as HH:MM.")


class PreferenceRow(Shape):
    """Notification preferences: media for each kind, and quiet hours."""

    ways: dict[str, list[str]] = Field(
        description="Media by kind of notification; a kind that is not listed follows the default."
    )
    zone: Zone
    quiet_from: str | None = Field(description="Start of the quiet hours, as HH:MM; null: none.")
    quiet_until: str | None = Field(description="End of the quiet hours, as HH:MM; null: none.")
    digest: str = Field(description="none, hourly or daily: how often notifications are collected in one message.")
    digest_at: str = Field(description="Time of the daily digest, as HH:MM.")


def settings_of(person: int) -> PreferenceRow:
    """Return a person's settings as a row, or the defaults."""
    row = preference_of(person)
    times = {name: getattr(row, name) for name in ("quiet_from", "quiet_until", "digest_at")}
    return PreferenceRow.of(
        row,
        ways={kind.name: media_of(row, kind.name) for kind in CHOSEN},
        **{name: None if at is None else f"{at:%H:%M}" for name, at in times.items()},
    )


@transaction.atomic
def save_settings(body: PreferenceBody, *, by: Actor) -> PreferenceRow:
    """Replace a person's settings. Raises InvalidInput with the wrong field."""
    if by.person is None:
        raise Forbidden("Only a person with an account receives notifications.")
    known = [kind.name for kind in CHOSEN]
    if unknown := sorted(set(body.ways) - set(known)):
        problem = f"names {unknown[0][:40]}, which is not a kind of notification"
        raise wrong("ways", problem, f"some of {', '.join(known)}")
    if body.zone not in zones():
        raise wrong("zone", "is not a time zone", "a name such as Europe/Berlin")
    if (body.quiet_from is None) != (body.quiet_until is None):
        raise wrong("quiet_until", "and quiet_from belong together", "both times, or none")
    if body.quiet_from is not None and body.quiet_from == body.quiet_until:
        raise wrong("quiet_until", "equals the start, so nothing would ever be sent", "another time")
    User.objects.select_for_update().get(pk=by.person)
    before = settings_of(by.person)
    Preference.objects.update_or_create(
        person=by.person,
        defaults={
            "ways": {name: sorted(set(media)) for name, media in body.ways.items()},
            "zone": body.zone,
            "quiet_from": _time(body.quiet_from),
            "quiet_until": _time(body.quiet_until),
            "digest": body.digest,
            "digest_at": time.fromisoformat(body.digest_at),
            "changed_at": database_now(),
        },
    )
    after = settings_of(by.person)
    if after != before:
        acted("notice_settings", by=by, subject=by.name, before=before.shown(), after=after.shown())
    return after


def request_test(*, by: Actor) -> None:
    """Send the person a test notification, at most one a minute."""
    fact = f"{by.person}:{database_now():%Y-%m-%dT%H:%M}"
    tell(Notification(kind=TEST.name, fact=fact, person=by.person))


def _time(text: str | None) -> time | None:
    return None if text is None else time.fromisoformat(text)
