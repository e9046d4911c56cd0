"""Permission to control a run.
Operators may do anything. Approvers of queues where the run waited, and the integrator who started it, may pause,
resume and cancel it. The role in charge of the budget queue may raise budgets. This module also finds a person's own
actions in a run, which bar them from deciding (four-eyes principle)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection

from ledger.actors import Actor
from ledger.errors import Forbidden
from ledger.web.roles import APPROVER, AUDITOR, EVERY, INTEGRATOR, OPERATOR, is_role, ordered
from runs import features
from runs.journal.asked.queues import NOBODY, QUEUES
from runs.models import Run, Wait

STOPPING = ("pause", "resume", "cancel")
SETTLING = ("retry", "reconcile")
BUDGET = "budget"
MODELS = "models"
FORKING = ("fork", "start_again")
INJECT = "inject"
REQUEUE = "requeue"
# Roles that may stop at least some runs. Which ones depends on the run.
STOPPERS = tuple(role for role in EVERY if role != AUDITOR)
# Roles that may be in charge of the budget queue. The installation chooses one.
RAISERS = (OPERATOR, APPROVER)
_ASKING = (Wait.Kind.APPROVAL, Wait.Kind.INPUT)


@dataclass(frozen=True, slots=True)
class SteeringAuthority:
    """The facts that decide who may control a run.
    These are the roles in charge of the queues where it waits or waited, its creator, and the names of the queues and
    roles that it asked."""

    waited_at: frozenset[str] = frozenset()
    creator: int | None = None
    names: frozenset[str] = frozenset()

    def role(self, action: str, held: Iterable[str], person: int | None) -> str | None:
        """Return the role under which a person with these roles may take this action on the run; None if they may not.
        Pure."""
        held = frozenset(held)
        if OPERATOR in held:
            return OPERATOR
        if action == BUDGET:
            role = raises_budgets()
            return role if role in held else None
        if action not in STOPPING:
            return None
        if INTEGRATOR in held and person is not None and person == self.creator:
            return INTEGRATOR
        return next(iter(ordered(held & self.waited_at & in_charge())), None)

    def allowed(self, held: Iterable[str], person: int | None) -> frozenset[str]:
        held = frozenset(held)
        every = (*STOPPING, *SETTLING, *FORKING, BUDGET, MODELS, INJECT, REQUEUE)
        return frozenset(action for action in every if self.role(action, held, person))

    def refusal(self, action: str, held: Iterable[str]) -> Forbidden:
        """Return the error that explains why the action is forbidden."""
        if action == BUDGET:
            queue = settings.DURABLEAGENTS.budget_queue if raises_budgets() else ""
            others = f", or the role in charge of the queue {queue}," if queue else ""
            return Forbidden(f"Only an operator{others} may set a run's budget.")
        if action not in STOPPING:
            what = _IN_WORDS.get(action, action)
            return Forbidden(f"Only an operator may {what} a run.")
        own = sorted(queue for queue, role in QUEUES.items() if role in set(held))
        reasons = [f"this run has never waited at your queue ({', '.join(own)})"] if own else []
        reasons += ["you didn't start this run"] if INTEGRATOR in held else []
        why = f" And {' and '.join(reasons)}." if reasons else ""
        others = "an approver at whose queue it waits or has waited, or the integrator who started it"
        return Forbidden(f"Only an operator, {others}, may {action} a run.{why}")


# Actions whose names don't read well in a sentence.
_IN_WORDS = {
    MODELS: "choose the models of",
    "start_again": "start again from the input of",
    "priority": "set the priority of",
    INJECT: "hand anything to",
}


def asked_of(detail: Any, also: Sequence[str] | None = None) -> list[str]:
    """Return the queue or role that a wait asks, followed by the queues to which it was escalated.
    Return nothing for a damaged detail."""
    fields = detail if isinstance(detail, dict) else {}
    first = next((each for name in ("queue", "of") if isinstance(each := fields.get(name), str) and each), "")
    return [each for each in (first, *(also or ())) if each]


def put_to(wait: Wait) -> list[str]:
    """Return the queues or roles that a wait asks. Escalations are included only if signed rows confirm them."""
    went = _went({wait.run_id} if wait.also else ())
    return asked_of(wait.detail, [to for to in wait.also or () if to in went[wait.run_id]])


def in_charge() -> frozenset[str]:
    return frozenset(filter(None, QUEUES.values()))


def raises_budgets() -> str | None:
    """Return the role in charge of the budget queue, which may raise budgets like operators.
    None if nobody is."""
    return QUEUES.get(settings.DURABLEAGENTS.budget_queue) or None


def standings(runs: Iterable[Run]) -> dict[UUID, SteeringAuthority]:
    """Return who may control each of these runs, using one query."""
    runs = list(runs)
    fields: dict[UUID, set[str]] = {run.pk: set() for run in runs}
    waits = Wait.objects.filter(run_id__in=list(fields), kind__in=_ASKING)
    rows = list(waits.values_list("run_id", "detail__queue", "detail__of", "also").distinct())
    went = _went({run_id for run_id, *_, also in rows if also})
    for run_id, queue, of, also in rows:
        fields[run_id] |= {*asked_of({"queue": queue, "of": of}, [to for to in also or () if to in went[run_id]])}
    in_charge_of = {name: QUEUES.get(name, name) for names in fields.values() for name in names}
    return {
        run.pk: SteeringAuthority(
            frozenset(map(in_charge_of.__getitem__, fields[run.pk])), run.creator, frozenset(fields[run.pk])
        )
        for run in runs
    }


def _went(run_ids: Collection[UUID]) -> Mapping[UUID, Collection[str]]:
    """Return the queues to which questions of these runs were escalated, as confirmed by signed rows."""
    queues = features.only(lambda each: each.queues) if run_ids else None
    return dict.fromkeys(run_ids, ()) if queues is None else queues.escalated(run_ids)


def steering_authority(run: Run) -> SteeringAuthority:
    return standings([run])[run.pk]


def standing_for(run: Run, held: Iterable[str]) -> SteeringAuthority:
    """Return who may control this run. The query is skipped if these roles don't depend on queues."""
    held = frozenset(held)
    return (
        SteeringAuthority(creator=run.creator)
        if OPERATOR in held or not held & in_charge()
        else steering_authority(run)
    )


def role_to(action: str, run: Run, *, held: Iterable[str], person: int | None) -> str:
    """Return the role under which a person with these roles may take this action. Raises Forbidden with the reason."""
    held = frozenset(held)
    steering = steering_authority(run)
    role = steering.role(action, held, person)
    if role is None:
        raise steering.refusal(action, held)
    return role


def check(action: str, run: Run, by: Actor) -> None:
    """Check under the run's lock that the actor's role allows the action.
    Raises Forbidden. The system is always allowed, because it only acts on children of a run on which a person was
    allowed to act."""
    if by.kind == "system":
        return
    steering = steering_authority(run)
    role = steering.role(action, [by.role], by.person)
    queues = [settings.DURABLEAGENTS.budget_queue] if action == BUDGET else steering.names
    what = "sets a run's budget" if action == BUDGET else f"may {action} a run that waits or has waited at it"
    if role is None:
        if action in (BUDGET, *STOPPING) and is_nobodys(queues):
            must_be_in_charge(by.role, queues, what)  # raises an error that names the queue with the unauthentic row
        raise steering.refusal(action, [by.role])
    is_own = role == INTEGRATOR and by.person is not None and by.person == run.creator
    if role != OPERATOR and not is_own:
        must_be_in_charge(role, queues, what)


def is_nobodys(names: Iterable[str]) -> bool:
    """Return whether one of these queues had an unauthentic row when it was last read."""
    return any(QUEUES.get(name) == NOBODY for name in names)


def must_be_in_charge(role: str, names: Iterable[str], what: str) -> None:
    """Check that `role` is in charge of one of these queues, or is one of these roles.
    Raises Forbidden. Locks the queues' rows until the transaction ends. An unauthentic row gives no rights."""
    queues = features.only(lambda each: each.queues)
    refused: Forbidden | None = None
    others = set[str]()
    for name in sorted(names):
        try:
            held = None if queues is None else queues.role_of(name)
        except Forbidden as no:
            refused = refused or no
            continue
        others.add(name if held is None else held)
    if role not in others:
        allowed = " or ".join(sorted(each for each in others if is_role(each))) or "an operator"
        raise refused or Forbidden(f"Only {allowed} {what}; you act as {role}.")


# --- four eyes --------------------------------------------------------------------------------------------------------


def own_act(run: Run, person: int | None, name: str) -> str | None:
    """Return a person's action in a run or its related runs that bars them from deciding; None if there is none.
    Stops, budgets, forks, inquiries and rejections are ignored, because they add nothing to a run. A record without an
    account bars every account that has or had the actor's name."""
    if person is not None and run.creator == person:  # Continuations and children have the creator of the first run.
        return _DID["start"].format(_WHERE[0])
    found = min(_hands(run, person, name), default=None)
    if found is None:
        return None
    place, at, action = found
    did = _DID.get(action, action).format(_WHERE[place])
    return did if action == "start" else f"{did} at {at:%Y-%m-%d %H:%M:%S} UTC"


# Places where a person may have been involved, nearest first.
_WHERE = ("this run", "a run related to this one", "a run from which this run was forked")
_DID = {
    "start": "started {}",
    "retry": "retried {}",
    "reconcile": "settled a call of {}",
    "answer": "answered a question of {}",
    "outcome_propose": "settled the outcome of a call of {}",
    "signal": "sent {} a signal",
    "message": "sent {} a message",
    "models": "chose the models of {}",
    "migrate": "moved {} to another version",
    INJECT: "handed something to {}",
}


# All related runs, each with its place in _WHERE. Input comes from parents and predecessors, and back from children, so
# the whole tree is included, and so is the run that a fork originates from, with its tree. Forks of these runs add
# nothing to the runs themselves. All ancestors come first, then the nearest descendants, because the number of related
# runs is unbounded. Each step uses a key or an index for its direction: runs_run_succession, runs_run_children. Damaged
# rows may form a cycle, so each run is included only once.
_NEAREST = 10_000
_WALKED = f"""
    above(id, is_before) AS (
        SELECT %(run)s::uuid, false
        UNION
        SELECT other.id, other.is_before FROM above JOIN runs_run AS r ON r.id = above.id CROSS JOIN LATERAL (
            SELECT r.parent, above.is_before
            UNION ALL SELECT r.first, above.is_before
            UNION ALL SELECT r.forked_from, true
        ) AS other(id, is_before) WHERE other.id IS NOT NULL),
    kin(id, is_before) AS (
        SELECT id, is_before FROM above
        UNION
        SELECT other.id, kin.is_before FROM kin CROSS JOIN LATERAL (
            SELECT h.id FROM runs_run AS h WHERE h.first = kin.id
            UNION ALL SELECT c.id FROM runs_run AS c WHERE c.parent = kin.id) AS other),
    family AS MATERIALIZED (
        SELECT k.id, CASE WHEN bool_and(k.is_before) THEN 2
                          WHEN %(first)s::uuid IN (k.id, min(r.first::text)::uuid) THEN 0 ELSE 1 END AS place
        FROM (SELECT id, is_before FROM kin LIMIT {_NEAREST}) AS k LEFT JOIN runs_run AS r ON r.id = k.id
        GROUP BY k.id)"""
_KNOWN = "family AS (SELECT * FROM unnest(%(ids)s::uuid[], %(places)s::int[]) AS f(id, place))"
# The names by which records know the person (each way of signing in, each former user name), and the nearest and first
# action of each kind. Starting the first run counts as starting all its continuations and children.
_RECORD = """
    WITH RECURSIVE former AS MATERIALIZED (
        SELECT kind || ':' || name AS by FROM unnest(ARRAY['user', 'key']) AS kind, (
            SELECT %(name)s AS name UNION
            SELECT before ->> 'username' FROM ledger_accountrecord
            WHERE subject_person = %(person)s AND before ? 'username') AS names),
    mine AS (SELECT by FROM former WHERE by IS NOT NULL),{family}
    (
        SELECT CASE family.place WHEN 2 THEN 2 ELSE 0 END, r.created_at, 'start', NULL::uuid
        FROM family JOIN runs_run AS r ON r.id = family.id AND r.parent IS NULL AND r.first IS NULL
        WHERE CASE WHEN %(person)s::bigint IS NULL OR r.creator IS NULL THEN r.created_by IN (SELECT by FROM mine)
                   ELSE r.creator = %(person)s END
        ORDER BY family.place LIMIT 1)
    UNION ALL (
        SELECT family.place, o.at, o.action, NULL FROM family JOIN ledger_overriderecord AS o ON o.run_id = family.id
        WHERE o.action <> ALL(%(stopping)s)
        AND (o.person = %(person)s
             OR (o.person IS NULL OR %(person)s::bigint IS NULL) AND o.by IN (SELECT by FROM mine))
        ORDER BY family.place, o.id LIMIT 1)
    UNION ALL (
        SELECT family.place, a.at, a.action, NULL FROM family JOIN ledger_actrecord AS a ON a.run_id = family.id
        WHERE a.action <> ALL(%(talking)s)
        AND (a.person = %(person)s
             OR (a.person IS NULL OR %(person)s::bigint IS NULL) AND a.by IN (SELECT by FROM mine))
        ORDER BY family.place, a.id LIMIT 1)"""
_FIRST_ASKED = _RECORD.format(family=_WALKED) + " UNION ALL SELECT place, NULL, NULL, id FROM family"
_ASKED_AGAIN = _RECORD.format(family=f" {_KNOWN}")


# Actions that add nothing to the run.
TALKING = ("inquiry", "inquiry_answer", "inquiry_withdraw", "delegate", "delegate_end", "upstream_ask")


def _hands(run: Run, person: int | None, name: str) -> list[tuple[int, datetime, str]]:
    """Return where, when and how a person was involved. The related runs are cached in the run object."""
    given: dict[str, Any] = {
        "name": name,
        "person": person,
        "run": run.pk,
        "first": run.first or run.pk,
        "stopping": [*STOPPING, *FORKING, BUDGET, REQUEUE],
        "talking": ["start", *TALKING],
    }
    known: list[tuple[UUID, int]] | None = run.__dict__.get(_FAMILY)
    if known is not None:
        given |= {"ids": [id_ for id_, _ in known], "places": [place for _, place in known]}
    with connection.cursor() as cursor:
        cursor.execute(_FIRST_ASKED if known is None else _ASKED_AGAIN, given)
        rows: list[tuple[int, Any, Any, UUID | None]] = cursor.fetchall()
    if known is None:
        run.__dict__[_FAMILY] = [(id_, place) for place, _, _, id_ in rows if id_ is not None]
    return [(place, at, action) for place, at, action, id_ in rows if id_ is None]


_FAMILY = "_family"  # attribute of a Run object
