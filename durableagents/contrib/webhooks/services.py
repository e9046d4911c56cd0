"""Creates and changes webhooks, which only administrators may do.

Each act is one transaction with a record, which never contains an address or a secret."""

from __future__ import annotations

import base64
import secrets
from datetime import datetime, timedelta
from typing import Annotated, Any
from uuid import uuid4

from django.db import transaction
from django.db.models import Q
from pydantic import Field

from approvals.queue_models import Queue
from approvals.queues.who import Unchanged, account, as_admin, check_text, wrong
from durableagents.contrib.webhooks.events import EVENTS, KEPT_DAYS, TEST
from durableagents.contrib.webhooks.models import Message, Webhook
from durableagents.outgoing import http
from durableagents.outgoing.encryption import encrypt
from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, InvalidInput, NotFound
from runs.queries.code_here import is_known_agent
from runs.services.bodies import Moment, SteerBody

MAX_WEBHOOKS = 50
MAX_REPLAYED = 10_000
MAX_OVERLAP_HOURS = 7 * 24
SECRET_BYTES = 32
_TO = "set up webhooks"
_FILTERS = ("agent", "tag", "key_prefix")
_CONTENT = (
    "Whether messages contain results, errors and titles, as far as you may read them: null without the permission "
    "to read the payloads of runs, which an administrator doesn't have by itself."
)

Name = Annotated[str, Field(max_length=100)]
Filter = Annotated[str, Field(max_length=200)]
Url = Annotated[str, Field(max_length=2000)]
EventNames = Annotated[list[Annotated[str, Field(max_length=40)]], Field(max_length=20)]


class WebhookBody(SteerBody):
    """A webhook. Empty filters match every run."""

    name: Name = Field(description="Name of the webhook.")
    url: Url = Field(description="Address that messages are posted to: https, without user name and password.")
    events: EventNames = Field(description="Types of messages that it receives.")
    agent: Filter = Field(default="", description="Only runs of this agent, without version; empty: any.")
    tag: Filter = Field(default="", description="Only runs with this tag; empty: any.")
    queue: Filter = Field(default="", description="For messages about approvals: only those of this queue; empty: any.")
    key_prefix: Filter = Field(default="", description="Only runs whose business key begins with this; empty: any.")
    started_by: Filter = Field(default="", description="Only runs that this account started; empty: any account.")
    has_content: bool = Field(default=False, description=_CONTENT)


class WebhookChangeBody(SteerBody):
    """The fields to change; the others are kept."""

    url: Url | None = Field(default=None, description="New address.")
    events: EventNames | None = Field(default=None, description="New list of types.")
    agent: Filter | None = Field(default=None, description="New agent; empty: any.")
    tag: Filter | None = Field(default=None, description="New tag; empty: any.")
    queue: Filter | None = Field(default=None, description="New queue; empty: any.")
    key_prefix: Filter | None = Field(default=None, description="New beginning of the business key; empty: any.")
    started_by: Filter | None = Field(default=None, description="New account; empty: anybody.")
    has_content: bool | None = Field(default=None, description=_CONTENT)


class SecretBody(SteerBody):
    """A request to replace the secret."""

    overlap_hours: Annotated[int, Field(ge=0, le=MAX_OVERLAP_HOURS)] = Field(
        default=24, description="Hours for which messages are signed with the old secret as well."
    )


class ReplayBody(SteerBody):
    """The messages to send again: one by its number, or all messages about events since a time."""

    message: int | None = Field(default=None, ge=1, lt=2**62, description="Number of the message.")
    since: Moment | None = Field(default=None, description="Time of the first event.")
    only_failed: bool = Field(default=False, description="Leave out messages that were already sent.")


class WrongState(DurableAgentsError):
    """The webhook's state doesn't allow this."""

    status, code, title = 409, "illegal-state", "The webhook's state does not allow this"


def create(body: WebhookBody, *, by: Actor) -> tuple[Webhook, str]:
    """Create a webhook; return it with its secret, which is shown once.

    Raises InvalidInput, Forbidden, JustificationRequired."""
    as_admin(by, _TO)
    check_text("name", body.name)
    # Done before any lock is taken, because it resolves the host name over the network.
    address, secret_text = http.store_address(body.url, field="url")
    secret = new_secret()
    with transaction.atomic():
        by, why, now = as_admin(by, _TO), justified("webhook", body.justification), database_now()
        known = Webhook.objects.exclude(state=Webhook.State.ENDED)
        if known.count() >= MAX_WEBHOOKS:
            raise wrong("name", f"would exceed the limit of {MAX_WEBHOOKS} webhooks", "end one first")
        if known.filter(name=body.name).exists():
            raise wrong("name", "is taken", "another name")
        row = Webhook(
            name=body.name, address=address, shown=secret_text, secret=encrypt(secret), made_at=now, creator=by.person
        )
        _fill(row, body.model_dump(exclude={"name", "url", "justification"}), by)
        return _record_act("webhook", row, {}, by=by, why=why, now=now), secret


def change(webhook_id: int, body: WebhookChangeBody, *, by: Actor) -> Webhook:
    """Change a webhook. Raises the errors of `create`, and NotFound, WrongState, Unchanged."""
    as_admin(by, _TO)
    given = body.model_dump(exclude={"justification", "url"}, exclude_none=True)
    address = None if body.url is None else http.store_address(body.url, field="url")
    with transaction.atomic():
        by, why = as_admin(by, _TO), justified("webhook_change", body.justification)
        row = _locked(webhook_id)
        before = webhook_values(row)
        if address is not None:
            row.address, row.shown = address
        _fill(row, given, by)
        if address is None and webhook_values(row) == before and row.is_authentic:
            raise Unchanged("events", "name a field to change")
        return _record_act("webhook_change", row, before, by=by, why=why)


@transaction.atomic
def rotate(webhook_id: int, body: SecretBody, *, by: Actor) -> tuple[Webhook, str]:
    """Replace the secret; return the new one, which is shown once.

    Raises NotFound, WrongState, Forbidden, JustificationRequired."""
    by, why = as_admin(by, _TO), justified("webhook_secret", body.justification)
    row, secret, now = _locked(webhook_id), new_secret(), database_now()
    before = webhook_values(row)
    row.previous_secret, row.previous_until = row.secret, now + timedelta(hours=body.overlap_hours)
    row.secret = encrypt(secret)
    return _record_act("webhook_secret", row, before, by=by, why=why, now=now), secret


@transaction.atomic
def pause(webhook_id: int, *, by: Actor, justification: str) -> Webhook:
    """Stop sending messages; new ones are kept. Raises NotFound, WrongState, Forbidden, JustificationRequired."""
    by, why = as_admin(by, _TO), justified("webhook_pause", justification)
    row = _locked(webhook_id)
    if row.state != Webhook.State.ACTIVE:
        raise WrongState(f"The webhook is already {row.state}.")
    before = webhook_values(row)
    row.state, row.why = Webhook.State.PAUSED, why[:500]
    return _record_act("webhook_pause", row, before, by=by, why=why)


@transaction.atomic
def resume(webhook_id: int, *, by: Actor, justification: str) -> Webhook:
    """Continue sending, beginning with the messages that were kept.

    Raises NotFound, WrongState, Forbidden, JustificationRequired."""
    by, why = as_admin(by, _TO), justified("webhook_resume", justification)
    row = _locked(webhook_id)
    if row.state == Webhook.State.ACTIVE:
        raise WrongState("The webhook is already active.")
    before = webhook_values(row)
    row.state, row.why, row.failing_since = Webhook.State.ACTIVE, "", None
    return _record_act("webhook_resume", row, before, by=by, why=why)


@transaction.atomic
def end(webhook_id: int, *, by: Actor, justification: str) -> Webhook:
    """End a webhook permanently, together with its unsent messages.

    Raises NotFound, WrongState, Forbidden, JustificationRequired."""
    by, why = as_admin(by, _TO), justified("webhook_end", justification)
    row = _locked(webhook_id)
    before, now = webhook_values(row), database_now()
    row.state = Webhook.State.ENDED
    drop(row, Message.State.NOT_SENT, "the webhook was ended", now)
    return _record_act("webhook_end", row, before, by=by, why=why, now=now)


@transaction.atomic
def test(webhook_id: int, *, by: Actor) -> Message:
    """Send a test message. Raises NotFound, WrongState, Forbidden."""
    by, row = as_admin(by, _TO), _locked(webhook_id)
    _must_be_active(row)
    now = database_now()
    if row.messages.filter(event=TEST, state__in=Message.OPEN).exists():
        raise WrongState("A test message is already being sent. Wait until its result appears in the log.")
    acted("webhook_test", by=by, subject=f"webhook {row.name}")
    return Message.objects.create(
        webhook=row, message=uuid4(), event=TEST, facts={"by": by.ref}, at=now, due_at=now, state="waiting"
    )


@transaction.atomic
def replay(webhook_id: int, body: ReplayBody, *, by: Actor) -> int:
    """Send messages again with the same ids; return their number.

    Raises InvalidInput, NotFound, WrongState, Forbidden, JustificationRequired."""
    by, why = as_admin(by, _TO), justified("webhook_replay", body.justification)
    if (body.message is None) == (body.since is None):
        problem = "is missing" if body.since is None else "is given together with message"
        errors = [{"field": "since", "problem": problem, "fix": "give either message or since"}]
        raise InvalidInput("Give either `message` or `since`.", errors=errors)
    row = _locked(webhook_id)
    _must_be_active(row)
    now = database_now()
    if body.since is not None and body.since < now - timedelta(days=KEPT_DAYS):
        raise wrong("since", f"is more than {KEPT_DAYS} days ago", f"messages are kept for {KEPT_DAYS} days")
    which = Q(pk=body.message) if body.message is not None else Q(at__gte=body.since)
    if body.only_failed:
        which &= ~Q(state=Message.State.SENT)
    found = row.messages.filter(which).exclude(state__in=Message.OPEN)
    if body.message is not None and not row.messages.filter(which).exists():
        raise NotFound("message", body.message)
    count = found.count()
    if count > MAX_REPLAYED:
        raise wrong("since", f"covers {count} messages", f"at most {MAX_REPLAYED} messages at once: give a later time")
    if body.message is not None and not count:
        raise WrongState("The message has not been sent or given up yet.")
    found.update(state=Message.State.WAITING, due_at=now, attempts=0, note="", ended_at=None)
    since = body.since.isoformat() if body.since else ""
    acted(
        "webhook_replay",
        by=by,
        subject=f"webhook {row.name}",
        justification=why,
        after={"message": body.message, "since": since, "only_failed": body.only_failed, "messages": count},
    )
    return count


# --- shared -----------------------------------------------------------------------------------------------------------


def new_secret() -> str:
    """Return a new secret in the format of Standard Webhooks."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def webhook_values(row: Webhook) -> dict[str, Any]:
    """Return the webhook's values for an act's record."""
    names = ("name", "events", *_FILTERS, "queue", "started_by", "has_content", "state")
    return {"url": row.shown, **{name: getattr(row, name) for name in names}}


def stop(row: Webhook, state: Webhook.State, why: str) -> None:
    """Pause or disable a locked webhook because its endpoint fails."""
    row.state, row.why, row.changed_at = state, why, database_now()
    row.seal()
    row.save()


def drop(row: Webhook, state: Message.State, note: str, now: datetime) -> None:
    """Set the state of all unsent messages of a locked webhook, which ends them."""
    row.messages.filter(state__in=Message.OPEN).update(state=state, note=note, ended_at=now)


def locked(webhook_id: int, *, skips: bool = False) -> Webhook | None:
    """Lock and return a webhook; None if it doesn't exist or (with `skips`) another process has locked it.

    The lock allows triggers to insert rows that refer to the webhook."""
    found = Webhook.objects.select_for_update(no_key=True, skip_locked=skips)
    return found.filter(pk=webhook_id).first()


def _locked(webhook_id: int) -> Webhook:
    row = locked(webhook_id)
    if row is None:
        raise NotFound("webhook", webhook_id)
    if row.state == Webhook.State.ENDED:
        raise WrongState("The webhook has ended and can't be used again. Create another one.")
    return row


def _must_be_active(row: Webhook) -> None:
    if row.state != Webhook.State.ACTIVE:
        raise WrongState(f"The webhook is {row.state}. Resume it first.")


def _fill(row: Webhook, given: dict[str, Any], by: Actor) -> None:
    """Set the given fields of a webhook. Raises InvalidInput."""
    for name in _FILTERS:
        if text := given.get(name, ""):
            check_text(name, text, 200)
    if "@" in given.get("agent", ""):
        raise wrong("agent", "names a version", "name the agent without its version")
    if (agent := given.get("agent", "")) and agent != row.agent and not is_known_agent(agent):
        raise wrong("agent", "is unknown: no registered agent and no run has this name", "an agent's name, or none")
    if (queue := given.get("queue", "")) and not Queue.objects.filter(name=queue).exists():
        raise wrong("queue", "does not exist", "a queue's name, or none")
    if "started_by" in given:
        name = given.pop("started_by")
        row.started_by = account("started_by", name).pk if name else None
    if "events" in given:
        given["events"] = _events(given["events"])
    if given.get("has_content"):
        row.creator = by.person
    for name, value in given.items():
        setattr(row, name, value)
    if row.has_content and row.creator is None:
        raise wrong("has_content", "needs an account whose rights limit the content", "create it in the console or API")


def _events(names: list[str]) -> list[str]:
    if stray := sorted(set(names) - set(EVENTS)):
        raise wrong("events", f"names {stray[0]}, which is unknown", f"some of {', '.join(EVENTS)}")
    if not names:
        raise wrong("events", "is empty", f"some of {', '.join(EVENTS)}")
    return [name for name in EVENTS if name in names]


def _record_act(
    action: str, row: Webhook, before: dict[str, Any], *, by: Actor, why: str, now: datetime | None = None
) -> Webhook:
    row.set_by, row.changed_at = by.ref, now or database_now()
    row.seal()
    row.save()
    acted(action, by=by, subject=f"webhook {row.name}", justification=why, before=before, after=webhook_values(row))
    return row
