"""Callbacks: answers to accepted calls, authorized by the token alone.
For locks and transactions see `command`."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.db import transaction
from pydantic import ValidationError

from ledger import events as e
from ledger.actors import OUTSIDE, Actor
from ledger.clock import database_now
from ledger.codec import unpack
from ledger.errors import InvalidInput, NotFound
from ledger.models import Event, Head
from ledger.web import misfit
from runs.engine.canonical import token_digest
from runs.engine.errors import JournalBroken
from runs.engine.journal import Intent
from runs.engine.tape import Tape
from runs.journal.reader import tape_of
from runs.models import ENDED, Run, Wait
from runs.services.calls import close_others, tool_here
from runs.services.command import journal, locked, mark_overdue, resolve, resolved, wake

log = logging.getLogger("runs.services.callbacks")
RECEIVED = {"status": "received"}


def give_up(head: Head, run: Run, wait: Wait, now: datetime, by: Actor) -> None:
    """Give up on a callback at its deadline, which counts from the call's acceptance.
    If the call wasn't accepted, or while a person is asked about it, the wait is only marked as overdue."""
    call = {"slot": wait.slot, "attempt": wait.attempt}
    is_accepted = Event.objects.filter(run_id=run.id, fact="accepted", **call).exists()
    is_asked = run.waits.filter(kind=Wait.Kind.RECONCILE, resolved_at__isnull=True, **call).exists()
    if not is_accepted or is_asked:
        mark_overdue(head, run, wait, now, by)
        return
    resolve(wait, "timed_out", by=by.ref, now=now)
    wake(run, now=now)
    journal(run.id, resolved(wait, "timed_out", by=by.ref), by=by)


def is_awaited(token: str) -> bool:
    return Wait.objects.filter(token_hash=token_digest(token)).exists()


@transaction.atomic
def receive_callback(token: str, body: Any) -> dict[str, str]:
    """Accept the answer to an accepted call.
    The token works once; a repeated request gets the same response. Early answers are kept; late ones are recorded, but
    aren't the call's result. Raises NotFound, and InvalidInput for a body that doesn't fit the call. In that case
    nothing is recorded, and a valid body may still be sent."""
    digest = token_digest(token)
    run_id = Wait.objects.filter(token_hash=digest).values_list("run_id", flat=True).first()
    if run_id is None:
        raise NotFound("callback for the token", token[:8] + "…")
    _, run = locked(run_id, under=OUTSIDE)
    wait = _awaited(run, digest)
    now = database_now()
    if wait.resolution == "received" or wait.consumed_at is not None:
        return RECEIVED
    invoked = e.decode(
        *Event.objects.filter(run_id=run.id, slot=wait.slot, attempt=wait.attempt, fact="intent").values_list(
            "clear", flat=True
        )[:1]
    )
    assert isinstance(invoked, e.ToolInvoked)
    _check_answer(run, wait, invoked, body)
    entry = replace(Intent.of(invoked), key=None).entry("committed")  # recording a callback needs no idempotency key
    if not _still_counts(run, wait):
        wait.consumed_at = now
        wait.save(update_fields=["consumed_at"])
        late = e.CallbackArrivedLate(slot=wait.slot, attempt=wait.attempt, tool=invoked.tool, payload=body)
        journal(run.id, late, by=OUTSIDE, entries=[entry])
        log.warning("run %s: the answer to %s came when it was over; recorded, without effect", run.id, invoked.tool)
        return RECEIVED
    closing: list[e.Event] = []
    if wait.resolved_at is None:
        resolve(wait, "received", by=OUTSIDE.ref, now=now)
    else:  # The wait timed out, or the run ended meanwhile.
        wait.consumed_at = now
        wait.save(update_fields=["consumed_at"])
    if run.state not in ENDED:
        closing = close_others(run, wait.slot, wait.attempt, by=OUTSIDE, now=now, pk=wait.pk)
        wake(run, now=now)
    tool = tool_here(run, invoked.tool)
    if tool is not None and isinstance(body, dict):
        entry = replace(entry, external_id=tool.external_id_of(body))
    received = e.CallbackReceived(slot=wait.slot, attempt=wait.attempt, tool=invoked.tool, payload=body)
    journal(run.id, received, *closing, by=OUTSIDE, entries=[entry])
    return RECEIVED


def _awaited(run: Run, digest: bytes) -> Wait:
    """Return the locked wait for this token's call.
    If several waits were opened, return the newest."""
    given = run.waits.get(token_hash=digest)
    newest = (
        run.waits.select_for_update()
        .filter(slot=given.slot, attempt=given.attempt, kind=Wait.Kind.WEBHOOK)
        .order_by("-n")
    )
    return newest[0]


def _still_counts(run: Run, wait: Wait) -> bool:
    """Return whether an answer that arrives now is the call's result.
    Needs the head's lock. After its deadline or the run's end, it counts only if nothing can have continued without it:
    no later call with an effect began, and no worker is about to begin one."""
    if _is_settled(wait):
        return False
    if wait.resolved_at is None:
        return True
    is_asked = run.waits.filter(
        slot=wait.slot, attempt=wait.attempt, kind="reconcile", resolved_at__isnull=True
    ).exists()
    if run.state not in ENDED and not is_asked:
        return False
    try:
        tape = tape_of(run)
    except JournalBroken:
        return False
    # A slot that isn't on the tape belongs to an earlier visit. An attempt without an outcome is the slot's last,
    # because the next one begins only after its outcome is recorded.
    return wait.slot in tape.slots and not tape.went_on_from(wait.slot)


def _is_settled(wait: Wait) -> bool:
    """Return whether the call's outcome is recorded, so that the node may have continued from it."""
    events = Event.objects.filter(run_id=wait.run_id, slot=wait.slot, attempt=wait.attempt).order_by("seq")
    tape = Tape(e.decode(clear) for clear in events.values_list("clear", flat=True))
    attempt = tape.slot(wait.slot).at(wait.attempt)
    return attempt.outcome is not None or attempt.is_settled


def _check_answer(run: Run, wait: Wait, invoked: e.ToolInvoked, body: Any) -> None:
    """Check that the body answers this call.
    Raises InvalidInput. If this process doesn't know the tool, any body is accepted."""
    tool = tool_here(run, invoked.tool)
    if tool is None:
        return
    try:
        tool.output_from_callback(_receipt(wait), body)
    except ValidationError as error:
        problems = [
            {"field": where or "body", "problem": problem, "fix": f"send {tool.output.__name__}"}
            for where, problem in misfit.problems(error)
        ]
        raise InvalidInput(f"The body does not fit the output of {invoked.tool}.", errors=problems) from error
    except ValueError as error:
        wrong = {
            "field": "body",
            "problem": str(error),
            "fix": "send the answer to the request that had this callback address",
        }
        raise InvalidInput(f"The body is not an answer to this {invoked.tool}: {error}.", errors=[wrong]) from error


def _receipt(wait: Wait) -> Any:
    """Return the upstream system's receipt; None if it isn't recorded yet.
    An answer that arrives before the receipt is compared later."""
    accepted = Event.objects.filter(run_id=wait.run_id, slot=wait.slot, attempt=wait.attempt, fact="accepted")
    payload = unpack(accepted.values_list("sealed", flat=True).first())
    return payload.get("receipt") if isinstance(payload, dict) else None
