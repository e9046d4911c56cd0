"""Devices for Web Push.

A device belongs to its person until it is removed, they sign out, someone else uses it, or the push service forgets it.
The device's address appears in no record, log or response."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from typing import Annotated, Any
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in, user_logged_out
from django.db import connection, transaction
from django.dispatch import receiver
from django.http import HttpRequest
from pydantic import Field

from approvals.queues.who import wrong
from durableagents.contrib.notifications import web_push
from durableagents.contrib.notifications.kinds import Medium
from durableagents.contrib.notifications.models import Device, Preference
from durableagents.outgoing import http
from durableagents.outgoing.encryption import Undecryptable, decrypt, encrypt
from durableagents.outgoing.mail import Outcome
from ledger.actors import Actor
from ledger.append import acted
from ledger.clock import database_now
from ledger.errors import Forbidden, NotFound
from ledger.web.bodies import Strict

MAX_DEVICES = 10
_ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(hashtextextended(encode(%s::bytea, 'hex'), 151))"
TTL_SECONDS = 4 * 3600  # how long the push service keeps a message for an offline device
Key = Annotated[str, Field(min_length=1, max_length=200)]


class DeviceBody(Strict):
    """A push subscription as the browser returns it (Push API)."""

    endpoint: Annotated[str, Field(min_length=1, max_length=2000)]
    p256dh: Key
    auth: Key


def devices_of(person: int) -> list[Device]:
    """Return a person's devices, newest first."""
    return list(Device.objects.filter(person=person, ended_at__isnull=True).order_by("-made_at", "-pk"))


@transaction.atomic
def subscribe(body: DeviceBody, name: str, *, by: Actor) -> tuple[Device, str]:
    """Register a device; return it with the token for its browser.

    Raises PushUnavailable, Forbidden, and InvalidInput with the wrong field."""
    if by.person is None or by.kind != "user":
        raise Forbidden("Sign in to register a device for notifications.")
    key, service, token = web_push.read_key().public, _service(body), secrets.token_urlsafe(32)
    web_push.find_contact()
    digest = _hash(body.endpoint)
    # The account is locked first, to serialize concurrent requests for one account or device.
    User.objects.select_for_update().get(pk=by.person)
    with connection.cursor() as cursor:
        cursor.execute(_ONE_AT_A_TIME, [digest])
    now = database_now()
    for before in Device.objects.select_for_update().filter(digest=digest, ended_at__isnull=True):
        _end(before, "it was set up again")
    if Device.objects.filter(person=by.person, ended_at__isnull=True).count() >= MAX_DEVICES:
        raise wrong("endpoint", f"would exceed the limit of {MAX_DEVICES} devices", "remove one first")
    row = Device(
        person=by.person,
        name=name,
        service=service,
        address=encrypt(json.dumps([body.endpoint, body.p256dh, body.auth])),
        digest=digest,
        key=key,
        token_hash=_hash(token),
        made_at=now,
    )
    row.seal()
    row.save(force_insert=True)
    _add_to_settings(by.person)
    acted("device", by=by, subject=f"user:{by.name}", after={"name": name, "service": service})
    return row, token


def _service(body: DeviceBody) -> str:
    """Return the host of the push service of an address, if the address may be used. Raises InvalidInput."""
    try:
        parts = http.parse_url(body.endpoint)
        if parts.scheme != "https":
            raise http.AddressRefused("is not an https address")
    except http.AddressRefused as problem:
        raise wrong("endpoint", str(problem), "the address from the browser's push service") from None
    try:
        web_push.SubscriptionKeys.parse(body.p256dh, body.auth)
    except ValueError:
        raise wrong("p256dh", "and auth are not the keys of a subscription", "the values from the browser") from None
    return parts.hostname or ""


def _add_to_settings(person: int) -> None:
    """Add push to each kind that has a medium, unless the person's settings already use push for some kind."""
    row = Preference.objects.select_for_update().filter(pk=person).first()
    if row is not None and not any(Medium.PUSH in media for media in row.ways.values()):
        row.ways = {kind: sorted({*media, Medium.PUSH.value}) if media else media for kind, media in row.ways.items()}
        row.save(update_fields=["ways"])


@transaction.atomic
def remove(device_id: int, *, by: Actor) -> None:
    """Remove one of the caller's own devices. Raises NotFound."""
    rows = Device.objects.select_for_update().filter(pk=device_id, person=by.person or 0, ended_at__isnull=True)
    row = rows.first()
    if row is None:
        raise NotFound("device", device_id)
    _end(row, "it was removed")
    acted("device_end", by=by, subject=f"user:{by.name}", before={"name": row.name, "service": row.service})


def _end(row: Device, why: str) -> None:
    row.ended_at, row.why = database_now(), why
    row.save(update_fields=["ended_at", "why"])


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()


# --- sessions and accounts --------------------------------------------------------------------------------------------


def cookie_name() -> str:
    """Return the name of the cookie with a device's token."""
    return f"durableagents_device_{settings.DURABLEAGENTS.port}"


def token_of(request: HttpRequest) -> str:
    """Return this browser's device token; empty if none."""
    return str(request.COOKIES.get(cookie_name(), ""))[:100]


@receiver(user_logged_out)
def end_on_sign_out(sender: type[User], request: HttpRequest, **_: object) -> None:
    """End all devices of this browser."""
    _end_other(token_of(request), None, "someone signed out there")


@receiver(user_logged_in)
def end_on_sign_in(sender: type[User], request: HttpRequest, user: User, **_: object) -> None:
    """End the devices of this browser that belong to other accounts."""
    _end_other(token_of(request), user.pk, "someone else signed in there")


@transaction.atomic
def _end_other(token: str, person: int | None, why: str) -> None:
    """End the devices of a browser that don't belong to `person`; all of them if it is None."""
    for row in Device.objects.select_for_update().filter(token_hash=_hash(token), ended_at__isnull=True):
        if token and row.person != person:
            _end(row, why)


@transaction.atomic
def end_of_sessions(person: int, request: HttpRequest | None) -> None:
    """End an account's devices. With a request, the device of the browser that sent it is kept."""
    own = None if request is None else _hash(token_of(request))
    for row in Device.objects.select_for_update().filter(person=person, ended_at__isnull=True):
        if bytes(row.token_hash) != own:
            _end(row, "its sessions were ended")


def panel(request: HttpRequest) -> tuple[str, dict[str, Any]]:
    """Return the section about devices on the account's page."""
    assert request.user.pk is not None
    own, token = devices_of(request.user.pk), token_of(request)
    here = next((row.pk for row in own if token and bytes(row.token_hash) == _hash(token)), 0)
    values: dict[str, Any] = {"devices": own, "device_here": here}
    try:
        web_push.find_contact()
        values["push_key"] = web_push.read_key().public
    except web_push.PushUnavailable as error:
        values["no_push"] = error.detail
    return "notifications/devices.html", values


# --- one message ------------------------------------------------------------------------------------------------------


def why_not(row: Device, person: int | None) -> str:
    """Return why a device gets no messages for this person; empty if it does."""
    if row.ended_at is not None:
        return f"the device no longer receives messages: {row.why}"
    if row.person != person:
        return "the device belongs to someone else"
    return "" if row.is_authentic else "the device was not written by this installation"


def send(row: Device, payload: dict[str, str], *, message: UUID) -> Outcome:
    """Send one message to a device. A repetition replaces the first one."""
    try:
        endpoint, p256dh, auth = json.loads(decrypt(row.address))
        keys = web_push.SubscriptionKeys.parse(p256dh, auth)
        authorization = web_push.authorization(endpoint, time.time())
    except (Undecryptable, ValueError, TypeError):
        return Outcome("refused", "the stored address of the device can't be read")
    except web_push.PushUnavailable as error:
        return Outcome("failed", error.detail, is_down=True)
    if row.key != web_push.read_key().public:
        return Outcome("refused", "it was set up under another key of this installation", is_gone=True)
    headers = {
        "Authorization": authorization,
        "Content-Type": "application/octet-stream",
        "Content-Encoding": "aes128gcm",
        "TTL": str(TTL_SECONDS),
        "Urgency": "high",
        "Topic": message.hex,
    }
    if urlsplit(endpoint).scheme != "https":
        return Outcome("refused", "its address is not an https address")
    # Devices show messages with the same tag once, even if the push service ignores the topic and delivers two.
    text = json.dumps({**payload, "tag": message.hex}, ensure_ascii=False)
    return http.post(endpoint, web_push.encrypt(text.encode("utf-8", "replace"), keys), headers)


@transaction.atomic
def record(row: Device, outcome: Outcome) -> None:
    """Update the device after an attempt: it received the message, or its subscription no longer exists."""
    live = Device.objects.select_for_update().filter(pk=row.pk, ended_at__isnull=True).first()
    if live is None:
        return
    if outcome.is_gone:
        _end(live, f"the push service no longer knows the device: {outcome.why}")
    elif outcome.state == "sent":
        live.told_at = database_now()
        live.save(update_fields=["told_at"])
