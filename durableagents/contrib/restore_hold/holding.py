"""Compares this host's head with the database, and places or lifts the hold accordingly."""

from __future__ import annotations

import logging
from dataclasses import replace
from uuid import UUID, uuid4

from django.db import connection, transaction

from durableagents.contrib.halts import services as halts
from durableagents.contrib.halts.models import Halt, HaltNow
from durableagents.contrib.halts.services import HaltMoved, LiftBody
from durableagents.contrib.restore_hold import database as db
from durableagents.contrib.restore_hold import heads
from durableagents.contrib.restore_hold.comparing import Adopt, Database, Found, Hold, Verdict, compare
from durableagents.contrib.restore_hold.heads import Head, HeadDamaged
from durableagents.contrib.restore_hold.models import Finding, Mark, PastLine
from ledger.actors import Actor
from ledger.clock import database_now
from runs.fleet.procfs import host as this_host

# The reason code of the hold, which is the key of its halt.
REASON = "restored-database"
SYSTEM = Actor(kind="system", name="restore-hold")
REQUESTED, FOUND = "requested", "found"
ALL_FOUND = "Every host that reported a missing head has since found it in this database."
_WHY = "Nothing is sent until an operator has compared it with upstream systems (see unknown outcomes under Halts)."

log = logging.getLogger("durableagents.restore_hold")


def read_head() -> Head | HeadDamaged | None:
    """Return this host's head, the error if its file is damaged, or None if there is no file."""
    try:
        return heads.read()
    except HeadDamaged as damaged:
        return damaged


def settle(*, sends: bool = True) -> Verdict:
    """Compare the head with the database; depending on the result, place the hold, lift it, or follow this database.

    Raises django.db.Error, IntentsUnderWay, and OSError for the head file."""
    with heads.locked():
        head = read_head()
        database = db.read_database(head)
        verdict = compare(head, database, sends=sends)
        match verdict:
            case Found():
                if isinstance(head, Head) and (sends or head.waits_for is not None):
                    heads.write(replace(head, waits_for=None))  # so that an unwritable file causes an early error
                _note_found(head, database)
            case Adopt():
                _adopt(head, database, verdict)
                _note_found(head, database)
            case Hold():
                _hold(head, database, verdict)
    return verdict


def place(why: str, *, by: Actor) -> UUID:
    """Hold the installation at a person's request; return the halt's id. Raises what `settle` raises."""
    with transaction.atomic():
        halt = halts.impose(REASON, why, by=by)
        head = read_head()
        known = head if isinstance(head, Head) else Head(UUID(int=0))
        _record(halt.halt, REQUESTED, known, db.read_database(head))
    return halt.halt


def find_hold() -> HaltNow | None:
    """Return the hold in force; None if there is none."""
    return HaltNow.objects.filter(kind=Halt.Kind.HALT, scope=Halt.Scope.ALL, key=REASON).first()


def findings_of(halt: UUID) -> list[Finding]:
    """Return the last authentic finding of each host under this hold.

    Requests by people are returned too, as entries of their own.
    """
    last: dict[tuple[UUID, bool], Finding] = {}
    for each in Finding.objects.filter(halt=halt).order_by("id"):
        if each.is_authentic:
            last[each.host, each.reason == REQUESTED] = each
    return sorted(last.values(), key=lambda each: each.pk)


def vouch(worker: UUID) -> None:
    """Record that this worker vouches for the database for as long as the worker lives."""
    head = read_head()
    if isinstance(head, Head) and head.waits_for is None:
        with connection.cursor() as cursor:
            cursor.execute(db.FORGET)
            cursor.execute(db.VOUCH, [worker])


def _hold(head: Head | HeadDamaged | None, database: Database, found: Hold) -> None:
    known = head if isinstance(head, Head) else Head(uuid4())
    halt = halts.impose(REASON, f"{found.text} {_WHY}", by=SYSTEM).halt
    if _last_reason(halt, known.host) != found.reason:
        _record(halt, found.reason, known, database)
        log.error("the installation is held (halt %s): %s", halt, found.text)
    if known.waits_for != halt:
        if isinstance(head, HeadDamaged):
            file = heads.path()
            file.replace(file.with_name(f"{file.name}.damaged"))
        heads.write(replace(known, waits_for=halt))


def _adopt(head: Head | HeadDamaged | None, database: Database, adopt: Adopt) -> None:
    """Follow the database, either on its current line of marks or on a new one.

    Hosts that begin a new line for the same reason share it."""
    known = head if isinstance(head, Head) else Head(uuid4())
    with transaction.atomic():
        now = database_now()
        blank = {"line": uuid4(), "number": 0, "at": now, "timeline": database.timeline}
        mark, is_new = Mark.objects.select_for_update().get_or_create(id=1, defaults=blank)
        has_begun = known.waits_for is not None and mark.began_with == known.waits_for
        has_begun = has_begun or (adopt.is_promotion and mark.timeline == database.timeline)
        if adopt.is_new_line and not is_new and not has_begun:
            if adopt.is_promotion:
                PastLine.objects.create(line=mark.line, had=mark.number, accepted=mark.number, at=now)
            elif known.waits_for is not None:
                _end_lines(known.waits_for, mark)
            mark.line, mark.began_with, mark.timeline = uuid4(), known.waits_for, database.timeline
            mark.number, mark.host, mark.host_name, mark.at = mark.number + 1, known.host, this_host(), now
            mark.save()
    if not isinstance(head, Head) or adopt.is_new_line:
        log.warning("this host follows the database from mark %d on: %s", mark.number, adopt.why)
    heads.write(Head(known.host, database.system, database.timeline, database.lsn, mark.line, mark.number))


def _end_lines(halt: UUID, mark: Mark) -> None:
    """Record, for each line, the mark up to which the operator accepted the loss.

    Other hosts whose head isn't newer may then follow."""
    accepted = {mark.line: mark.number}
    for each in findings_of(halt):
        line, number = each.head.get("line"), int(each.head.get("number") or 0)
        if line is not None:
            accepted[UUID(line)] = max(number, accepted.get(UUID(line), 0))
    now = database_now()
    PastLine.objects.bulk_create(
        PastLine(line=line, had=mark.number if line == mark.line else None, accepted=number, halt=halt, at=now)
        for line, number in accepted.items()
    )


def _note_found(head: Head | HeadDamaged | None, database: Database) -> None:
    """Record that this host found its head in the database, unless that is already recorded.

    If no other host still lacks its head, lift the hold."""
    hold = find_hold()
    if hold is None:
        return
    known = head if isinstance(head, Head) else Head(UUID(int=0))
    mine = [each for each in findings_of(hold.halt) if each.reason not in (FOUND, REQUESTED) and _is_ours(each, known)]
    for each in mine:
        _record(hold.halt, FOUND, replace(known, host=each.host), database)
    if not mine or any(each.reason != FOUND for each in findings_of(hold.halt)):
        return
    try:
        halts.lift(hold.halt, LiftBody(justification=ALL_FOUND, revision=None), by=SYSTEM)
    except HaltMoved as moved:
        log.info("the hold was changed by an operator meanwhile: %s", moved.detail)


def _is_ours(finding: Finding, head: Head) -> bool:
    """Return whether this host reported the finding.

    The report may be older than a restore of the head file, which contains the host's id, so host name and path are
    compared too."""
    here = (this_host(), str(heads.path()))
    return finding.host == head.host or (finding.host_name, finding.head.get("file")) == here


def _last_reason(halt: UUID, host: UUID) -> str:
    """Return the reason of the host's last finding under the hold; empty if there is none."""
    return next((each.reason for each in findings_of(halt) if each.host == host and each.reason != REQUESTED), "")


def _record(halt: UUID, reason: str, head: Head, database: Database) -> None:
    row = Finding(halt=halt, host=head.host, host_name=this_host(), reason=reason)
    row.head = {**head.as_json(), "file": str(heads.path())}
    row.database, row.at = database.as_json(), database_now()
    row.seal()
    row.save(force_insert=True)
