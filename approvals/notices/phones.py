"""Devices for Web Push. One belongs to its person until it is removed, signed out, used by someone else or forgotten
by the push service; its address appears in no record, log or response."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from urllib.parse import urlsplit
from uuid import UUID

from django.contrib.auth.models import User
from django.db import connection, transaction

from approvals import push
from approvals.notices import chat
from approvals.notices.channels import DeviceBody
from approvals.notices.kinds import Way
from approvals.notices.mail import Outcome
from approvals.notices.sealed import Unreadable, opened, seal
from approvals.outbox import Device, Preference
from approvals.push import BadKeys, Keys, encrypted
from approvals.queues.who import wrong
from ledger.actors import Actor
from ledger.append import acted
from ledger.clock import database_now
from ledger.errors import Forbidden, NotFound

MOST = 10
_ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(hashtextextended(encode(%s::bytea, 'hex'), 151))"
TTL_SECONDS = 4 * 3600  # how long the push service keeps a message for an offline device


def of_person(person: int) -> list[Device]:
    return list(Device.objects.filter(person=person, ended_at__isnull=True).order_by("-made_at", "-pk"))


def here(person: int, token: str) -> Device | None:
    """Return the person's device whose browser keeps this token, or None."""
    rows = Device.objects.filter(person=person, token_hash=_hash(token), ended_at__isnull=True)
    return rows.first() if token else None


@transaction.atomic
def subscribe(body: DeviceBody, name: str, *, by: Actor) -> tuple[Device, str]:
    """Register a device; return it with the token for its browser. Raises PushUnavailable, InvalidInput by the wrong
    field, Forbidden."""
    if by.person is None or by.kind != "user":
        raise Forbidden("Sign in to register a device for notifications.")
    key, service, token = push.own().public, _service(body), secrets.token_urlsafe(32)
    push.contact()
    digest = _hash(body.endpoint)
    # First, to serialize concurrent requests of one account or device.
    User.objects.select_for_update().get(pk=by.person)
    with connection.cursor() as cursor:
        cursor.execute(_ONE_AT_A_TIME, [digest])
    now = database_now()
    for before in Device.objects.select_for_update().filter(digest=digest, ended_at__isnull=True):
        _end(before, "it was set up again")
    if Device.objects.filter(person=by.person, ended_at__isnull=True).count() >= MOST:
        raise wrong("endpoint", f"would be one more than {MOST} devices", "remove one first")
    address = json.dumps([body.endpoint, body.p256dh, body.auth])
    row = Device(
        person=by.person,
        name=name,
        service=service,
        address=seal(address),
        digest=digest,
        key=key,
        token_hash=_hash(token),
        made_at=now,
    )
    row.seal()
    row.save(force_insert=True)
    _choose(by.person)
    acted("device", by=by, subject=f"user:{by.name}", after={"name": name, "service": service})
    return row, token


def _service(body: DeviceBody) -> str:
    """Return the host of the push service. Raises InvalidInput."""
    try:
        parts = chat.checked(body.endpoint)
        if parts.scheme != "https":
            raise chat.Forbidden("is no https address")
    except chat.Forbidden as problem:
        raise wrong("endpoint", str(problem), "what the browser's push service gives") from None
    try:
        Keys.read(body.p256dh, body.auth)
    except BadKeys:
        raise wrong("p256dh", "and auth are no keys of a subscription", "as the browser gives them") from None
    return parts.hostname or ""


def _choose(person: int) -> None:
    """Add push to all kinds in settings made before the person had devices."""
    wish = Preference.objects.select_for_update().filter(pk=person).first()
    if wish is None or not isinstance(wish.ways, dict) or any(Way.PUSH in ways for ways in wish.ways.values()):
        return
    wish.ways = {kind: sorted({*ways, Way.PUSH.value}) if ways else ways for kind, ways in wish.ways.items()}
    wish.save(update_fields=["ways"])


@transaction.atomic
def take_away(device_id: int, *, by: Actor) -> None:
    """Remove an own device. Raises NotFound."""
    rows = Device.objects.select_for_update().filter(pk=device_id, person=by.person or 0, ended_at__isnull=True)
    row = rows.first()
    if row is None:
        raise NotFound("device", device_id)
    _end(row, "it was taken away")
    acted("device_end", by=by, subject=f"user:{by.name}", before={"name": row.name, "service": row.service})


@transaction.atomic
def left(token: str, *, now_of: int | None = None) -> None:
    """End devices of this browser after a sign-out, or a sign-in as another account (`now_of`)."""
    if token:
        for row in Device.objects.select_for_update().filter(token_hash=_hash(token), ended_at__isnull=True):
            if row.person != now_of:
                _end(row, "someone signed out there" if now_of is None else "someone else signed in there")


@transaction.atomic
def end_all(person: int, *, but: str = "") -> int:
    """End all of an account's devices except the one with that token; return how many."""
    rows = Device.objects.select_for_update().filter(person=person, ended_at__isnull=True)
    ending = [row for row in rows if bytes(row.token_hash) != _hash(but)]
    for row in ending:
        _end(row, "its sessions were ended")
    return len(ending)


def _end(row: Device, why: str) -> None:
    row.ended_at, row.why = database_now(), why
    row.save(update_fields=["ended_at", "why"])


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()


# --- one message ------------------------------------------------------------------------------------------------------


def why_not(row: Device, person: int | None) -> str:
    """Return why a device gets nothing for this person; empty if it does."""
    if row.ended_at is not None:
        return f"the device is told nothing more: {row.why}"
    if row.person != person:
        return "the device is someone else's"
    return "" if row.is_authentic else "none of our processes wrote the device"


def post(row: Device, payload: dict[str, str], *, message: UUID) -> Outcome:
    """Send one message to a device. A repeat replaces the first."""
    try:
        endpoint, p256dh, auth = json.loads(opened(row.address))
        keys = Keys.read(p256dh, auth)
        authorization = push.authorization(endpoint, time.time())
    except (Unreadable, BadKeys, ValueError, TypeError):
        return Outcome("refused", "what is kept of the device can't be read")
    except push.PushUnavailable as error:
        return Outcome("failed", error.detail, is_down=True)
    if row.key != push.own().public:
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
        return Outcome("refused", "its address is no https address")
    # Shown once even if sent twice: whatever the push service makes of the topic, the device uses the tag.
    told = json.dumps({**payload, "tag": message.hex}, ensure_ascii=False)
    return chat.handed(endpoint, encrypted(told.encode("utf-8", "replace"), keys), headers)


@transaction.atomic
def came(row: Device, outcome: Outcome) -> None:
    """Update the device by a try's outcome: seen, or gone."""
    live = Device.objects.select_for_update().filter(pk=row.pk, ended_at__isnull=True).first()
    if live is None:
        return
    if outcome.is_gone:
        _end(live, f"its push service knows it no more: {outcome.why}")
    elif outcome.state == "sent":
        live.told_at = database_now()
        live.save(update_fields=["told_at"])
