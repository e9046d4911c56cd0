"""Chats and shared mailboxes for notices, managed by administrators. Each act is one transaction with a record, which
never contains a webhook's address: knowing it is the right to write there."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from django.db import transaction
from pydantic import Field

from approvals.notices import chat
from approvals.notices.kinds import OF_OPERATORS, OF_QUEUES, TEST, tell
from approvals.notices.sealed import seal
from approvals.outbox import Channel
from approvals.queue_models import Queue
from approvals.queues.who import Unchanged, as_admin, check_text, wrong
from ledger.actors import Actor
from ledger.append import acted, is_moved, justified, mark_of
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, Moved, NotFound
from ledger.web.bodies import Strict
from runs.services.bodies import SteerBody

Clock = Annotated[str, Field(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]
Name = Annotated[str, Field(max_length=200)]
KindName = Annotated[str, Field(max_length=40)]
Ways = Annotated[list[Literal["email", "push", "browser"]], Field(max_length=3)]
Key = Annotated[str, Field(min_length=1, max_length=200)]


class PreferenceBody(Strict):
    """Notification preferences. A kind that isn't named follows the default. Quiet hours need both a start and an
    end."""

    ways: Annotated[dict[KindName, Ways], Field(max_length=40)] = Field(
        default={}, description="Media by kind of notification; a kind that is not named follows the default."
    )
    zone: Name = Field(default="UTC", description="IANA time zone of the quiet hours and the digest.")
    quiet_from: Clock | None = Field(default=None, description="Start of the quiet hours, as HH:MM.")
    quiet_until: Clock | None = Field(default=None, description="End of the quiet hours, as HH:MM.")
    digest: Literal["none", "hourly", "daily"] = Field(
        default="none", description="How often notifications are collected in one message."
    )
    digest_at: Clock = Field(default="08:00", description="Time of the daily digest, as HH:MM.")


class DeviceBody(Strict):
    """A subscription as the browser gives it (Push API)."""

    endpoint: Annotated[str, Field(min_length=1, max_length=2000)]
    p256dh: Key
    auth: Key


class ChannelBody(SteerBody):
    """A chat webhook or shared mailbox for a queue's notifications; without a queue, for those to operators."""

    name: Name = Field(description="Name of the channel.")
    queue: Name = Field(default="", description="Queue whose notifications it receives; empty: those to operators.")
    form: Literal["webhook", "mailbox"] = Field(description="Type of the channel.")
    address: Annotated[str, Field(max_length=2000)] = Field(
        description="URL of the webhook, or mail address of the mailbox."
    )
    kinds: Annotated[list[KindName], Field(max_length=40)] = Field(
        description="Kinds of notifications that it receives."
    )


class ChannelChangeBody(SteerBody):
    """Fields to change; the others stay."""

    address: Annotated[str, Field(max_length=2000)] | None = Field(default=None, description="New URL or mail address.")
    kinds: Annotated[list[KindName], Field(max_length=40)] | None = Field(
        default=None, description="New list of kinds of notifications."
    )


MOST = 50
_SET_UP = "say where messages go"
_MAILBOX = re.compile(r"[^\s@<>,;:\"\x00-\x20\x7f-\uffff]{1,64}@[A-Za-z0-9.-]{1,190}")


class ChannelOver(DurableAgentsError):
    """The channel has already ended."""

    status, code, title = 409, "illegal-state", "The channel has ended"

    def __init__(self) -> None:
        super().__init__("The channel has ended and can't be reopened. Add another one.")


def every() -> list[Channel]:
    rows = Channel.objects.filter(ended_at__isnull=True).select_related("queue")
    return sorted(rows, key=lambda one: (one.queue.name if one.queue else "", one.name, one.pk))


def find(channel_id: int) -> Channel:
    """Return a channel. Raises NotFound."""
    found = Channel.objects.select_related("queue").filter(pk=channel_id).first()
    if found is None:
        raise NotFound("channel", channel_id)
    return found


def add(body: ChannelBody, *, by: Actor) -> Channel:
    """Add a channel. Raises InvalidInput by the wrong field, Forbidden, JustificationRequired."""
    as_admin(by, _SET_UP)
    check_text("name", body.name)
    # Before any lock, since it resolves the name on the network.
    address, shown = _address(body.form, body.address)
    with transaction.atomic():
        by, why, queue = as_admin(by, _SET_UP), justified("channel", body.justification), _queue(body.queue)
        if Channel.objects.filter(ended_at__isnull=True).count() >= MOST:
            raise wrong("name", f"would be one more than {MOST} channels", "end one first")
        now = database_now()
        row = Channel(queue=queue, form=body.form, name=body.name, made_at=now, address=address, shown=shown)
        row.kinds = _kinds(queue, body.kinds)
        return _done("channel", row, {}, by=by, why=why, now=now)


def change(channel_id: int, body: ChannelChangeBody, *, seen: str | None = None, by: Actor) -> Channel:
    """Change a channel's address or kinds. Raises as `add` does, and NotFound, ChannelOver; Moved if not as `seen`."""
    as_admin(by, _SET_UP)
    given = None if body.address is None else _address(find(channel_id).form, body.address)
    with transaction.atomic():
        by, why = as_admin(by, _SET_UP), justified("channel_change", body.justification)
        row = _locked(channel_id)
        if is_moved(seen, _shown_of(row)):
            raise Moved(f"The channel {row.name}", row.set_by)
        before = snapshot(row)
        if given is None and body.kinds is None and row.is_authentic:
            raise Unchanged("kinds", "name what is to be changed")
        if given is not None:
            row.address, row.shown = given
        if body.kinds is not None:
            row.kinds = _kinds(row.queue, body.kinds)
        return _done("channel_change", row, before, by=by, why=why, now=database_now())


def _queue(name: str) -> Queue | None:
    if not name:
        return None
    queue = Queue.objects.select_for_update().filter(name=name).exclude(state=Queue.State.REMOVED).first()
    if queue is None:
        raise wrong("queue", "does not exist", "a queue's name, or none for what operators are told")
    return queue


@transaction.atomic
def end(channel_id: int, *, by: Actor, justification: str) -> Channel:
    """End a channel. Raises NotFound, ChannelOver, Forbidden, JustificationRequired."""
    by, why = as_admin(by, _SET_UP), justified("channel_end", justification)
    row = _locked(channel_id)
    before, now = snapshot(row), database_now()
    row.ended_at = now
    return _done("channel_end", row, before, by=by, why=why, now=now)


@transaction.atomic
def ask_for_test(channel_id: int, *, by: Actor) -> Channel:
    """Send a test, at most one a minute. Raises NotFound, ChannelOver, Forbidden."""
    as_admin(by, _SET_UP)
    row = _locked(channel_id)
    tell(TEST.name, f"channel {row.pk}:{database_now():%Y-%m-%dT%H:%M}", about=str(row.pk))
    return row


def snapshot(row: Channel) -> dict[str, Any]:
    """Return its values for an act's record."""
    return {
        "name": row.name,
        "queue": row.queue.name if row.queue else "",
        "form": str(row.form),
        "address": row.shown,
        "kinds": list(row.kinds),
        "ended": row.ended_at is not None,
    }


def seen_of(row: Channel) -> str:
    return mark_of(_shown_of(row))


def _shown_of(row: Channel) -> list[Any]:
    """Return the stored address and kinds: shown addresses of two chats may be equal."""
    return [row.address, row.kinds]


def _locked(channel_id: int) -> Channel:
    row = Channel.objects.select_for_update().filter(pk=channel_id).first()
    if row is None:
        raise NotFound("channel", channel_id)
    if row.ended_at is not None:
        raise ChannelOver
    return row


def _done(action: str, row: Channel, before: dict[str, Any], *, by: Actor, why: str, now: Any) -> Channel:
    row.set_by, row.changed_at = by.ref, now
    row.seal()
    row.save()
    queue = row.queue.name if row.queue else ""
    acted(
        action, by=by, subject=f"channel {row.name}", queue=queue, justification=why, before=before, after=snapshot(row)
    )
    return row


def _address(form: str, address: str) -> tuple[str, str]:
    """Return the address as stored and as shown. Bad or internal ones are refused here, and again when sending."""
    if form == Channel.Form.MAILBOX:
        if not _MAILBOX.fullmatch(address):
            raise wrong("address", "is not an e-mail address", "one such as finance@example.org")
        return address, address
    try:
        chat.places(chat.checked(address))
    except chat.Forbidden as error:
        raise wrong("address", str(error), "the https address that the chat gave you") from None
    except OSError:
        raise wrong("address", "names a host that can't be found", "the https address that the chat gave you") from None
    return seal(address), f"{urlsplit(address).hostname} …{address[-4:]}"


def _kinds(queue: Queue | None, kinds: list[str]) -> list[str]:
    allowed = OF_OPERATORS if queue is None else OF_QUEUES
    if not kinds or set(kinds) - set(allowed):
        stray = sorted(set(kinds) - set(allowed))
        problem = f"names {stray[0][:40]}" if stray else "names nothing that it is told of"
        raise wrong("kinds", problem, f"some of {', '.join(allowed)}")
    return [kind for kind in allowed if kind in kinds]
