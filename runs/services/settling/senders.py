"""Checks that the sender of a call no longer runs, before the call is made again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from ledger import events as e
from ledger.actors import Actor
from ledger.append import acted
from ledger.models import Event
from runs.engine.tape import Attempt
from runs.fleet.members import is_gone, is_here
from runs.models import KEPT, WITHOUT_PROOF, Process, Run, Wait
from runs.services.allowed import NO_DOUBT, PARKING
from runs.services.calls import must_be_asked, tool_here
from runs.services.command import Act, journal, wake
from runs.services.settling.agreeing import heard

ACTION = "upstream_ask"


@transaction.atomic
def ask(run_id: UUID, wait_id: UUID, *, justification: str, by: Actor) -> Run:
    """Request a query to the upstream system about the call of `wait_id`, to be made as soon as a worker has the run.
    Raises IllegalTransition, JustificationRequired, Forbidden, NotFound."""
    act = Act("reconcile", run_id, by=by, justification=justification)
    wait = act.run.waits.select_for_update().filter(pk=wait_id, kind=Wait.Kind.RECONCILE).first()
    if wait is None or wait.resolved_at is not None:
        raise act.refuse(NO_DOUBT)
    if act.run.owner is not None:
        raise act.refuse(PARKING)
    must_be_asked(act, wait)
    if not has_hook(act.run, wait):
        raise act.refuse("The tool has no `reconcile` hook. Check the upstream system yourself.")
    known = heard([wait])[wait.pk]
    if known.is_asked:
        raise act.refuse(
            f"A query is already pending since event {known.asked_seq}. The next worker with the run will send it."
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
    return str(wait.detail.get("tool", "")) if isinstance(wait.detail, dict) else ""


def has_hook(run: Run, wait: Wait) -> bool:
    """Return whether the upstream system can be queried; False if this process lacks the agent's code."""
    tool = tool_here(run, name_of(wait))
    return tool is not None and tool.reconcile is not None


# Events after which the call may have been sent.
_SENDS = ("ToolInvoked", "ToolRedispatched")
# Tolerance for clock differences and network delays, added to a request's timeout.
SLACK = timedelta(seconds=5)


class MayStillSend(Exception):
    """A sentence on why a call may not be made again yet, and what to do about it."""


def attested(run: Run, slot: str, number: int, tool: str, past: Attempt, *, now: datetime, is_attested: bool) -> str:
    """Return what was confirmed about a call's senders; "" if all have provably ended. Raises MayStillSend.

    No fence covers the time between a worker's check and the first byte that it sends. So before a call is sent again,
    its last sender must have ended, unless it is known to have finished sending, and so must every earlier sender that
    lost the run. `past` is the record of attempt `number` at `slot`, `now` the database's clock. With `is_attested` a
    person confirms that no process of a worker given up without proof still runs.
    """
    sends = Event.objects.filter(run_id=run.pk, slot=slot, attempt=number, kind__in=_SENDS)
    sent_at = dict(sends.order_by("seq").values_list("epoch", "at"))  # time when each claim last sent the call
    if not sent_at:
        return _of_nobody(is_attested)
    lost = Event.objects.filter(run_id=run.pk, kind="WorkerLost", epoch__in=sent_at).values_list("epoch", flat=True)
    unknown, last = past.unknown, max(sent_at)
    doubtful = {last, *lost}
    # A sender that reported an outcome, even an unknown one, has finished sending.
    is_reported = past.accepted is not None or past.result is not None
    if is_reported or (isinstance(unknown, e.ToolOutcomeUnknown) and unknown.is_sender_done):
        doubtful.discard(last)
    found = [_word_on(run, tool, epoch, sent_at[epoch], now=now, is_attested=is_attested) for epoch in sorted(doubtful)]
    return ", ".join(word for word in found if word)


def _word_on(run: Run, tool: str, epoch: int, sent_at: datetime, *, now: datetime, is_attested: bool) -> str:
    """Return what was confirmed about one sender; "" if it has provably ended.
    Raises MayStillSend. For a worker given up without proof, the request's timeout must have passed, and the person
    must confirm that nothing runs.
    """
    worker = next(_claimants(run.pk, epoch), None)
    if worker is None:
        return _of_nobody(is_attested)
    sender = Process.objects.filter(pk=worker).first()
    if sender is None:  # no row: it was removed after a while or, if the call is recent, deleted from outside
        return _of_nobody(is_attested) if now - sent_at < KEPT else ""
    if is_gone(sender) or (sender.ended_at is not None and sender.end_cause not in WITHOUT_PROOF):
        return ""
    who = f"pid {sender.pid} on {sender.host}"
    subject = f"The worker that sent it ({who})"
    if sender.ended_at is None or is_here(sender):
        raise MayStillSend(f"{subject} is still alive and may still be sending: stop it first.")
    known = tool_here(run, tool)
    if known is None:
        raise MayStillSend(f"This process has no tool {tool!r} of {run.graph_id}: deploy that version first.")
    over_at = sent_at + timedelta(seconds=known.timeout) + SLACK
    if now < over_at:
        raise MayStillSend(
            f"{subject} was given up without proof; its request may take until {over_at.isoformat()}: wait."
        )
    if not is_attested:
        raise MayStillSend(
            f"{subject} was given up without proof: {sender.end_proof}. Make sure that none of its processes is still "
            "running, then confirm it: send `sender_is_gone: true` with the verdict, "
            f"or run `manage.py declare_dead --host {sender.host} --reason …`."
        )
    return f"{who} is gone"


def _claimants(run_id: UUID, epoch: int) -> Iterator[str]:
    claims = Event.objects.filter(run_id=run_id, kind="RunClaimed", epoch=epoch).order_by("-seq")
    for clear in claims.values_list("clear", flat=True):
        try:
            claimed = e.decode(clear)
        except (ValueError, KeyError, TypeError):  # `verify` reports it
            continue
        if isinstance(claimed, e.RunClaimed):
            yield claimed.worker


def _of_nobody(is_attested: bool) -> str:
    """Return what a person confirmed about a sender that the damaged record doesn't name. Raises MayStillSend."""
    if not is_attested:
        raise MayStillSend(
            "The record no longer says which worker sent it. Make sure that no worker is still sending it, then "
            "confirm it: send `sender_is_gone: true` with the verdict."
        )
    return "its sender is gone"
