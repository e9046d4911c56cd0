"""A person's verdict on a call with an unknown outcome. For locks and transactions see `command`."""

from __future__ import annotations

from typing import Any, get_args
from uuid import UUID

from django.db import transaction
from pydantic import ValidationError

from ledger import events as e
from ledger.actors import Actor
from ledger.errors import IllegalTransition, InvalidInput, NotFound
from ledger.web import misfit
from runs.engine.canonical import plain
from runs.engine.errors import JournalBroken
from runs.engine.journal import Intent
from runs.engine.tape import Slot, payload_of
from runs.engine.tools import Tool
from runs.journal.reader import tape_of
from runs.models import Run, Wait
from runs.services.allowed import FAILS_ANYWAY, NO_DOUBT, PARKING
from runs.services.bodies import Verdict
from runs.services.calls import DISTRUSTED, UNASKED, tool_here
from runs.services.command import Act, resolve, save, wake, withdraw_waits
from runs.services.settling import agreeing
from runs.services.settling.agreeing import Proposal
from runs.services.settling.senders import MayStillSend, attested
from runs.services.undo import by_policy

VERDICTS: tuple[str, ...] = get_args(Verdict)


@transaction.atomic
def reconcile(
    run_id: UUID,
    *,
    verdict: str,
    receipt: Any = None,
    sender_is_gone: bool = False,
    justification: str,
    by: Actor,
    wait_id: UUID | None = None,
    agrees_with: int | None = None,
) -> Proposal | None:
    """Settle an unknown outcome of a run; `wait_id` may be omitted if it is the only one that the run ever had.

    If two people must settle it, the first proposal is recorded and returned, and nothing else changes until a second
    person proposes the same. `agrees_with` is the number of a recorded proposal that the caller has read: it is valid
    only while that proposal is in force, and the proposal's receipt need not be given again. `happened`: the receipt
    becomes the call's result. `did_not`: the call is made again once the old worker has provably ended, or a person
    confirms that with `sender_is_gone`. `fail`: the run fails. Raises InvalidInput, IllegalTransition,
    JustificationRequired, NotFound; if two people are needed, AlreadySaid, Forbidden, SaidOtherwise and PayloadsHidden.
    """
    _check_verdict(verdict)
    if agrees_with is not None:
        agreeing.must_have_read(run_id, wait_id)
    act = Act("reconcile", run_id, by=by, justification=justification)
    run = act.run
    if verdict == "fail" and run.is_undoing:
        raise act.refuse(FAILS_ANYWAY)
    wait, slot, invoked = _unsettled(act, wait_id)
    if agrees_with is not None and receipt is None:
        receipt = agreeing.receipt_of(wait, agrees_with)
    payload: dict[str, Any] = {"receipt": receipt, "justification": act.justification}
    if verdict == "happened":
        payload["result"] = _result(run, invoked, receipt)
    if verdict == "did_not" and (gone := _refuse_while_sender_lives(act, slot, wait, is_attested=sender_is_gone)):
        payload["attested"] = gone
    after: dict[str, Any] = {}
    if verdict != "fail":
        match agreeing.weighed(act, wait, invoked, verdict, payload, agrees_with=agrees_with):
            case e.OutcomeProposed() as first:
                return agreeing.put_down(act, wait, first)
            case Proposal() as first:
                payload |= {"proposal": first.n, "person": by.person}
                after = {"proposed_by": first.by}
    settled, entry = Intent.of(invoked).reconciled(
        verdict,
        by=by.ref,
        n=slot.at(wait.attempt).waits_of("reconcile") - 1,
        payload=payload,
        external_id=_external_id(run, invoked, payload),
        digest=verdict,
    )
    _close(act, wait, verdict)
    if verdict == "fail" and not act.head.is_cancel_requested:
        act.done(settled, _failed(act, invoked), entries=[entry])
        return None
    wake(run, now=act.now)
    act.done(settled, entries=[entry], after=after)
    return None


def _check_verdict(verdict: str) -> None:
    if verdict not in VERDICTS:
        fix = f"one of {', '.join(VERDICTS)}"
        raise InvalidInput(
            f"verdict must be {fix}.", errors=[{"field": "verdict", "problem": "not a verdict", "fix": fix}]
        )


def _close(act: Act, wait: Wait, verdict: str) -> None:
    """Resolve the wait for a verdict, and the settled call's wait for a callback."""
    resolve(wait, verdict, by=act.by.ref, now=act.now)
    if verdict == "fail":
        return
    answer = act.run.waits.filter(slot=wait.slot, attempt=wait.attempt, kind="webhook", resolved_at__isnull=True)
    answer.update(resolution="settled", resolved_by=act.by.ref, resolved_at=act.now)


def _unsettled(act: Act, wait_id: UUID | None) -> tuple[Wait, Slot, e.ToolInvoked]:
    """Return the call that a person settles: its locked wait, its record and its intent.
    A verdict must never settle another call, even if it is sent twice: if several waits are or were open, the verdict
    must name its wait. Raises IllegalTransition, InvalidInput, NotFound."""
    open_waits = act.run.waits.select_for_update().filter(kind="reconcile", resolved_at__isnull=True)
    meant = [wait for wait in open_waits.order_by("opened_at") if wait_id in (None, wait.id)]
    if not meant and wait_id is not None and not act.run.waits.filter(kind="reconcile", pk=wait_id).exists():
        raise NotFound("unknown outcome of this run with the wait_id", wait_id)
    if not meant:
        raise act.refuse(NO_DOUBT if wait_id is None else "That call has already been settled.")
    wait = meant[0]
    others = act.run.waits.filter(kind="reconcile").exclude(slot=wait.slot, attempt=wait.attempt)
    if len(meant) > 1 or (wait_id is None and others.exists()):
        text = f"{len(meant)} outcomes are unknown" if len(meant) > 1 else "another outcome was unknown before"
        problem = {"field": "wait_id", "problem": text, "fix": "name one: waiting_for lists them"}
        raise InvalidInput(
            "Several calls of this run have or had unknown outcomes. Name one with `wait_id`.", errors=[problem]
        )
    if act.run.owner is not None:
        raise act.refuse(PARKING)
    try:
        slot = tape_of(act.run).slot(wait.slot)
    except JournalBroken as broken:
        raise act.refuse(DISTRUSTED.format(broken)) from broken
    attempt = slot.at(wait.attempt)
    if attempt.waits.get(("reconcile", wait.n), "") is not None:
        raise act.refuse(UNASKED)
    invoked = attempt.intent
    if not isinstance(invoked, e.ToolInvoked) or (attempt.result is not None and not attempt.is_contradicted):
        raise act.refuse("The call was answered meanwhile.")
    return wait, slot, invoked


def _failed(act: Act, invoked: e.ToolInvoked) -> e.RunFailed | e.UndoAsked:
    """Return the event that ends the run, to be written after that of the verdict.
    The run's worker first undoes the effects that can be undone."""
    run = act.run
    message = f"{invoked.tool}: its outcome is unknown: {act.justification}"
    if by_policy(run):
        wake(run, now=act.now)
        return e.UndoAsked(by=act.by.ref, code="unknown_outcome", payload={"message": message})
    run.fail()
    run.ended_at, run.end_seq, run.error_code = act.now, act.head.seq + 2, "unknown_outcome"
    run.is_woken, run.ready_at = False, None
    act.flag(pause=False)  # A worker may have died before a requested pause, which must not stop a retry.
    save(run, "ended_at", "end_seq", "error_code", "is_woken", "ready_at", now=act.now)
    withdraw_waits(run, by=act.by.ref, now=act.now)
    return e.RunFailed(code="unknown_outcome", payload={"message": message})


def _tool(run: Run, name: str) -> Tool:
    tool = tool_here(run, name)
    if tool is None:
        raise IllegalTransition(
            "reconcile",
            str(run.state),
            f"This process has no tool {name!r} of {run.graph_id}: deploy that version first.",
        )
    return tool


def _result(run: Run, invoked: e.ToolInvoked, receipt: Any) -> Any:
    """Return the call's result, built from the receipt. Raises InvalidInput if the receipt isn't enough."""
    tool = _tool(run, invoked.tool)
    try:
        args = tool.input.model_validate(payload_of(invoked)["arguments"])
        output = tool.output_from_receipt(args, receipt)
        if tool.on_receipt is None and receipt and tool.output.model_fields and not output.model_fields_set:
            raise ValueError("has none of the result's fields")
        return plain(output)
    except ValueError as error:
        fix = f"give {tool.output.__name__} as an object: {', '.join(tool.output.model_fields)}"
        raise InvalidInput(
            f"The receipt does not fit the result of {tool.name}.",
            errors=[{"field": "receipt", "problem": _wrong(error)[:500], "fix": fix}],
        ) from error


def _wrong(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    return "; ".join(f"{where or 'it'}: {problem}" for where, problem in misfit.problems(error))


def _external_id(run: Run, invoked: e.ToolInvoked, payload: dict[str, Any]) -> str | None:
    return _tool(run, invoked.tool).external_id_of(payload["result"]) if "result" in payload else None


def _refuse_while_sender_lives(act: Act, slot: Slot, wait: Wait, *, is_attested: bool) -> str:
    """Return what was confirmed about the sender. Raises IllegalTransition if the sender may still be sending."""
    past = slot.at(wait.attempt)
    assert isinstance(past.intent, e.ToolInvoked)
    try:
        return attested(act.run, wait.slot, wait.attempt, past.intent.tool, past, now=act.now, is_attested=is_attested)
    except MayStillSend as why:
        raise IllegalTransition("send the call again", str(act.run.state), str(why)) from why
