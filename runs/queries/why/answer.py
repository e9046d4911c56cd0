"""The answer: one cause, its evidence, who must act, and the available actions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from ledger import events as e
from ledger.models import Event
from ledger.web.roles import OPERATOR
from runs import features
from runs.fleet.agent_versions import is_only_drained
from runs.journal.asked.queues import QUEUES
from runs.models import ENDED, State, Wait
from runs.queries.display import detail_text, look, name_of
from runs.queries.halts import Halted, halt_of, is_put_aside
from runs.queries.why.acts import Found, Offer, how_many_more, offers_of
from runs.queries.why.seen import Cause, Evidence, Reader, Seen, Who
from runs.queries.why.words import SENTENCES
from runs.services import authority, questions
from runs.services.allowed import why_not
from runs.services.continuation import newest

_MAX_WAITS = 20
NOBODY, SYSTEM, OUTSIDE = Who("nobody"), Who("system"), Who("outside")
OPERATORS = Who("people", (OPERATOR,))
DAMAGED_JOURNAL = "damaged_journal"


@dataclass(frozen=True, slots=True)
class Why:
    """The answer: cause, start, latest end if known, and other problems (`also`)."""

    cause: Cause
    sentence: str
    who: Who
    since: datetime | None
    until: datetime | None
    evidence: tuple[Evidence, ...]
    acts: tuple[Offer, ...]
    also: str = ""


def why(seen: Seen, reader: Reader) -> Why:
    found = _found(seen)
    halt = None if seen.run.state in ENDED or found.cause == "halted" else halt_of(seen.head)
    also = [f"No running worker has {seen.run.graph_id}."] if seen.is_unserved else []
    also += [f"It is {str(halt).removesuffix('.')}. Its deadlines stand still."] if halt is not None else []
    also += [said for remark in (how_many_more, *features.every(lambda each: each.remarks)) if (said := remark(seen))]
    more = [one for offer in features.every(lambda each: each.offers) for one in offer(seen, reader)]
    return Why(
        found.cause,
        found.sentence,
        found.who,
        found.since,
        None if halt is not None else found.until,
        found.evidence,
        (*offers_of(seen, reader), *more),
        " ".join(also),
    )


def _found(seen: Seen) -> Found:
    if (found := by_halt(seen)) is not None:
        return found
    cause = cause_of(seen)
    since, until = _times(cause, seen)
    evidence = tuple(_evidence(cause, seen))
    return Found(cause, SENTENCES[cause](seen), who_must(cause, seen), since, until, evidence)


def _times(cause: str, seen: Seen) -> tuple[datetime | None, datetime | None]:
    run, wait = seen.run, seen.wait
    if run.state in ENDED:
        return run.ended_at, None
    if cause == "not_due":
        return run.created_at, run.ready_at
    if cause in ("queued", "no_worker", "no_version", "draining", "no_key"):
        return run.ready_at, None
    if wait is None:
        return run.updated_at, None
    return wait.opened_at, None if detail_text(wait, "on_timeout") == "remind" else wait.deadline


def by_halt(seen: Seen) -> Found | None:
    """Return a halt as the cause; None if none holds the run."""
    if seen.run.state in ENDED:
        return None
    halt = halt_of(seen.head)
    is_ready = seen.run.wants_driving
    # no worker takes it, also before one has deferred it
    return _halted(halt) if is_put_aside(seen.run) or (halt is not None and is_ready) else None


def _halted(halt: Halted | None) -> Found:
    if halt is None:
        return Found("halted", "It was halted a moment ago.", OPERATORS)
    said = f"H{str(halt)[1:].removesuffix('.')}."  # as a sentence
    return Found("halted", said, OPERATORS, since=halt.since)


# --- the cause --------------------------------------------------------------------------------------------------------

_BY_LOOK: Mapping[str, Cause] = {
    "completed": "completed",
    "renewed": "renewed",
    "handed_off": "handed_off",
    "failed": "failed",
    "cancelled": "cancelled",
    "unknown": "unknown_outcome",
    "exceeded": "budget",
    "paused": "paused",
    "pausing": "pausing",
    "cancelling": "cancelling",
    "behind": "behind_key",
    "early": "not_due",
    "queued": "queued",
    "running": "driven",
    "compensating": "undoing",
}
_BY_WAIT: Mapping[str, Cause] = {
    Wait.Kind.APPROVAL: "approval",
    Wait.Kind.INPUT: "question",
    Wait.Kind.WEBHOOK: "callback",
    Wait.Kind.SIGNAL: "signal",
    Wait.Kind.MESSAGE: "message",
    Wait.Kind.CHILD: "child",
    Wait.Kind.POOL: "pool",
    Wait.Kind.RECONCILE: "unknown_outcome",
    Wait.Kind.OPERATOR: "stopped",
    Wait.Kind.BUDGET: "budget",
}


def cause_of(seen: Seen) -> Cause:
    """Return the one cause of a run's status, by its own rows."""
    run, wait = seen.run, seen.wait
    if run.state not in State.values or (seen.head is None and run.state not in ENDED):
        return "damaged"
    if seen.blocked:
        return _blocked(seen)
    seen_as = look(run, seen.head, seen.waits)
    if seen_as in _BY_LOOK:
        return _BY_LOOK[seen_as]
    if wait is None:
        return "damaged"  # a run that waits for nothing: the sweeper stops it for an operator
    if wait.kind == Wait.Kind.OPERATOR and detail_text(wait, "reason") == DAMAGED_JOURNAL:
        return "damaged"
    return _timer(wait) if wait.kind == Wait.Kind.TIMER else _BY_WAIT.get(str(wait.kind), "damaged")


def _blocked(seen: Seen) -> Cause:
    if seen.blocked == seen.missing_key:
        return "no_key"
    if is_only_drained(seen.run, frozenset(seen.drivable or ())):
        return "draining"
    return "no_version" if seen.drivable else "no_worker"


def _timer(wait: Wait) -> Cause:
    if isinstance(wait.detail, dict) and wait.detail.get("retry"):
        return "retry_timer"
    if detail_text(wait, "limit"):
        return "breaker" if detail_text(wait, "why") == "breaker" else "limit"
    return "timer"


# --- who must act -----------------------------------------------------------------------------------------------------

_WHO: Mapping[str, Who] = {
    "completed": NOBODY,
    "renewed": NOBODY,
    "handed_off": NOBODY,
    "cancelled": NOBODY,
    "driven": NOBODY,
    "failed": OPERATORS,
    "damaged": OPERATORS,
    "halted": OPERATORS,
    "unknown_outcome": OPERATORS,
    "stopped": OPERATORS,
    "breaker": OPERATORS,
    "no_worker": OPERATORS,
    "no_version": OPERATORS,
    "draining": OPERATORS,
    "no_key": OPERATORS,
    "paused": OPERATORS,
    "approval": OPERATORS,
    "question": OPERATORS,
    "callback": OUTSIDE,
    "signal": OUTSIDE,
    "message": OUTSIDE,
    "pausing": SYSTEM,
    "cancelling": SYSTEM,
    "undoing": SYSTEM,
    "queued": SYSTEM,
    "not_due": SYSTEM,
    "behind_key": SYSTEM,
    "child": SYSTEM,
    "pool": SYSTEM,
    "limit": SYSTEM,
    "retry_timer": SYSTEM,
    "timer": SYSTEM,
}


def who_must(cause: str, seen: Seen) -> Who:
    """Return who must act before the run moves."""
    wait = seen.wait
    if cause == "approval" and wait is not None:
        queues = authority.put_to(wait)
        named = dict.fromkeys(role for queue in queues if (role := QUEUES.get(queue)))
        return Who("people", (*named,), ", ".join(queues), name_of(wait))
    if cause == "question" and wait is not None:
        roles = questions.roles_for(wait) if isinstance(wait.detail, dict) else (OPERATOR,)
        return Who("people", roles, name=name_of(wait))
    if cause == "failed" and why_not("retry", seen.stand) is not None:
        return NOBODY
    if cause == "budget":
        role = authority.raises_budgets()
        return Who("people", (OPERATOR, role) if role else (OPERATOR,), detail_text(wait, "queue"))
    if cause == "unknown_outcome" and seen.said is not None:
        return replace(OPERATORS, but=seen.said.by)
    return _WHO[cause]


# --- the evidence -----------------------------------------------------------------------------------------------------

# The event that shows the cause, if no wait does.
_EVENTS: Mapping[str, tuple[str, ...]] = {
    "driven": (e.RunClaimed.KIND,),
    "undoing": (e.RunClaimed.KIND, "UndoBegun", "UndoAsked"),
    "paused": (e.RunPaused.KIND,),
    "pausing": (e.PauseRequested.KIND,),
    "cancelling": (e.CancelRequested.KIND,),
}
_OPENS = (e.WaitOpened.KIND, e.ApprovalRequested.KIND)


def _evidence(cause: str, seen: Seen) -> list[Evidence]:
    run = seen.run
    seqs = _opened(seen)
    found = [
        Evidence(
            _wait_words(wait),
            seqs.get((wait.slot, wait.attempt, str(wait.kind), wait.n)),
            wait.pk,
            None,
            wait.opened_at,
            wait.deadline,
        )
        for wait in seen.waits[:_MAX_WAITS]
    ]
    if kinds := _EVENTS.get(cause):
        rows = Event.objects.filter(run_id=run.pk, kind__in=kinds).order_by("-seq").only("seq", "kind", "at")
        found[:0] = [Evidence(row.kind, row.seq, at=row.at) for row in rows[:1]]
    if run.state in ENDED and run.end_seq is not None:
        found.append(Evidence("end", run.end_seq, at=run.ended_at))
    if cause in ("renewed", "handed_off"):
        found.append(Evidence("goes on as", run=newest(run.pk).pk))
    if cause == "behind_key" and seen.ahead is not None:
        found.append(Evidence("ahead of it", run=seen.ahead))
    if not found and seen.head is not None:
        found.append(Evidence("last event", seen.head.seq, at=getattr(seen.head, "last_at", None)))
    if cause == "unknown_outcome" and seen.said is not None:
        found.append(Evidence(f"{seen.said.by} says {seen.said.verdict}", seen.said.seq, at=seen.said.at))
    return found


def _wait_words(wait: Wait) -> str:
    return f"{wait.kind}: {name_of(wait)}"


def _opened(seen: Seen) -> dict[tuple[str, int, str, int], int]:
    """Return the events that opened the waits, by place; damaged ones are left out."""
    slots = [wait.slot for wait in seen.waits[:_MAX_WAITS]]
    if not slots:
        return {}
    rows = Event.objects.filter(run_id=seen.run.pk, slot__in=slots, kind__in=_OPENS).only("seq", "kind", "clear")
    found: dict[tuple[str, int, str, int], int] = {}
    for row in rows.order_by("seq"):
        try:
            event = e.decode(row.clear)
        except (ValueError, KeyError, TypeError):  # reported by `verify`
            continue
        kind = str(getattr(event, "wait", Wait.Kind.APPROVAL))
        found[event.slot or "", event.attempt, kind, getattr(event, "n", 0)] = row.seq
    return found
