"""Name and end deputies, each in one transaction with the record of the act.

A member names their own deputy, an administrator names anybody's (which may need a second person, like other changes of
queues). Administrators, the principal and the deputy may end it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from approvals.queue_models import Deputy, Queue
from approvals.queues.who import PERMISSION, account, as_admin, can_look, check_text, wrong
from durableagents.contrib.calendars.services import DeputyBody
from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.change_control import is_guarded, two_person
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, NotFound
from ledger.web.roles import roles

MAX_PERIOD = timedelta(days=366)
MAX_DEPUTIES = 20  # limit per principal of current and future deputies


class DeputyOver(DurableAgentsError):
    """The deputyship is already over."""

    status, code, title = 409, "illegal-state", "The deputyship is over"


def find(deputy_id: int) -> Deputy:
    """Return a deputy. Raises NotFound."""
    found = Deputy.objects.filter(pk=deputy_id).first()
    if found is None:
        raise NotFound("deputy", deputy_id)
    return found


def name_deputy(body: DeputyBody, *, by: Actor) -> Deputy:
    """Name a deputy: your own or, as an administrator, anybody's.

    Raises InvalidInput (naming the wrong field), Forbidden, JustificationRequired; and Proposed if changes of queues
    need two people and the deputy is for another person.
    """
    own = own_account(body.principal, by)
    return (
        name_deputy_for_other(body, by=by)
        if own is None or needs_second_person(by)
        else _name_own_deputy(body, own, by)
    )


@two_person("queues", needs=PERMISSION, moving=frozenset({"starts_at"}))
@transaction.atomic
def name_deputy_for_other(body: DeputyBody, *, by: Actor) -> Deputy:
    """Name another person's deputy, which gives the deputy the right to decide. Raises as `name_deputy` does."""
    return save_deputy(body, None, by=by)


@transaction.atomic
def _name_own_deputy(body: DeputyBody, own: User, by: Actor) -> Deputy:
    return save_deputy(body, own, by=by)


def save_deputy(body: DeputyBody, own: User | None, *, by: Actor) -> Deputy:
    """Save a deputy of the account `own` or, as an administrator, of the named principal.

    Raises the same errors as `name_deputy`, except Proposed.
    """
    by = by if own is not None else as_admin(by)
    why = justified("deputy", body.justification)
    principal = own if own is not None else account("principal", body.principal)
    queue = _queue(body.queue)
    held = _roles_at(principal, queue)
    deputy = _checked_deputy(account("deputy", body.deputy), principal)
    User.objects.select_for_update().get(pk=principal.pk)  # Serializes concurrent requests, so that the limit holds.
    now = database_now()
    starts_at = max(body.starts_at or now, now)
    check_period(starts_at, body.ends_at, now)
    if Deputy.objects.filter(principal=principal.pk, revoked_at__isnull=True, ends_at__gt=now).count() >= MAX_DEPUTIES:
        raise wrong(
            "deputy", f"would exceed the limit of {MAX_DEPUTIES} for {principal.get_username()}", "revoke one first"
        )
    row = Deputy(
        principal=principal.pk,
        deputy=deputy.pk,
        queue=queue,
        starts_at=starts_at,
        ends_at=body.ends_at,
        reason=why,
        set_by=by.ref,
        made_at=now,
    )
    row.seal()
    row.save(force_insert=True)
    more = {"decides_as": held, **requested_start(body.starts_at)}  # shown to the second person
    by, more = (replace(by, role=held[0]), {}) if own is not None else (by, more)
    _record("deputy", row, principal, deputy, by=by, why=why, before={}, after=snapshot(row) | more)
    return row


def own_account(name: str, by: Actor) -> User | None:
    """Return the actor's account if `name` is empty or names that account; else None."""
    own = _active(by.person)
    return own if own is not None and name in ("", own.get_username()) else None


def needs_second_person(by: Actor) -> bool:
    """Return whether even a request about the actor's own deputy needs a second person.

    It does if it is made by API key under the two-person rule.
    """
    return by.kind == "key" and is_guarded("queues")


def requested_start(wanted: datetime | None) -> dict[str, str]:
    """Return the requested start as shown to the second person.

    The actual start depends on when that person approves.
    """
    return {"begins": "at once" if wanted is None else wanted.isoformat()}


@transaction.atomic
def end_deputyship(deputy_id: int, *, by: Actor, justification: str) -> Deputy:
    """End a deputyship now, as principal, deputy or administrator.

    Raises NotFound, DeputyOver, Forbidden, JustificationRequired.
    """
    row = Deputy.objects.select_for_update().filter(pk=deputy_id).first()
    if row is None:
        raise NotFound("deputy", deputy_id)
    is_theirs = by.person is not None and by.person in (row.principal, row.deputy)
    if not is_theirs or _active(by.person) is None:
        by = as_admin(by)
    why, now = justified("deputy_revoke", justification), database_now()
    if row.revoked_at is not None or row.ends_at <= now:
        raise DeputyOver("The deputyship had already been revoked." if row.revoked_at else "It had already expired.")
    before, was_ours = snapshot(row), row.is_authentic
    row.revoked_at, row.revoked_by = now, by.ref
    if was_ours:  # A new code would make a forged row authentic, so a forged row is ended without one.
        row.seal()
    row.save(update_fields=["revoked_at", "revoked_by", "code"])
    people = User.objects.in_bulk([row.principal, row.deputy])
    _record(
        "deputy_revoke",
        row,
        people.get(row.principal),
        people.get(row.deputy),
        by=by,
        why=why,
        before=before,
        after=snapshot(row),
    )
    return row


def snapshot(row: Deputy) -> dict[str, Any]:
    """Return the deputyship's values for the record of an act."""
    return {
        "principal": row.principal,
        "deputy": row.deputy,
        "queue": row.queue.name if row.queue else "",
        "starts_at": row.starts_at.isoformat(),
        "ends_at": row.ends_at.isoformat(),
        "revoked_at": None if row.revoked_at is None else row.revoked_at.isoformat(),
    }


def _record(
    action: str,
    row: Deputy,
    principal: User | None,
    deputy: User | None,
    *,
    by: Actor,
    why: str,
    before: dict[str, Any],
    after: dict[str, Any],
) -> None:
    names = [user.get_username() if user is not None else "someone" for user in (deputy, principal)]
    subject, queue = f"{names[0]} for {names[1]}", row.queue.name if row.queue else ""
    acted(action, by=by, subject=subject, queue=queue, justification=why, before=before, after=after)


def _active(person: int | None) -> User | None:
    return None if person is None else User.objects.filter(pk=person, is_active=True).first()


def _queue(name: str) -> Queue | None:
    if not name:
        return None
    queue = Queue.objects.filter(name=name).exclude(state=Queue.State.REMOVED).first()
    if queue is None:
        raise wrong("queue", "does not exist", "the name of a queue, or leave it out for all queues")
    return queue


def _roles_at(principal: User, queue: Queue | None) -> list[str]:
    """Return the roles by which the principal decides in these queues. Raises InvalidInput if there are none.

    Roles that the principal only represents as a deputy don't count, so a deputy can't name another deputy for them.
    """
    held = roles(principal)
    found = [queue] if queue is not None else Queue.objects.exclude(state=Queue.State.REMOVED).order_by("name")
    found_roles = list(dict.fromkeys(each.role for each in found if each.role in held))
    if not found_roles:
        where = f"in {queue.name}" if queue is not None else "at any queue"
        raise wrong("principal", f"{principal.get_username()} may not decide {where}", "someone who decides there")
    return found_roles


def _checked_deputy(deputy: User, principal: User) -> User:
    if deputy.pk == principal.pk:
        raise wrong("deputy", "is the absent person", "someone else")
    if not can_look(deputy):
        raise wrong("deputy", "has no role that may decide", "someone with another role than auditor")
    check_text("deputy", deputy.get_username(), most=150)
    return deputy


def check_period(starts_at: datetime, ends_at: datetime, now: datetime) -> None:
    """Check the period of a deputyship or absence. Raises InvalidInput."""
    if ends_at <= now:
        raise wrong("ends_at", "has passed", "a future time")
    if ends_at <= starts_at:
        raise wrong("ends_at", "is not after the start", "a later time")
    if ends_at - starts_at > MAX_PERIOD or starts_at - now > MAX_PERIOD:
        raise wrong("ends_at", "is more than a year away", "a time within a year")
