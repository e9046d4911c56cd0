"""Who may steer a run, and what a person has done in it: the one place that says so, for the console, the API, lists
and gates.

Operators steer every run. An approver pauses, resumes and cancels what waits or has waited at a queue of theirs, an
integrator what they started themselves. Retrying and settling stay an operator's: they decide what is sent again. What
a run may use is set by operators, and by whoever is in charge of the budgets' queue, where the installation has one.
"""

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
from runs.journal import wait_hooks
from runs.journal.asked.queues import NOBODY
from runs.models import Run, Wait

STOPPING = ("pause", "resume", "cancel")
SETTLING = ("retry", "reconcile")
BUDGET = "budget"
MODELS = "models"
FORKING = ("fork", "start_again")
INJECT = "inject"
REQUEUE = "requeue"
# Who may stop some run: which ones, the run decides. The door of the faces.
STOPPERS = tuple(role for role in EVERY if role != AUDITOR)
# Who may have the budgets' queue: which of them does, the installation says.
RAISERS = (OPERATOR, APPROVER)
_ASKING = (Wait.Kind.APPROVAL, Wait.Kind.INPUT)


@dataclass(frozen=True, slots=True)
class Standing:
    """What about a run decides who may steer it: the roles at whose queues it waits or has waited, and who started it;
    `names` are whom it asked by name, queues and roles."""

    waited_at: frozenset[str] = frozenset()
    creator: int | None = None
    names: frozenset[str] = frozenset()

    def role(self, action: str, held: Iterable[str], person: int | None) -> str | None:
        """The role under which somebody may do this to the run; None if they may not. Pure."""
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
        """Why not, to be raised."""
        if action == BUDGET:
            queue = settings.DURABLEAGENTS.budget_queue if raises_budgets() else ""
            others = f", or whoever is in charge of the queue {queue}," if queue else ""
            return Forbidden(f"Only an operator{others} may set what a run may use.")
        if action not in STOPPING:
            what = _IN_WORDS.get(action, action)
            return Forbidden(f"Only an operator may {what} a run.")
        own = sorted(queue for queue, role in wait_hooks.queues.items() if role in set(held))
        reasons = [f"this run has never waited at your queue ({', '.join(own)})"] if own else []
        reasons += ["you didn't start this run"] if INTEGRATOR in held else []
        why = f" And {' and '.join(reasons)}." if reasons else ""
        others = "an approver at whose queue it waits or has waited, or the integrator who started it"
        return Forbidden(f"Only an operator, {others}, may {action} a run.{why}")


# Acts whose names say too little.
_IN_WORDS = {
    MODELS: "choose the models of",
    "start_again": "start again from the input of",
    "priority": "set the priority of",
    INJECT: "hand anything to",
}


def asked_of(detail: Any, also: Sequence[str] | None = None) -> list[str]:
    """Whom a wait says that people are asked: a queue or a role by its name first, and the queues that it went to
    because nobody answered. Of a damaged detail nobody."""
    said = detail if isinstance(detail, dict) else {}
    first = next((each for name in ("queue", "of") if isinstance(each := said.get(name), str) and each), "")
    return [each for each in (first, *(also or ())) if each]


def put_to(wait: Wait) -> list[str]:
    """The queues, or the roles, that a wait's question is put to: also those that it went to besides, by the rows that
    our processes have signed. What its row says of that shows nobody anything."""
    went = _went({wait.run_id} if wait.also else ())
    return asked_of(wait.detail, [to for to in wait.also or () if to in went[wait.run_id]])


def in_charge() -> frozenset[str]:
    return frozenset(filter(None, wait_hooks.queues.values()))


def raises_budgets() -> str | None:
    """The role that raises budgets besides the operators: the one in charge of the queue that is asked for it."""
    return wait_hooks.queues.get(settings.DURABLEAGENTS.budget_queue) or None


def standings(runs: Iterable[Run]) -> dict[UUID, Standing]:
    """Who may steer each of these runs, in one query."""
    runs = list(runs)
    asked: dict[UUID, set[str]] = {run.pk: set() for run in runs}
    waits = Wait.objects.filter(run_id__in=list(asked), kind__in=_ASKING)
    rows = list(waits.values_list("run_id", "detail__queue", "detail__of", "also").distinct())
    went = _went({run_id for run_id, *_, also in rows if also})
    for run_id, queue, of, also in rows:
        asked[run_id] |= {*asked_of({"queue": queue, "of": of}, [to for to in also or () if to in went[run_id]])}
    in_charge_of = {name: wait_hooks.queues.get(name, name) for names in asked.values() for name in names}
    return {
        run.pk: Standing(frozenset(map(in_charge_of.__getitem__, asked[run.pk])), run.creator, frozenset(asked[run.pk]))
        for run in runs
    }


def _went(run_ids: Collection[UUID]) -> Mapping[UUID, Collection[str]]:
    """To which queues questions of these runs were put besides. What a wait says of that shows people a question; the
    right to steer a run goes by the rows that our processes have signed."""
    found: dict[UUID, Collection[str]] = dict.fromkeys(run_ids, ())
    for put_further in wait_hooks.went_further if run_ids else ():
        found |= put_further(run_ids)
    return found


def standing(run: Run) -> Standing:
    return standings([run])[run.pk]


def standing_for(run: Run, held: Iterable[str]) -> Standing:
    """Who may steer this run, as far as it counts for somebody with these roles."""
    held = frozenset(held)
    return Standing(creator=run.creator) if OPERATOR in held or not held & in_charge() else standing(run)


def role_to(action: str, run: Run, *, held: Iterable[str], person: int | None) -> str:
    """The role under which somebody with these roles may do this. Raises Forbidden, which says why not."""
    held = frozenset(held)
    stands = standing(run)
    role = stands.role(action, held, person)
    if role is None:
        raise stands.refusal(action, held)
    return role


def check(action: str, run: Run, by: Actor) -> None:
    """The last word, under the run's lock: whether the role that an actor acts under allows it. Raises Forbidden. What
    the system does to a run, it does to the children of one that somebody was allowed to do it to."""
    if by.kind == "system":
        return
    stands = standing(run)
    role = stands.role(action, [by.role], by.person)
    queues = [settings.DURABLEAGENTS.budget_queue] if action == BUDGET else stands.names
    what = "sets what a run may use" if action == BUDGET else f"may {action} a run that waits or has waited there"
    if role is None:
        if action in (BUDGET, *STOPPING) and is_nobodys(queues):
            must_be_in_charge(by.role, queues, what)  # says which queue's row isn't ours
        raise stands.refusal(action, [by.role])
    is_own = role == INTEGRATOR and by.person is not None and by.person == run.creator
    if role != OPERATOR and not is_own:
        must_be_in_charge(role, queues, what)


def is_nobodys(names: Iterable[str]) -> bool:
    """Whether one of these is a queue whose row, when it was read last, none of our processes had written."""
    return any(wait_hooks.queues.get(name) == NOBODY for name in names)


def must_be_in_charge(role: str, names: Iterable[str], what: str) -> None:
    """The last word on what somebody may do for a queue's sake, in the transaction that does it: whether one of these,
    queues or the role itself, makes this role responsible. The rows are held until it ends, and one that nobody here
    wrote gives no right. Raises Forbidden."""
    refused: Forbidden | None = None
    others = set[str]()
    for name in sorted(names):
        try:
            held = [each for holder in wait_hooks.queue_holder if (each := holder(name)) is not None]
        except Forbidden as no:
            refused = refused or no
            continue
        others.update(held or [name])
    if role not in others:
        allowed = " or ".join(sorted(each for each in others if is_role(each))) or "an operator"
        raise refused or Forbidden(f"Only {allowed} {what}; you act as {role}.")


# --- four eyes --------------------------------------------------------------------------------------------------------


def own_act(run: Run, person: int | None, name: str) -> str | None:
    """What somebody did in a run, or in one that belongs with it, that keeps them from deciding its gates, in words;
    None if nothing. Whoever rejected an earlier revision has only decided, and whoever paused, resumed or requeued it,
    set its budget or forked it, has put nothing into it; nor has whoever asked about a case, or was asked.

    A record from before accounts were noted names its actor; it counts against whoever bears, or ever bore, that name.
    """
    if person is not None and run.creator == person:  # of the first of them all, whose it is
        return _DID["start"].format(_WHERE[0])
    found = min(_hands(run, person, name), default=None)
    if found is None:
        return None
    place, at, action = found
    did = _DID.get(action, action).format(_WHERE[place])
    return did if action == "start" else f"{did} at {at:%Y-%m-%d %H:%M:%S} UTC"


# Where somebody had a hand, nearest first.
_WHERE = ("this run", "a run that belongs with this one", "a run of which this work is a fork")
_DID = {
    "start": "started {}",
    "retry": "retried {}",
    "reconcile": "settled a call of {}",
    "answer": "answered a question of {}",
    "outcome_propose": "said what became of a call of {}",
    "signal": "sent {} a signal",
    "message": "sent {} a message",
    "models": "chose the models of {}",
    "migrate": "moved {} to another version",
    INJECT: "handed something to {}",
}


# All that belong together, each with its place in _WHERE. What a run's parents and those that it goes on from were told
# went into it, and what its children were told comes back: so a whole tree does. And what a fork goes on from, with
# whatever belongs with that; what was begun again as a fork of one of them puts nothing into them. First those above,
# however many; then those below, of a family without an end the nearest. Each step goes by a key or by an index of its
# direction: runs_run_succession, runs_run_children. Rows that were damaged may go in a circle, so each is taken once.
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
# How records name somebody or have named them (by each way of signing in, under each name that the account has had),
# and the nearest and first thing of each kind that they did there. Whoever started the run that all began with has
# started all that go on from it, or were begun by it.
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


# Who asks about a case or a call, answers, or hands a case over has put nothing into the run.
TALKING = ("inquiry", "inquiry_answer", "inquiry_withdraw", "delegate", "delegate_end", "upstream_ask")


def _hands(run: Run, person: int | None, name: str) -> list[tuple[int, datetime, str]]:
    """Where somebody had a hand, when, and in what. Which runs belong with this one is looked for once for its row as
    it was read, for a case is judged for several people."""
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


_FAMILY = "_family"  # of a Run object
