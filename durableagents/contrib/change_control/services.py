"""Close a proposed change of rules: a second person applies or refuses it, or its author withdraws it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import uuid_utils
from django.db import transaction

from durableagents.contrib.change_control.models import MAX_AGE, RuleChange
from durableagents.contrib.change_control.trials import attempt, pack, perform, unpack
from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.change_control import SUPERUSER, Guarded, account_of, acts, holds
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, Forbidden, NotFound
from ledger.models import ActRecord
from runs import features

MAX_OPEN = 200
MAX_READ = 1000  # maximum number of open rows, including forged ones


class ChangeOver(DurableAgentsError):
    """The change is no longer open."""

    status, code, title = 409, "change-over", "The change is no longer open"


class ChangedMeanwhile(DurableAgentsError):
    """The change would now have a different result, or its target has changed since the proposal."""

    status, code, title = 409, "changed-meanwhile", "Changed since it was proposed"


class TooManyOpen(DurableAgentsError):
    """The limit of open changes is reached."""

    status, code, title = 409, "too-many-changes", "Too many open changes"


def find(change_id: UUID) -> RuleChange:
    """Return a change, even if it is closed. Raises NotFound."""
    found = RuleChange.objects.filter(pk=change_id).first()
    if found is None:
        raise NotFound("change", change_id)
    return found


def propose(known: Guarded, args: tuple[Any, ...], kwargs: Mapping[str, Any], by: Actor) -> UUID:
    """Store a call and its effect for a second person. Raises Forbidden, TooManyOpen, and the errors of the act."""
    given = pack(known, args, kwargs)
    person = _check_signed_in(by)
    with transaction.atomic():
        _check_holds(by, known, "You")
        effects = attempt(known, unpack(known, given), by)
        still_open = RuleChange.objects.filter(state=RuleChange.State.OPEN).order_by("-made_at")[:MAX_READ]
        if sum(each.is_authentic for each in still_open) >= MAX_OPEN:  # people can't close forged rows
            raise TooManyOpen(f"Limit reached: {MAX_OPEN} changes are open. Apply, refuse or withdraw some first.")
        row = RuleChange(
            id=UUID(str(uuid_utils.uuid7())),
            family=known.family,
            act=known.name,
            given=given,
            told=effects,
            why=_justification_of(given),
            by=by.ref,
            person=person,
            role=by.role,
            auth=by.auth,
            address=by.address,
            made_at=database_now(),
        )
        row.seal()
        row.save(force_insert=True)
        _record("rule_change", row, by=by, why=row.why, before={}, after={"act": row.act, "told": effects})
        for subscriber in features.parts_of_all(lambda each: each.on_change_proposed):
            subscriber(row)
    return row.pk


@transaction.atomic
def apply(change_id: UUID, *, by: Actor, justification: str) -> RuleChange:
    """Apply the change in its author's name; both people are recorded.

    It must still do exactly what was proposed. Raises ChangeOver, ChangedMeanwhile, Forbidden, NotFound,
    JustificationRequired, and the errors of the act itself.
    """
    row, known, why = _as_second("Applying a change", change_id, by, justification)
    kind, _, name = row.by.partition(":")
    author = Actor(kind, name, role=row.role, auth=row.auth, address=row.address, person=row.person)
    _check_holds(author, known, "The person who proposed it")
    last = ActRecord.objects.order_by("-id").values_list("id", flat=True).first() or 0
    effects = perform(known, unpack(known, row.given), author)
    if effects != row.told:
        what = (
            _changed_since(row, effects, last)
            or "Something has changed since it was proposed, so it would now have a different effect"
        )
        raise ChangedMeanwhile(f"{what}. Nothing was done. Refuse it and propose it again.")
    return _end("rule_change_apply", row, RuleChange.State.APPLIED, by=by, why=why)


def _changed_since(row: RuleChange, effects: list[dict[str, Any]], last: int) -> str:
    """Describe later changes of the subject, up to act record `last`; empty if the effect of `row` differs by now."""
    if [_difference(each) for each in effects] != [_difference(each) for each in row.told]:
        return ""
    names = {
        name.replace("_", " ")
        for was, now in zip(row.told, effects, strict=True)
        for name in {*was["before"], *now["before"]}
        if was["before"].get(name) != now["before"].get(name)
    }
    if not names:
        return ""
    queue, subject = effects[0]["queue"], effects[0]["subject"]
    since = ActRecord.objects.filter(queue=queue, subject=subject, at__gt=row.made_at, id__lte=last)
    by = since.order_by("-id").values_list("by", flat=True).first() if queue else None
    who = f", last by {by}" if by else ""
    return (
        f"Its effect is the same, but other values of {subject} have changed since it was proposed"
        f" ({', '.join(sorted(names))}){who}"
    )


def _difference(fields: dict[str, Any]) -> Any:
    before, after = fields["before"], fields["after"]
    changes = {n: (before.get(n), after.get(n)) for n in {*before, *after} if before.get(n) != after.get(n)}
    return fields["action"], fields["subject"], changes


@transaction.atomic
def refuse(change_id: UUID, *, by: Actor, justification: str) -> RuleChange:
    """Refuse the change. Raises ChangeOver, Forbidden, NotFound, JustificationRequired."""
    row, _, why = _as_second("Refusing a change", change_id, by, justification)
    return _end("rule_change_refuse", row, RuleChange.State.REFUSED, by=by, why=why)


@transaction.atomic
def withdraw(change_id: UUID, *, by: Actor, justification: str) -> RuleChange:
    """Withdraw one's own proposal. Raises ChangeOver, Forbidden, NotFound, JustificationRequired."""
    why = justified("Withdrawing a change", justification)
    _check_signed_in(by)
    row = _locked(change_id)
    if by.person != row.person:
        raise Forbidden("Only the person who proposed a change may withdraw it. Refuse it instead.")
    return _end("rule_change_withdraw", row, RuleChange.State.WITHDRAWN, by=by, why=why)


def _as_second(what: str, change_id: UUID, by: Actor, justification: str) -> tuple[RuleChange, Guarded, str]:
    why = justified(what, justification)
    _check_signed_in(by)
    row = _locked(change_id)
    known = acts.get(row.act)
    if known is None:
        raise ChangeOver(
            "This version of the application does not know the operation. Only the person who proposed it can end it: "
            "they may withdraw it."
        )
    if by.person == row.person:
        raise Forbidden("You proposed this change, so another person must apply or refuse it. You may withdraw it.")
    _check_holds(by, known, "You")
    return row, known, why


def _locked(change_id: UUID) -> RuleChange:
    """Lock and return the change if it is open and authentic. Raises ChangeOver, NotFound."""
    row = RuleChange.objects.select_for_update().filter(pk=change_id).first()
    if row is None:
        raise NotFound("change", change_id)
    if not row.is_authentic:
        raise ChangeOver(
            "The change was not recorded by this installation, or was altered outside it, so it can't be applied."
        )
    if row.state != RuleChange.State.OPEN:
        at = f" at {row.ended_at:%Y-%m-%d %H:%M:%S} UTC" if row.ended_at else ""
        raise ChangeOver(f"It was {row.state} by {row.ended_by}{at} already: {row.ended_why}")
    return row


def _check_signed_in(by: Actor) -> int:
    """Return the person's id. Raises Forbidden for API keys, as administrators can make them for other accounts."""
    if by.kind != "user" or by.person is None:
        raise Forbidden("Two people must change this, and each must be signed in. An API key can't.")
    return by.person


def _check_holds(by: Actor, known: Guarded, who: str) -> None:
    """Check the account as it is now, regardless of what a request or row claims. Raises Forbidden."""
    if not holds(account_of(by), known.needs):
        needed = "administrator" if known.needs == SUPERUSER or "." in known.needs else known.needs
        raise Forbidden(f"{who} may not change this: this needs an active account of an {needed}.")


def _justification_of(given: dict[str, Any]) -> str:
    body = given.get("body") or {}
    return str(given.get("justification") or (body.get("justification") if isinstance(body, dict) else "") or "")


def _end(action: str, row: RuleChange, state: RuleChange.State, *, by: Actor, why: str) -> RuleChange:
    now = database_now()
    if state == RuleChange.State.APPLIED and row.is_late(now):
        raise ChangeOver(f"It was proposed more than {MAX_AGE.days} days ago. Refuse it and propose it again.")
    row.state, row.ended_by, row.ended_at, row.ended_why = state, by.ref, now, why
    row.seal()
    row.save(update_fields=["state", "ended_by", "ended_at", "ended_why", "code"])
    _record(action, row, by=by, why=why, before={"state": "open", "proposed_by": row.by}, after={"state": str(state)})
    return row


def _record(
    action: str, row: RuleChange, *, by: Actor, why: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    queue = next((each["queue"] for each in row.told if each["queue"]), "")
    acted(action, by=by, subject=f"change {row.pk}", queue=queue, justification=why, before=before, after=after)
