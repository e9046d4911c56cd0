"""Administrators' acts on queues and limits.

Each act is one transaction and records the values before and after. The queue's row is the lock for all of this:
decisions lock it too, so a change applies to a decision entirely or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Annotated, Any, Literal

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db import IntegrityError, connection, transaction
from pydantic import Field

from approvals.models import Approval
from approvals.queue_models import Limit, Queue
from approvals.queues.who import PERMISSION, Unchanged, account, as_admin, check_text, wrong
from ledger.actors import Actor
from ledger.append import acted, is_moved, is_said, justified
from ledger.change_control import two_person
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, Moved, NotFound
from ledger.models import ActRecord
from ledger.web.bodies import NoFlag, PlainZero
from ledger.web.roles import is_approver, is_role
from runs import features
from runs.engine.agents import registry
from runs.engine.errors import DefinitionError
from runs.engine.gating.fields import CURRENCY
from runs.engine.gating.proof import Proof, Threshold
from runs.engine.gating.stages import required_by
from runs.models import ENDED, Wait
from runs.services.bodies import SteerBody

Name = Annotated[str, Field(max_length=200)]
Currency = Annotated[str, Field(max_length=10)]
# Up to six decimals; not NaN, infinite or negative.
Most = Annotated[
    Decimal, Field(strict=False, ge=0, le=10**15, decimal_places=6, allow_inf_nan=False), NoFlag, PlainZero
]


class QueueBody(SteerBody):
    """A queue. `role` names the group whose members decide there.

    With `needs_amount`, people with a limit can't approve calls without an amount.
    """

    name: Name = Field(description="Name of the queue.")
    title: Name = Field(description="Title for people.")
    role: Name = Field(description="Role whose holders decide there.")
    currency: Currency = Field(default="USD", description="Currency of its limits, an ISO 4217 code.")
    needs_amount: bool = Field(default=False, description="People with a limit can't approve calls without an amount.")


class QueueChangeBody(SteerBody):
    """Fields to change; the others stay."""

    title: Name | None = Field(default=None, description="New title.")
    role: Name | None = Field(default=None, description="New role whose holders decide there.")
    currency: Currency | None = Field(default=None, description="New currency of its limits, an ISO 4217 code.")
    needs_amount: bool | None = Field(
        default=None, description="Whether people with a limit can't approve calls without an amount."
    )


class LimitBody(SteerBody):
    """The highest amount that a person may approve alone.

    Without a person, the limit applies to every holder of the role who has no limit of their own. Null: unlimited.
    """

    person: Name = Field(
        default="", description="User name; empty: everyone with the role who has no limit of their own."
    )
    most: Most | None = Field(description="Highest amount that they may approve alone; null: unlimited.")
    currency: Currency = Field(default="", description="ISO 4217 code; default: the queue's currency.")


class ProofBody(SteerBody):
    """Proof required to approve calls above an amount (in the queue's currency) or from a risk level.

    With neither, all calls are covered. `minutes` is the maximum age of the person's authentication, by `second_factor`
    or by password; 0: no requirement. With `type_amount` or `type_target`, the person must type these. With none of
    these, no proof is required.
    """

    minutes: Annotated[int, Field(strict=False, ge=0, le=24 * 60), NoFlag] = Field(
        default=0, description="Maximum age of the person's authentication; 0: no requirement."
    )
    second_factor: bool = Field(default=False, description="Require a second factor instead of a password.")
    type_amount: bool = Field(default=False, description="Require the person to type the amount.")
    type_target: bool = Field(default=False, description="Require the person to type the target.")
    above: Most | None = Field(
        default=None, description="Amount above which proof is required, in the queue's currency."
    )
    risk: Literal["", "low", "medium", "high"] = Field(
        default="", description="Risk level from which proof is required."
    )


MAX_REASONS, MAX_REASON_LENGTH = 20, 200


class ReasonsBody(SteerBody):
    """Short reasons offered to approvers, in this order; empty: none."""

    reasons: Annotated[list[Annotated[str, Field(max_length=MAX_REASON_LENGTH)]], Field(max_length=MAX_REASONS)] = (
        Field(description="Texts in the order in which they are offered.")
    )


class LiftBody(SteerBody):
    """Removes the limit of a person or, without a person, of the role."""

    person: Name = Field(default="", description="User name; empty: the limit of the role.")


MAX_QUEUES = 200
NAME = re.compile(r"[a-z][a-z0-9_]{0,62}", re.ASCII)


# Columns that may change; name and creation time may not (durableagents/grants.py).
CHANGES = [
    "title",
    "role",
    "state",
    "currency",
    "needs_amount",
    "proof",
    "reasons",
    "again",
    "set_by",
    "changed_at",
    "code",
]


# For each form of a queue's page: the columns it sets (sums are in its currency), their title, and its act. Only those
# columns are shown with the form.
PARTS = {
    "change": (("title", "role", "currency", "needs_amount"), "The definition of the queue {}", "queue_change"),
    "proof": (("proof", "currency"), "The proof required to approve in {}", "queue_proof"),
    "reasons": (("reasons",), "The list of reasons of {}", "queue_reasons"),
    "again": (("again", "currency"), "The limit on standing approvals in {}", "queue_grants"),
}


class QueueInUse(DurableAgentsError):
    """The queue is still in use by open questions, agents or budgets."""

    status, code, title = 409, "queue-in-use", "The queue is still needed"


class QueueState(DurableAgentsError):
    """The queue is already closed, open or removed."""

    status, code, title = 409, "illegal-state", "Not possible in the queue's state"


def find(name: str) -> Queue:
    """Return a queue that was not removed. Raises NotFound."""
    found = Queue.objects.filter(name=name).exclude(state=Queue.State.REMOVED).first()
    if found is None:
        raise NotFound("queue", name)
    return found


@two_person("queues", needs=PERMISSION)
@transaction.atomic
def create(body: QueueBody, *, by: Actor) -> Queue:
    """Add a queue, or restore a removed one.

    Raises InvalidInput for an invalid field, Forbidden, JustificationRequired.
    """
    by, why = as_admin(by), justified("queue", body.justification)
    twin = Queue.objects.select_for_update().filter(name__iexact=body.name).first()
    if twin is not None and (twin.state != Queue.State.REMOVED or twin.name != body.name):
        raise wrong("name", f"is that of the queue {twin.name} (case is ignored)", "another name")
    if not NAME.fullmatch(body.name):
        raise wrong("name", "may hold only lower-case letters, digits and _", "such as refunds_eu")
    if is_role(body.name) or Group.objects.filter(name=body.name).exists():
        raise wrong("name", "is the name of a role", "another name: requests name a queue or a role")
    check_text("title", body.title)
    _check_role(body.role)
    _check_currency(body.currency)
    if twin is None and Queue.objects.exclude(state=Queue.State.REMOVED).count() >= MAX_QUEUES:
        raise wrong("name", f"would exceed the limit of {MAX_QUEUES} queues", "remove one first")
    now, before = database_now(), {} if twin is None else snapshot(twin)
    queue = twin or Queue(name=body.name, made_at=now)
    queue.title, queue.role, queue.currency = body.title, body.role, body.currency
    queue.needs_amount, queue.state = body.needs_amount, Queue.State.OPEN
    try:
        with transaction.atomic():
            return store("queue", queue, by=by, before=before, why=why)
    except IntegrityError:
        raise wrong("name", "is now the name of another queue", "reload the list of queues") from None


@two_person("queues", needs=PERMISSION)
@transaction.atomic
def change(name: str, body: QueueChangeBody, *, seen: str | None = None, by: Actor) -> Queue:
    """Set title, role, currency or whether amounts are needed. Raises the same as `create`, and Moved, NotFound."""
    by, why = as_admin(by), justified("queue_change", body.justification)
    queue = unmoved(name, "change", seen)
    before = snapshot(queue)
    given = {key: value for key, value in body.model_dump(exclude={"justification"}).items() if value is not None}
    if "title" in given:
        check_text("title", given["title"])
    if "role" in given:
        _check_role(given["role"])
    if "currency" in given:
        _check_currency(given["currency"])
        if given["currency"] != queue.currency and queue.limits.filter(ended_at__isnull=True).exists():
            raise wrong("currency", f"would leave its limits in {queue.currency}", "lift its limits first")
        if given["currency"] != queue.currency and (queue.proof or {}).get("above") is not None:
            fix = "set the amount again above which approving requires proof"
            raise wrong("currency", f"would leave the required proof with an amount in {queue.currency}", fix)
        if given["currency"] != queue.currency and (queue.again or {}).get("most") is not None:
            fix = "set the limits of standing approvals again"
            raise wrong("currency", f"would leave the limit of standing approvals in {queue.currency}", fix)
    for key, value in given.items():
        setattr(queue, key, value)
    if snapshot(queue) == before and queue.is_authentic:
        raise Unchanged("title", "name a field to change")
    return store("queue_change", queue, by=by, before=before, why=why)


@two_person("queues", needs=PERMISSION)
@transaction.atomic
def close(name: str, *, by: Actor, justification: str) -> Queue:
    """Close a queue: nothing is requested or decided there; open questions stay open until their deadline.

    Raises QueueState, NotFound, Forbidden, JustificationRequired.
    """
    return _move("queue_close", name, Queue.State.OPEN, Queue.State.CLOSED, by, justification)


@two_person("queues", needs=PERMISSION)
@transaction.atomic
def open_again(name: str, *, by: Actor, justification: str) -> Queue:
    """Open a closed queue. Raises the same as `close`."""
    return _move("queue_open", name, Queue.State.CLOSED, Queue.State.OPEN, by, justification)


@two_person("queues", needs=PERMISSION)
@transaction.atomic
def remove(name: str, *, by: Actor, justification: str) -> Queue:
    """Remove a queue.

    Its name stays recorded, so that seeding doesn't add it again. Raises QueueInUse if it has open questions, or agents
    or budgets use it; NotFound, Forbidden, JustificationRequired.
    """
    by, why = as_admin(by), justified("queue_remove", justification)
    queue = locked(name)
    if needed := _needed_by(queue):
        raise QueueInUse(f"The queue {queue.name} can't be removed: {needed}.")
    before = snapshot(queue)
    queue.state = Queue.State.REMOVED
    return store("queue_remove", queue, by=by, before=before, why=why)


@two_person("queues", needs=PERMISSION)
@transaction.atomic
def limit(name: str, body: LimitBody, *, seen: str | None = None, by: Actor) -> Queue:
    """Set the limit of a person or the role.

    Raises InvalidInput for an invalid field, Moved, NotFound, Forbidden, JustificationRequired.
    """
    by, why = as_admin(by), justified("queue_limit", body.justification)
    queue = locked(name)
    currency = body.currency or queue.currency
    if currency != queue.currency:
        raise wrong("currency", f"is not that of the queue, {queue.currency}", queue.currency)
    person = account("person", body.person).pk if body.person else None
    last, now = _current_limit(queue, person, body.person, seen), database_now()
    if last is not None:
        _end(last, now, by)
    new = Limit(queue=queue, person=person, most=body.most, currency=currency, set_by=by.ref, set_at=now)
    new.seal()
    new.save(force_insert=True)
    _record("queue_limit", queue, body.person, by=by, why=why, before=_limit_values(last), after=_limit_values(new))
    return queue


@two_person("queues", needs=PERMISSION)
@transaction.atomic
def lift(name: str, body: LiftBody, *, seen: str | None = None, by: Actor) -> Queue:
    """End a limit.

    The person then has the limit of the role, or no limit if the role has none. Raises InvalidInput if there is
    no limit to end, Moved, NotFound, Forbidden, JustificationRequired.
    """
    by, why = as_admin(by), justified("queue_limit_lift", body.justification)
    queue = locked(name)
    # The name may be that of a closed or deleted account.
    person = _number_of(body.person) if body.person else None
    last = _current_limit(queue, person, body.person, seen)
    if last is None:
        raise wrong(
            "person", "has no limit there", "the name of someone who has one, or leave it out for the role's limit"
        )
    before = _limit_values(last)
    _end(last, database_now(), by)
    _record("queue_limit_lift", queue, body.person, by=by, why=why, before=before, after={})
    return queue


@two_person("queues", needs=PERMISSION)
@transaction.atomic
def prove(name: str, body: ProofBody, *, seen: str | None = None, by: Actor) -> Queue:
    """Set the proof required to approve at a queue, and its threshold.

    Raises InvalidInput for an invalid field, Moved, NotFound, Forbidden, JustificationRequired.
    """
    by, why = as_admin(by), justified("queue_proof", body.justification)
    queue = unmoved(name, "proof", seen)
    proof = Proof(body.minutes * 60, body.second_factor, body.type_amount, body.type_target)
    if body.second_factor and not body.minutes:
        raise wrong("minutes", "is 0, so a second factor would never be required", "a number of minutes")
    if not proof.is_any and (body.above is not None or body.risk):
        raise wrong("minutes", "is 0, and nothing is to be typed", "choose the proof that is required")
    before = snapshot(queue)
    threshold = Threshold(proof, body.above, queue.currency if body.above is not None else "", body.risk)
    queue.proof = threshold.as_json() if proof.is_any else None
    if snapshot(queue) == before and queue.is_authentic:
        raise Unchanged("minutes", "correct the required proof")
    return store("queue_proof", queue, by=by, before=before, why=why)


@two_person("queues", needs=PERMISSION)
@transaction.atomic
def offer(name: str, body: ReasonsBody, *, seen: str | None = None, by: Actor) -> Queue:
    """Replace the reasons offered to a queue's deciders.

    Raises InvalidInput for an invalid field, Moved, NotFound, Forbidden, JustificationRequired.
    """
    by, why = as_admin(by), justified("queue_reasons", body.justification)
    queue = unmoved(name, "reasons", seen)
    for each in body.reasons:
        check_text("reasons", each, MAX_REASON_LENGTH)
        if not is_said(each):
            raise wrong("reasons", "contain one that would be refused as a justification", "a few words each")
    if len({each.casefold() for each in body.reasons}) != len(body.reasons):
        raise wrong("reasons", "hold one twice", "each once")
    before = snapshot(queue)
    queue.reasons = list(body.reasons) or None
    if snapshot(queue) == before and queue.is_authentic:
        raise Unchanged("reasons", "correct the reasons")
    return store("queue_reasons", queue, by=by, before=before, why=why)


def _number_of(name: str) -> int:
    found = User.objects.filter(username=name).values_list("pk", flat=True).first()
    number = found if found is not None else int(name) if name.isascii() and name.isdigit() and len(name) < 19 else None
    if number is None:
        raise wrong("person", "is not an account", "the name of an account")
    return number


def snapshot(queue: Queue) -> dict[str, Any]:
    fields = {name: getattr(queue, name) for name in ("name", "title", "role", "currency", "needs_amount")}
    more = {name: value for name in ("proof", "reasons", "again") if (value := getattr(queue, name)) is not None}
    return fields | {"state": str(queue.state)} | more


def part_of(queue: Queue, part: str) -> list[Any]:
    return [getattr(queue, name) for name in PARTS[part][0]]


def unmoved(name: str, part: str, seen: str | None) -> Queue:
    """Lock and return the queue's row, if the part that the form changes is still as `seen`. Raises Moved, NotFound."""
    queue, (_, words, action) = locked(name), PARTS[part]
    if is_moved(seen, part_of(queue, part)):
        raise Moved(words.format(queue.name), _set_by(queue, action))
    return queue


def _set_by(queue: Queue, action: str) -> str:
    acts = ActRecord.objects.filter(queue=queue.name, action__in=(action, "queue_change", "queue"))
    return acts.order_by("-id").values_list("by", flat=True).first() or ""


def locked(name: str) -> Queue:
    """Lock and return the queue's row. Raises NotFound."""
    queue = Queue.objects.select_for_update().filter(name=name).exclude(state=Queue.State.REMOVED).first()
    if queue is None:
        raise NotFound("queue", name)
    return queue


def hold(names: Iterable[str]) -> None:
    """Lock these queues against changes (FOR SHARE) until the transaction ends, sorted by name to avoid deadlocks."""
    with connection.cursor() as cursor:
        for name in sorted(set(names)):
            cursor.execute("SELECT id FROM approvals_queue WHERE name = %s FOR SHARE", [name])


def locked_with(name: str, others: Iterable[str]) -> Queue:
    """Lock and return the queue's row, and share-lock the others. Raises NotFound."""
    others = set(others) - {name}
    hold(each for each in others if each < name)
    queue = locked(name)
    hold(each for each in others if each > name)
    return queue


def _move(action: str, name: str, source: str, target: str, by: Actor, justification: str) -> Queue:
    by, why = as_admin(by), justified(action, justification)
    queue = locked(name)
    if queue.state != source:
        raise QueueState(f"The queue {queue.name} is already {queue.state}.")
    before = snapshot(queue)
    queue.state = target
    return store(action, queue, by=by, before=before, why=why)


def store(action: str, queue: Queue, *, by: Actor, before: dict[str, Any], why: str) -> Queue:
    """Save a change of a queue together with the record of the act."""
    queue.set_by, queue.changed_at = by.ref, database_now()
    queue.seal()
    queue.save(update_fields=None if queue.pk is None else CHANGES)
    subject = f"queue {queue.name}"
    acted(action, by=by, subject=subject, queue=queue.name, justification=why, before=before, after=snapshot(queue))
    return queue


def _record(
    action: str, queue: Queue, person: str, *, by: Actor, why: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    subject = f"limit of {person or queue.role}"
    acted(action, by=by, subject=subject, queue=queue.name, justification=why, before=before, after=after)


def limits_mark(queue: Queue, limits: Iterable[Limit]) -> str:
    """Return a text that identifies what the limit forms show (currency and limits in force), to detect changes."""
    return " ".join([queue.currency, *(str(pk) for pk in sorted(row.pk for row in limits))])


def _current_limit(queue: Queue, person: int | None, name: str, seen: str | None) -> Limit | None:
    """Return the current limit of a person or the role. Raises Moved if it isn't as `seen`."""
    of_them = queue.limits.filter(person=person)
    last = of_them.filter(ended_at__isnull=True).first()
    if seen is None:
        return last
    currency, *known = seen.split(" ")
    was = of_them.filter(pk__in=[int(pk) for pk in known if pk.isascii() and pk.isdigit() and len(pk) < 19]).first()
    words = f"The limit of {name or queue.role}"
    if was != last:
        raise Moved(words, last.set_by if last is not None else was.ended_by if was is not None else "")
    if currency != queue.currency:
        raise Moved(f"The currency of {queue.name}", _set_by(queue, PARTS["change"][2]))
    return last


def _limit_values(row: Limit | None) -> dict[str, Any]:
    if row is None:
        return {}
    return {"person": row.person, "most": None if row.most is None else format(row.most, "f"), "currency": row.currency}


def _end(row: Limit, now: Any, by: Actor) -> None:
    row.ended_at, row.ended_by = now, by.ref
    row.seal()
    row.save(update_fields=["ended_at", "ended_by", "code"])


def _check_role(role: str) -> None:
    if not is_approver(role):
        raise wrong("role", "decides nothing", "a group that is called approver_…, such as approver_refunds")
    if not Group.objects.filter(name=role).exists():
        raise wrong("role", "is not an existing group", "create the group in the administration first")


def _check_currency(currency: str) -> None:
    if not CURRENCY.fullmatch(currency):
        raise wrong("currency", "is not a currency", "three capital letters, such as USD")


def _needed_by(queue: Queue) -> str:
    """Return what still uses the queue, as text; empty if nothing."""
    # The order matters: the second query finds what a concurrent retry reopens.
    of_failed = Approval.objects.filter(queue=queue.name, state="withdrawn", run__state="failed").first()
    if of_failed is not None:
        return f"run {of_failed.run_id} has failed, and would request {of_failed.title!r} there again if it is retried"
    if row := Approval.objects.filter(queue=queue.name, state="open").first():
        return f"{row.title!r} is open there (approval {row.id})"
    staged = Approval.objects.filter(state="open", case_id__isnull=False)
    if later := next((one for one in staged if queue.name in _stages_of(one)), None):
        return f"{later.title!r} is requested there at a later stage (approval {later.id})"
    waits = Wait.objects.filter(kind=Wait.Kind.INPUT, resolved_at__isnull=True, detail__of=queue.name)
    if waits.exclude(run__state__in=ENDED).exists():
        return "a request is open there"
    if settings.DURABLEAGENTS.budget_queue == queue.name:
        return "DURABLEAGENTS_BUDGET_QUEUE names it"
    if use := next(
        (use for ask in features.parts_of_all(lambda each: each.queue_uses) if (use := ask(queue.name))), ""
    ):
        return use
    asking = [
        agent.graph_id
        for agent in registry.agents()
        if any(tool.gate is not None and queue.name in tool.gate.requirement.queues for tool in agent.all_tools())
    ]
    return f"{', '.join(asking)} uses it: close it instead" if asking else ""


def _stages_of(approval: Approval) -> list[str]:
    """Return the queues of the question's case."""
    try:
        return required_by(approval.planned() or {}, approval.queue).queues
    except DefinitionError:
        return [approval.queue]
