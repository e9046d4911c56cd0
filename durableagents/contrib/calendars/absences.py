"""Record when people are absent, and who stands in for them. The stand-in is a deputy; an absence may have none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import connection, transaction

from approvals.queue_models import Deputy
from approvals.queues.who import PERMISSION, account, as_admin, wrong
from durableagents.contrib.calendars import deputies
from durableagents.contrib.calendars.models import Absence
from durableagents.contrib.calendars.services import AbsenceBody, DeputyBody
from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.change_control import two_person
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, NotFound
from ledger.rows import row_of
from ledger.web.roles import AUDITOR, is_approver, is_role, roles

MAX_ABSENCES = 20  # limit per person of current and future absences


class AbsenceOver(DurableAgentsError):
    """The absence is already over."""

    status, code, title = 409, "illegal-state", "The absence is over"


def find(absence_id: int) -> Absence:
    """Return an absence. Raises NotFound."""
    found = Absence.objects.filter(pk=absence_id).first()
    if found is None:
        raise NotFound("absence", absence_id)
    return found


def record_absence(body: AbsenceBody, *, by: Actor) -> Absence:
    """Record an absence: your own or, as an administrator, anybody's. It may name a deputy for that time.

    Raises InvalidInput (naming the wrong field), Forbidden, JustificationRequired; and Proposed if changes of queues
    need two people and a deputy of another person is named.
    """
    own = deputies.own_account(body.person, by)
    if body.deputy and (own is None or deputies.needs_second_person(by)):
        return record_absence_of_other(body, by=by)
    return _record(body, own, by)


@two_person("queues", needs=PERMISSION, moving=frozenset({"starts_at", "absence.deputy"}))
@transaction.atomic
def record_absence_of_other(body: AbsenceBody, *, by: Actor) -> Absence:
    """Record another person's absence with a deputy, who may then decide. Raises as `record_absence` does."""
    return _record(body, None, by)


@transaction.atomic
def _record(body: AbsenceBody, own: User | None, by: Actor) -> Absence:
    by = by if own is not None else as_admin(by)
    why = justified("absence", body.justification)
    person = own if own is not None else account("person", body.person)
    role = next((role for role in sorted(roles(person)) if is_approver(role)), None)
    if role is None:
        raise wrong("person", f"{person.get_username()} decides in no queue", "someone who decides at a queue")
    User.objects.select_for_update().get(pk=person.pk)  # Serializes the recording of absences, so that the limit holds.
    now = database_now()
    starts_at = max(body.starts_at or now, now)
    deputies.check_period(starts_at, body.ends_at, now)
    if Absence.objects.filter(person=person.pk, ended_at__isnull=True, ends_at__gt=now).count() >= MAX_ABSENCES:
        raise wrong("person", f"has {MAX_ABSENCES} current or future absences, which is the limit", "end one first")
    by, more = (replace(by, role=role), {}) if own is not None else (by, deputies.requested_start(body.starts_at))
    row = Absence(
        person=person.pk,
        starts_at=starts_at,
        ends_at=body.ends_at,
        reason=why,
        set_by=by.ref,
        made_at=now,
        deputy=_save_deputy(body, own, why, by),
    )
    row.seal()
    row.save(force_insert=True)
    subject = f"absence of {person.get_username()}"
    acted("absence", by=by, subject=subject, justification=why, before={}, after=snapshot(row) | more)
    return row


def _save_deputy(body: AbsenceBody, own: User | None, why: str, by: Actor) -> Deputy | None:
    if not body.deputy:
        return None
    named = DeputyBody(
        deputy=body.deputy, principal=body.person, starts_at=body.starts_at, ends_at=body.ends_at, justification=why
    )
    return deputies.save_deputy(named, own, by=by)


@transaction.atomic
def end_absence(absence_id: int, *, by: Actor, justification: str) -> Absence:
    """End an absence now, as the person or an administrator.

    The deputyship of a deputy named with it ends too, with a record of its own. Raises NotFound, AbsenceOver,
    Forbidden, JustificationRequired.
    """
    row = Absence.objects.select_for_update().filter(pk=absence_id).first()
    if row is None:
        raise NotFound("absence", absence_id)
    if by.person != row.person or not User.objects.filter(pk=row.person, is_active=True).exists():
        by = as_admin(by)
    why, now = justified("absence_end", justification), database_now()
    if row.ended_at is not None or row.ends_at <= now:
        raise AbsenceOver("The absence had already been ended." if row.ended_at else "It had already expired.")
    before, was_ours = snapshot(row), row.is_authentic
    stands_in = row.deputy_id if was_ours else None
    row.ended_at, row.ended_by = now, by.ref
    if was_ours:  # A new code would make a forged row authentic, so a forged row is ended without one.
        row.seal()
    row.save(update_fields=["ended_at", "ended_by", "code"])
    # This precedes any record, because a decision also locks the deputy's row first and writes its record after that.
    if stands_in is not None:
        with suppress(deputies.DeputyOver):  # the deputyship was ended before
            deputies.end_deputyship(stands_in, by=by, justification=why)
    user = User.objects.filter(pk=row.person).first()
    name = user.get_username() if user is not None else f"account {row.person}"
    subject = f"absence of {name}"
    acted("absence_end", by=by, subject=subject, justification=why, before=before, after=snapshot(row))
    return row


def snapshot(row: Absence) -> dict[str, object]:
    """Return the absence's values for the record of an act."""
    deputy = {} if row.deputy_id is None else {"deputy": row.deputy_id}
    return deputy | {
        "person": row.person,
        "starts_at": row.starts_at.isoformat(),
        "ends_at": row.ends_at.isoformat(),
        "ended_at": None if row.ended_at is None else row.ended_at.isoformat(),
    }


# SQL value for a queue q: the people who decide there, their current and future absences, and their stand-ins with the
# facts that qualify them.
PRESENCE_SQL = """json_build_object('now', clock_timestamp(),
    'members', (SELECT coalesce(json_agg(u.id), '[]') FROM auth_user u JOIN auth_user_groups m ON m.user_id = u.id
                JOIN auth_group g ON g.id = m.group_id WHERE g.name = q.role AND u.is_active),
    'absences', (SELECT coalesce(json_agg(json_build_object('row', to_json(a)::text, 'name', u.username)
                                          ORDER BY a.starts_at, a.id), '[]')
                 FROM auth_group g JOIN auth_user_groups m ON m.group_id = g.id JOIN auth_user u ON u.id = m.user_id
                 JOIN approvals_absence a ON a.person = u.id AND a.ended_at IS NULL AND a.ends_at > clock_timestamp()
                 WHERE g.name = q.role),
    'deputies', (SELECT coalesce(json_agg(json_build_object('row', to_json(d)::text,
                     'groups', ARRAY(SELECT has.name FROM auth_user_groups b JOIN auth_group has ON has.id = b.group_id
                                     WHERE b.user_id = s.id),
                     'absences', ARRAY(SELECT to_json(a)::text FROM approvals_absence a
                                       WHERE a.person = s.id AND a.ended_at IS NULL
                                       AND a.starts_at <= clock_timestamp() AND a.ends_at > clock_timestamp()))), '[]')
                 FROM auth_group g JOIN auth_user_groups m ON m.group_id = g.id
                 JOIN approvals_deputy d ON d.principal = m.user_id AND d.revoked_at IS NULL
                     AND d.starts_at <= clock_timestamp() AND d.ends_at > clock_timestamp()
                     AND (d.queue_id IS NULL OR d.queue_id = q.id)
                 JOIN auth_user s ON s.id = d.deputy AND s.is_active
                 WHERE g.name = q.role))"""
_DESERTED = f"SELECT {PRESENCE_SQL}::text FROM approvals_queue q WHERE q.name = %s"


@dataclass(frozen=True, slots=True)
class Presence:
    """A queue's deciders and absences.

    Absences come with the person's name. Deputies are those whose account may decide, with their own absences.
    """

    now: datetime
    members: frozenset[int]
    absences: Sequence[tuple[Absence, str]]
    deputies: Sequence[tuple[Deputy, Sequence[Absence]]]

    @property
    def is_deserted(self) -> bool:
        """Return whether every decider is absent and has no stand-in who is present.

        Forged absences and deputies don't count.
        """
        away = {row.person for row, _ in self.absences if row.starts_at <= self.now < row.ends_at and row.is_authentic}
        gone = self.members & away
        return gone == self.members and not any(
            each.is_authentic
            for each, absences in self.deputies
            if each.principal in gone and each.deputy not in gone and not any(row.is_authentic for row in absences)
        )


def read_presence(fields: Mapping[str, Any]) -> Presence:
    """Parse the result of PRESENCE_SQL."""
    return Presence(
        datetime.fromisoformat(fields["now"]),
        frozenset(fields["members"]),
        [(row_of(Absence, each["row"]), each["name"]) for each in fields["absences"]],
        [
            (row_of(Deputy, each["row"]), [row_of(Absence, row) for row in each["absences"]])
            for each in fields["deputies"]
            if any(is_role(name) and name != AUDITOR for name in each["groups"])
        ],
    )


def is_deserted(queue: str) -> bool:
    """Return whether nobody who decides in the queue is present; True for a queue that doesn't exist."""
    with connection.cursor() as cursor:
        cursor.execute(_DESERTED, [queue])
        found = cursor.fetchone()
    return found is None or read_presence(json.loads(found[0])).is_deserted
