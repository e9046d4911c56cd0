"""Having the other side asked once more what became of a call, by its tool's hook. A worker does it: it has the code,
the secrets and the claim; what it is told goes on record, and settles nothing by itself. Same rules as
`runs/services/command.py`."""

from __future__ import annotations

from uuid import UUID

from django.db import transaction

from ledger import events as e
from ledger.actors import Actor
from ledger.append import acted
from ledger.models import Event
from runs.models import Run, Wait
from runs.services.allowed.rules import NO_DOUBT, PARKING
from runs.services.calls import must_be_asked, tool_here
from runs.services.command import Act, journal, wake
from runs.services.settling.proposals import heard

ACTION = "upstream_ask"


@transaction.atomic
def ask(run_id: UUID, wait_id: UUID, *, justification: str, by: Actor) -> Run:
    """Let the other side be asked what became of the call that `wait_id` names, as soon as a worker has the run. Raises
    IllegalTransition, JustificationRequired, Forbidden, NotFound."""
    act = Act("reconcile", run_id, by=by, justification=justification)
    wait = act.run.waits.select_for_update().filter(pk=wait_id, kind=Wait.Kind.RECONCILE).first()
    if wait is None or wait.resolved_at is not None:
        raise act.refuse(NO_DOUBT)
    if act.run.owner is not None:
        raise act.refuse(PARKING)
    must_be_asked(act, wait)
    if not has_hook(act.run, wait):
        raise act.refuse("Its tool declares no hook by which the other side could be asked: look there yourself.")
    known = heard([wait])[wait.pk]
    if known.is_asked:
        raise act.refuse(
            f"It is to be asked since event {known.asked_seq} already, by the next worker that has the run."
        )
    n = Event.objects.filter(run_id=run_id, slot=wait.slot, attempt=wait.attempt, kind=e.UpstreamAsked.KIND).count()
    event = e.UpstreamAsked(slot=wait.slot, attempt=wait.attempt, by=by.ref, role=by.role, n=n, payload=act.payload)
    acted(
        ACTION,
        by=by,
        head=act.head,
        subject=f"{wait.slot} {wait.attempt}",
        justification=act.justification,
        after={"tool": name_of(wait)},
        at=act.now,
    )
    wake(act.run, now=act.now)
    journal(run_id, event, by=by)
    return act.run


def name_of(wait: Wait) -> str:
    """The tool that an unknown outcome is of, as its wait says."""
    return str(wait.detail.get("tool", "")) if isinstance(wait.detail, dict) else ""


def has_hook(run: Run, wait: Wait) -> bool:
    """Whether the other side can be asked; no where nobody here has the agent's code."""
    tool = tool_here(run, name_of(wait))
    return tool is not None and tool.reconcile is not None
