"""Queues, limits and deputies for pages and the API, in few statements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q
from django.db.models.functions import Now
from pydantic import Field

from approvals.policy import Sum
from approvals.queue_models import Deputy, Limit, Queue
from approvals.queues import acts
from ledger.append import mark_of
from ledger.web.cursors import Order
from ledger.web.seeing.viewers import viewer
from ledger.web.shapes import Shape
from ledger.web.tally import Counted, Tally
from runs import seen
from runs.engine.errors import DefinitionError
from runs.engine.gating.proof import Threshold, threshold_in

COUNT_TO = 1000
OPEN = Order(
    "approvals_approval", "deadline", is_newest_first=False, only="state = 'open'"
)  # the same order as the inbox
MAX_SHOWN = 200  # limit for members of a role, and for deputies


class MemberRow(Shape):
    """A person who decides at the queue."""

    name: str = Field(description="User name.")
    person: int = Field(description="Id of the account.")
    limit: str = Field(description="Description of the limit; empty: none.")
    limit_of: str = Field(description="person or role; empty: no limit.")


@dataclass(frozen=True, slots=True)
class ShownDeputy:
    """A current or future deputy. `queue` is empty if it applies to all of the principal's queues."""

    row: Deputy
    name: str
    principal: str
    queue: str
    is_now: bool
    is_authentic: bool


@dataclass(frozen=True)
class QueueRow:
    """A queue with its details."""

    on: Queue
    open: int = 0
    members: Sequence[MemberRow] = ()
    more_members: bool = False
    role_limit: Limit | None = None
    limits: Sequence[Limit] = ()
    names: dict[int, str] = field(default_factory=dict)
    deputies: Sequence[ShownDeputy] = ()

    @property
    def is_open(self) -> bool:
        return self.on.state == Queue.State.OPEN

    @property
    def is_authentic(self) -> bool:
        return self.on.is_authentic

    @cached_property
    def threshold(self) -> Threshold | None:
        """Return the proof required to approve; None if it is unreadable, which means forged."""
        with suppress(DefinitionError):
            return threshold_in(self.on.proof)
        return None

    @cached_property
    def marks(self) -> dict[str, str]:
        marks = {part: mark_of(acts.part_of(self.on, part)) for part in acts.PARTS}
        return marks | {"limits": acts.limits_mark(self.on, self.limits)}

    @property
    def reasons(self) -> list[str]:
        return reasons_in(self.on.reasons)

    @property
    def proof_minutes(self) -> str:
        within = 0 if self.threshold is None else self.threshold.proof.within
        return str(within // 60) if within else ""

    @property
    def proof_words(self) -> str:
        """Return the required proof as text; empty without a threshold."""
        return asked_in_words(self.threshold)

    @property
    def role_most(self) -> str:
        return in_words(self.role_limit)

    @property
    def own_limits(self) -> list[tuple[str, str, Limit]]:
        """Return persons' limits as name, text and row.

        People without the role are included, since a deputy's own limit applies too.
        """
        own = [each for each in self.limits if each.person is not None]
        return [(self.names.get(each.person or 0, f"account {each.person}"), in_words(each), each) for each in own]


def reasons_in(stored: Any) -> list[str]:
    return [each for each in stored if isinstance(each, str)] if isinstance(stored, list) else []


def in_words(limit: Limit | None) -> str:
    """Return a limit as text; empty for none."""
    if limit is None:
        return ""
    if not limit.is_authentic:
        return "not authentic: blocks approval"
    return "without a limit" if limit.most is None else str(Sum(limit.most, limit.currency))


def asked_in_words(threshold: Threshold | None) -> str:
    """Return a threshold as text: `above $1,000: …`."""
    if threshold is None:
        return ""
    proof, texts = threshold.proof, []
    if proof.within:
        count = proof.within // 60
        what = "second factor" if proof.factor else "password or second factor"
        texts.append(f"{what} within the last {count} minute{'' if count == 1 else 's'}")
    if typed := [name for name, is_asked in (("the amount", proof.amount), ("the target", proof.target)) if is_asked]:
        texts.append(f"{' and '.join(typed)} typed again")
    where = []
    if threshold.above is not None:
        where.append(f"above {Sum(threshold.above, threshold.currency)}")
    if threshold.risk:
        where.append(f"from {threshold.risk} risk on")
    return f"{' or '.join(where) or 'for each call'}: {', and '.join(texts)}"


def to_count(queues: Iterable[Queue]) -> dict[str, Counted | None]:
    """Return counts of the visible open questions by queue, as SQL for a statement that also reads other counts."""
    own = seen.arm(viewer())
    return {f"open {queue.name}": OPEN.counted([{"queue": queue.name, **own}], to=COUNT_TO) for queue in queues}


def all_of_them() -> list[Queue]:
    return list(Queue.objects.exclude(state=Queue.State.REMOVED).order_by("name"))


def overview(tally: Tally) -> list[QueueRow]:
    """Return every queue with its deciders and open questions."""
    queues = all_of_them()
    counted = tally.read(to_count(queues))
    members = _members([queue.role for queue in queues])
    limits = _limits(queues)
    return [
        QueueRow(
            queue,
            counted[f"open {queue.name}"],
            [MemberRow(name=name, person=pk, limit="", limit_of="") for name, pk in members.get(queue.role, [])],
            role_limit=limits.get((queue.pk, None)),
        )
        for queue in queues
    ]


def load_queue(queue: Queue, tally: Tally) -> QueueRow:
    """Return a queue in full, read with five statements."""
    limits = _limits([queue])
    members = _members([queue.role]).get(queue.role, [])
    role_limit = limits.get((queue.pk, None))
    people = []
    for name, pk in members[:MAX_SHOWN]:
        own = limits.get((queue.pk, pk))
        whose = "person" if own is not None else "role" if role_limit is not None else ""
        people.append(MemberRow(name=name, person=pk, limit=in_words(own or role_limit), limit_of=whose))
    deputies, names = _deputies(queue, limits)
    return QueueRow(
        queue,
        tally.read(to_count([queue]))[f"open {queue.name}"],
        people,
        len(members) > MAX_SHOWN,
        role_limit,
        list(limits.values()),
        names,
        deputies,
    )


def deputies_of(person: int | None) -> list[ShownDeputy]:
    """Return the current and future deputyships of a principal or a deputy."""
    if person is None:
        return []
    return _deputy_rows(Deputy.objects.filter(Q(principal=person) | Q(deputy=person)))


def _limits(queues: Iterable[Queue]) -> dict[tuple[int, int | None], Limit]:
    rows = Limit.objects.filter(queue__in=list(queues), ended_at__isnull=True)
    return {(row.queue_id, row.person): row for row in rows}


def _members(roles: Iterable[str]) -> dict[str, list[tuple[str, int]]]:
    found: dict[str, list[tuple[str, int]]] = {}
    rows = User.objects.filter(groups__name__in=set(roles), is_active=True)
    for role, name, pk in rows.order_by("username").values_list("groups__name", "username", "pk")[: MAX_SHOWN * 10]:
        found.setdefault(role, []).append((name, pk))
    return found


def _deputies(queue: Queue, limits: dict[tuple[int, int | None], Limit]) -> tuple[list[ShownDeputy], dict[int, str]]:
    holders = User.objects.filter(groups__name=queue.role).values("pk")
    rows = Deputy.objects.filter(Q(queue=queue) | Q(queue__isnull=True, principal__in=holders))
    people = [person for _, person in limits if person is not None]
    names = dict(User.objects.filter(pk__in=people).values_list("pk", "username")) if people else {}
    return _deputy_rows(rows), names


def _deputy_rows(rows: Any) -> list[ShownDeputy]:
    now = datetime.now(UTC)  # For display only: decisions use the database's clock.
    rows = rows.filter(revoked_at__isnull=True, ends_at__gt=Now()).select_related("queue").order_by("starts_at", "id")
    found = list(rows[:MAX_SHOWN])
    people = {pk for row in found for pk in (row.principal, row.deputy)}
    names = dict(User.objects.filter(pk__in=people).values_list("pk", "username")) if people else {}
    return [
        ShownDeputy(
            row,
            names.get(row.deputy, f"account {row.deputy}"),
            names.get(row.principal, f"account {row.principal}"),
            row.queue.name if row.queue else "",
            row.starts_at <= now,
            row.is_authentic,
        )
        for row in found
    ]
