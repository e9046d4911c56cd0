"""Letting a run go on and handing it something, in one transaction: the fact of what was handed with its own override
record, then the act that lets it go on with its.

What the run would make of it is found out before its lock is taken, and holds only while its journal stands where it
stood: whoever hands something says which state they saw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from django.db import transaction

from ledger import events as e
from ledger.actors import Actor
from ledger.append import justified
from ledger.errors import DurableAgentsError, InvalidInput
from ledger.models import Event
from runs.models import Run
from runs.services import authority, lifecycle
from runs.services.command import Act
from runs.services.injecting.bodies import ContextBody, Seen
from runs.services.injecting.looking import ACTION, Look, look, must_stand_still

_MOST_TOLD = 20
_GO_ON: Mapping[str, Callable[..., Run]] = {"resume": lifecycle.resume, "retry": lifecycle.retry}


class Moved(DurableAgentsError):
    """The run is not in the state any more that somebody looked at."""

    status, code, title = 409, "state-moved", "The run has moved on"

    def __init__(self, run_id: UUID, seen: Seen, seq: int) -> None:
        at_seen = Event.objects.filter(run_id=run_id, seq=seen.seq).values_list("hash", flat=True).first()
        if at_seen is None or bytes(at_seen).hex() != seen.head:
            what = f"event {seen.seq} with that hash is none of its journal"
            moved: list[dict[str, Any]] = []
        else:
            rows = Event.objects.filter(run_id=run_id, seq__gt=seen.seq).order_by("seq").values("seq", "kind", "at")
            moved = [row | {"at": row["at"].isoformat()} for row in rows[:_MOST_TOLD]]
            told = ", ".join(f"{row['kind']} (event {row['seq']})" for row in moved)
            what = f"since then came {told}" if told else "what you looked with stood otherwise"
        super().__init__(
            f"Run {run_id} was looked at as of event {seen.seq}, and its journal ends at event {seq}: {what}. Nothing "
            "was done: look again.",
            seq=seq,
            moved=moved,
        )


def go_on(
    action: str, run_id: UUID, context: ContextBody, *, by: Actor, justification: str, seen_before: Look | None = None
) -> Run:
    """Resume or retry (`action`) a run that stands as `context` saw it, and hand it what that says. Whoever is in a
    transaction of their own looks before it (`look_first`, given as `seen_before`), for that takes long. Nothing is
    done where either is refused. Raises Moved, and what `look_first` and the act raise."""
    may_hand(by)
    why = justified(action, justification)
    seen = seen_before or look_first(action, run_id, context, by=by, justification=why)
    with transaction.atomic():
        _hand(run_id, seen, context.seen, by=by, justification=why)
        return _GO_ON[action](run_id, by=by, justification=why)


def look_first(action: str, run_id: UUID, context: ContextBody, *, by: Actor, justification: str) -> Look:
    """What has to be known of a run before it is handed something; it is done again for that, which may take as long as
    two turns in `aside`. Raises Forbidden, JustificationRequired, InvalidInput, and what `look` raises."""
    may_hand(by)
    justified(action, justification)
    if context.patch is None and context.message is None:
        problem = {"field": "context", "problem": "hands nothing over", "fix": "give `patch`, `message` or both"}
        raise InvalidInput("The context hands nothing over.", errors=[problem])
    return look(run_id, patch=context.patch, message=context.message)


def may_hand(by: Actor) -> None:
    """Raises Forbidden for whoever may not."""
    if authority.Standing().role(ACTION, [by.role], by.person) is None:
        raise authority.Standing().refusal(ACTION, [by.role])


def _hand(run_id: UUID, found: Look, seen: Seen, *, by: Actor, justification: str) -> None:
    """The fact and its record, under the run's lock."""
    act = Act(ACTION, run_id, by=by, justification=justification)
    now = act.head.seq, bytes(act.head.chain).hex()
    if now != (seen.seq, seen.head) or now != (found.seq, found.head):
        raise Moved(run_id, seen, act.head.seq)
    must_stand_still(act.run, act.head)
    stands, told = found.stands, dict(found.made.told) if found.made is not None else {}
    if found.message:
        told["message"] = found.message
    event = e.ContextInjected(
        by=act.by.ref,
        role=act.by.role,
        visit=stands.visit,
        place=stands.place,
        seen=seen.seq,
        head=seen.head,
        payload=act.payload | told,
    )
    fields = found.made.fields if found.made is not None else []
    act.done(event, after={"context": {"fields": fields, "has_message": bool(found.message)}})
