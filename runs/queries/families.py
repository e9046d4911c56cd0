"""A run's parent and children, and which of the children need a person."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from django.db.models import BigIntegerField, BinaryField, DateTimeField, F, JSONField, QuerySet
from django.db.models.expressions import RawSQL
from pydantic import Field

from ledger.events import RunReleased
from ledger.models import Head
from ledger.web.shapes import Shape
from runs import features, seen
from runs.fleet.members import FRESH_SECONDS
from runs.models import ENDED, Run, State, Wait
from runs.queries import payloads
from runs.queries.display import URGENCY
from runs.queries.halts import halted
from runs.services import related_runs

# The need of a paused run. For other stopped runs, the need is the kind of their wait.
RESUME = "resume"
_STATES = """(
    SELECT jsonb_object_agg(state, n) FROM (
        SELECT state, count(*) AS n FROM runs_run WHERE parent = ledger_head.run_id GROUP BY state) AS children)"""
# The child of a wait, as its newest continuation, and the first run at or below it that is stopped for a person: a run
# that waits for its child is stopped where the child is. A wait's detail may contain anything, so only ids of this
# run's children count. Damaged rows may form a cycle, so the depth is limited.
_CHILD = """(
    WITH RECURSIVE below AS (
        SELECT id, state, 0 AS level FROM runs_run AS child
        WHERE child.parent = runs_wait.run_id AND child.id = (
            SELECT coalesce(
                (SELECT heir.id FROM runs_run heir WHERE heir.first = named.id ORDER BY turn DESC LIMIT 1), named.id)
            FROM (SELECT CASE
                WHEN runs_wait.kind = 'child'
                 AND runs_wait.detail ->> 'child' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
                THEN (runs_wait.detail ->> 'child')::uuid END AS id) AS named)
        UNION ALL
        SELECT next.id, next.state, below.level + 1 FROM below JOIN runs_run AS next ON next.parent = below.id
        WHERE below.state = 'waiting_event' AND below.level < 8 AND next.ended_at IS NULL
    ), stopped AS (SELECT id, state FROM below WHERE state IN ('waiting_human', 'paused') ORDER BY level, id LIMIT 1)
    SELECT jsonb_build_object(
        'id', top.id, 'state', top.state, 'at', (SELECT id FROM stopped), 'stopped', (SELECT state FROM stopped),
        'kinds', ARRAY(SELECT kind FROM runs_wait AS own
                       WHERE own.run_id = (SELECT id FROM stopped) AND own.resolved_at IS NULL))
    FROM below AS top WHERE top.level = 0)"""


# A run, its parent, and some children, newest first: those stopped for a person, then active ones, then ended ones.
# Only as many ended ones are read as are shown.
_AROUND = """
    SELECT %s::uuid UNION ALL SELECT parent FROM runs_run WHERE id = %s UNION ALL (
        SELECT id FROM (
            (SELECT id, created_at, CASE state WHEN 'waiting_human' THEN 0 WHEN 'paused' THEN 1 ELSE 2 END AS rank
             FROM runs_run WHERE parent = %s AND ended_at IS NULL
             ORDER BY rank, created_at DESC, id DESC LIMIT %s)
            UNION ALL
            (SELECT id, created_at, 3 AS rank FROM runs_run WHERE parent = %s AND ended_at IS NOT NULL
             ORDER BY created_at DESC, id DESC LIMIT %s)
        ) AS children ORDER BY rank, created_at DESC, id DESC LIMIT %s)"""
_RANK = {State.WAITING_HUMAN: 0, State.PAUSED: 1, **dict.fromkeys(ENDED, 3)}


@dataclass(frozen=True, slots=True)
class Around:
    """A run with its parent and children. Each has `begun_again_as`, its newest active fork."""

    run: Run
    parent: Run | None
    children: list[Run]

    @property
    def ids(self) -> list[UUID]:
        return [self.run.id, *(child.id for child in self.children)]


def around(run_id: UUID, *, most: int) -> Around | None:
    """Return a run, its parent and some children, with `row_seq`, in one query; None if there is no such run."""
    found = {
        run.id: run
        for run in Run.objects.annotate(begun_again_as=related_runs.begun_again_as(), row_seq=_row_seq()).filter(
            id__in=RawSQL(_AROUND, [*[run_id] * 3, most, run_id, most, most])
        )
    }
    run = found.pop(run_id, None)
    if run is None:
        return None
    parent = found.pop(run.parent, None) if run.parent is not None else None
    children = sorted(found.values(), key=lambda child: (child.created_at, child.id), reverse=True)
    return Around(run, parent, sorted(children, key=lambda child: _RANK.get(child.state, 2)))


def _row_seq() -> RawSQL:
    return RawSQL(
        "(SELECT h.seq FROM ledger_head h WHERE h.run_id = runs_run.id)", (), output_field=BigIntegerField(null=True)
    )


class ChildRow(Shape):
    """The current state of the child run that a run waits for."""

    id: UUID = Field(description="Id of the child run.")
    state: State = Field(description="State of the child run.")
    need: Literal["approval", "input", "reconcile", "operator", "budget", "resume"] | None = Field(
        description="Action by a person that it needs in order to continue; null if none."
    )
    need_at: UUID | None = Field(
        description="The run that needs the action: the child, or a run that the child waits for."
    )


_TOLD_DETAIL = "(SELECT to_jsonb(t) - 'seen' FROM runs_telling t WHERE t.run_id = ledger_head.run_id)"
_DRIVABLE = f"(SELECT to_jsonb(runs_drivable({FRESH_SECONDS})))"
# The content of the last event, if it released the run.
_RELEASED = (
    f"(SELECT e.clear FROM ledger_event e WHERE e.run_id = ledger_head.run_id AND e.seq = ledger_head.seq "
    f"AND e.kind = '{RunReleased.KIND}')"
)
_LAST_AT = "(SELECT e.at FROM ledger_event e WHERE e.run_id = ledger_head.run_id AND e.seq = ledger_head.seq)"


def heads(run_ids: Collection[UUID]) -> dict[UUID, Head]:
    """Return the heads of `status_heads` with more annotations.
    These are the children by state, progress, the time of the last event (`last_at`), and the facts that features
    add."""
    facts = dict(item for each in features.installed.values() for item in each.run_facts.items())
    found = status_heads(run_ids).annotate(
        children=RawSQL(_STATES, (), output_field=JSONField()),
        told=RawSQL(_TOLD_DETAIL, (), output_field=JSONField()),
        last_at=RawSQL(_LAST_AT, (), output_field=DateTimeField()),
        **{name: RawSQL(statement, (), output_field=JSONField()) for name, statement in facts.items()},
    )
    return {head.run_id: head for head in found}


def status_heads(run_ids: Collection[UUID]) -> QuerySet[Head]:
    """Return heads annotated for a status.
    The annotations are served versions (`drivable`), halt, and the last release (`released`)."""
    return Head.objects.filter(run_id__in=run_ids).annotate(
        drivable=RawSQL(_DRIVABLE, (), output_field=JSONField()),
        halted=halted(),
        released=RawSQL(_RELEASED, (), output_field=BinaryField()),
    )


def states(head: Head | None) -> dict[str, int]:
    """Return the number of children in each state, from a head of `heads`; {} for other heads."""
    counted: dict[str, int] | None = getattr(head, "children", None)
    return dict(counted or {})


def living(head: Head | None) -> int:
    return sum(number for state, number in states(head).items() if state not in ENDED)


def open_waits(run_ids: Iterable[UUID]) -> dict[UUID, list[Wait]]:
    """Return each run's open waits, oldest first, with the children that they wait for (`child_of`).
    Payloads that the viewer may not read are left out."""
    details = RawSQL(_CHILD, (), output_field=JSONField())
    found: dict[UUID, list[Wait]] = {}
    rows = Wait.objects.filter(run_id__in=list(run_ids), resolved_at__isnull=True)
    creators: dict[UUID, int | None] = {}
    for wait in rows.annotate(child=details, creator=F("run__creator")).order_by("opened_at"):
        found.setdefault(wait.run_id, []).append(wait)
        creators[wait.run_id] = wait.creator
    readable = seen.readable(creators)
    for run_id, waits in found.items():
        found[run_id] = [payloads.without_hidden_payload(wait, is_read=run_id in readable) for wait in waits]
    return found


def child_of(wait: Wait) -> ChildRow | None:
    """Return the child of a wait from `open_waits`; None if there is none, or the row doesn't name one."""
    found: dict[str, Any] | None = getattr(wait, "child", None)
    if not found:
        return None
    need = _need(found["stopped"], found["kinds"]) or None
    return ChildRow.of(None, id=found["id"], state=found["state"], need=need, need_at=found["at"] or None)


def _need(stopped: str | None, kinds: list[str]) -> str:
    """Return the most urgent need; "resume" for a run that is paused for a reason other than its budget."""
    if stopped == State.PAUSED:
        return Wait.Kind.BUDGET.value if Wait.Kind.BUDGET in kinds else RESUME
    return next((kind.value for kind in URGENCY if kind in kinds), "") if stopped else ""
