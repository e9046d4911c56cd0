"""A person's verdict on a call whose outcome nobody knows. Same rules as `command`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, get_args
from uuid import UUID

from django.db import transaction
from pydantic import ValidationError

from ledger import events as e
from ledger.actors import Actor
from ledger.errors import IllegalTransition, InvalidInput, NotFound
from ledger.models import Event
from ledger.web import misfit
from runs.engine.canonical import plain
from runs.engine.errors import JournalBroken
from runs.engine.journal import Intent
from runs.engine.tape import Slot, payload_of
from runs.engine.tools import Tool
from runs.fleet.members import is_gone, is_here
from runs.journal.reader import tape_of
from runs.models import WITHOUT_PROOF, Process, Run, Wait
from runs.services.allowed.rules import NO_DOUBT, PARKING
from runs.services.bodies import Verdict
from runs.services.calls import DISTRUSTED, UNASKED, tool_here
from runs.services.command import Act, resolve, save, wake, withdraw_waits
from runs.services.settling import agreeing
from runs.services.settling.proposals import Proposal
from runs.services.undo.preview import by_policy

VERDICTS: tuple[str, ...] = get_args(Verdict)
# After either of these the call may be on its way.
_SENDS = ("ToolInvoked", "ToolRedispatched")
# Clocks and networks are given this much beyond a request's own time.
SLACK = timedelta(seconds=5)


@transaction.atomic
def reconcile(
    run_id: UUID, *, verdict: str, receipt: Any = None, sender_is_gone: bool = False, justification: str, by: Actor,
    wait_id: UUID | None = None, agrees_with: int | None = None,
) -> Proposal | None:  # fmt: skip
    """Settle an unknown outcome of a run: the one that `wait_id` names, which may be left out where only one is open.
    Where two people settle that, the first one's word is put on record and waits for a second one who says the same: it
    is answered then, and nothing else has changed. `agrees_with` is the number of a word that is on record, for whoever
    has read that one: then it counts only while it stands, and its receipt need not be given again.

    `happened`: the receipt becomes the call's result. `did_not`: the call is made again as a further attempt, once the
    old worker is proven gone; where nothing here can prove it, the person attests it by `sender_is_gone`. `fail`: the
    run fails. Raises InvalidInput, IllegalTransition, JustificationRequired, NotFound; where it takes two, AlreadySaid,
    Forbidden, SaidOtherwise and PayloadsHidden.
    """
    if verdict not in VERDICTS:
        fix = f"one of {', '.join(VERDICTS)}"
        raise InvalidInput(
            f"verdict must be {fix}.", errors=[{"field": "verdict", "problem": "not a verdict", "fix": fix}]
        )
    if agrees_with is not None:
        agreeing.must_have_read(run_id, wait_id)
    act = Act("reconcile", run_id, by=by, justification=justification)
    run = act.run
    if verdict == "fail" and run.is_undoing:
        raise act.refuse("It undoes its effects, and fails or is cancelled anyway: say what became of this call.")
    wait, slot, invoked = _unsettled(act, wait_id)
    if agrees_with is not None and receipt is None:
        receipt = agreeing.receipt_of(wait, agrees_with)
    payload: dict[str, Any] = {"receipt": receipt, "justification": act.justification}
    if verdict == "happened":
        payload["result"] = _result(run, invoked, receipt)
    elif verdict == "did_not" and (attested := _refuse_while_sender_lives(act, slot, wait, is_attested=sender_is_gone)):
        payload["attested"] = attested
    after: dict[str, Any] = {}
    if verdict != "fail":
        match agreeing.weighed(act, wait, invoked, verdict, payload, agrees_with=agrees_with):
            case e.OutcomeProposed() as first:
                return agreeing.put_down(act, wait, first)
            case Proposal() as first:
                payload |= {"proposal": first.n, "person": by.person}
                after = {"proposed_by": first.by}
    settled, entry = Intent.of(invoked).reconciled(
        verdict, by=by.ref, n=slot.at(wait.attempt).waits_of("reconcile") - 1, payload=payload,
        external_id=_external_id(run, invoked, payload), digest=verdict,
    )  # fmt: skip
    resolve(wait, verdict, by=by.ref, now=act.now)
    if verdict != "fail":
        answer = run.waits.filter(slot=wait.slot, attempt=wait.attempt, kind="webhook", resolved_at__isnull=True)
        answer.update(resolution="settled", resolved_by=by.ref, resolved_at=act.now)
    if verdict == "fail" and not act.head.is_cancel_requested:
        act.done(settled, _failed(act, invoked), entries=[entry])
        return None
    wake(run, now=act.now)
    act.done(settled, entries=[entry], after=after)
    return None


def _unsettled(act: Act, wait_id: UUID | None) -> tuple[Wait, Slot, e.ToolInvoked]:
    """The call that a person speaks of: its wait, locked, its record and its intent. Raises IllegalTransition,
    InvalidInput, NotFound.

    A verdict on one call must never settle another, also when it is sent twice: so where several are open, or another
    was open before, it names its own.
    """
    open_waits = act.run.waits.select_for_update().filter(kind="reconcile", resolved_at__isnull=True)
    meant = [wait for wait in open_waits.order_by("opened_at") if wait_id in (None, wait.id)]
    if not meant and wait_id is not None and not act.run.waits.filter(kind="reconcile", pk=wait_id).exists():
        raise NotFound("unknown outcome of this run with the wait_id", wait_id)
    if not meant:
        raise act.refuse(NO_DOUBT if wait_id is None else "That call has been settled.")
    wait = meant[0]
    others = act.run.waits.filter(kind="reconcile").exclude(slot=wait.slot, attempt=wait.attempt)
    if len(meant) > 1 or (wait_id is None and others.exists()):
        told = f"{len(meant)} outcomes are unknown" if len(meant) > 1 else "another outcome was unknown before"
        problem = {"field": "wait_id", "problem": told, "fix": "name one: waiting_for lists them"}
        raise InvalidInput("Several calls of this run are or were in doubt: say which one is meant.", errors=[problem])
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
    if not isinstance(invoked, e.ToolInvoked) or (attempt.result is not None and not attempt.is_belied):
        raise act.refuse("The call has been answered in the meantime.")
    return wait, slot, invoked


def _failed(act: Act, invoked: e.ToolInvoked) -> e.RunFailed | e.UndoAsked:
    """The run ends because nobody knows what became of a call; its worker undoes first what can be undone. The event
    comes after the verdict: hence the number."""
    run = act.run
    message = f"{invoked.tool}: its outcome is unknown: {act.justification}"
    if by_policy(run):
        wake(run, now=act.now)
        return e.UndoAsked(by=act.by.ref, code="unknown_outcome", payload={"message": message})
    run.fail()
    run.ended_at, run.end_seq, run.error_code = act.now, act.head.seq + 2, "unknown_outcome"
    run.is_woken, run.ready_at = False, None
    act.flag(pause=False)  # a worker that was to pause may have died before it did: a retry isn't to stop for that
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
    """The call's result as the receipt gives it. Raises InvalidInput when it isn't enough."""
    tool = _tool(run, invoked.tool)
    try:
        args = tool.input.model_validate(payload_of(invoked)["arguments"])
        return plain(tool.output_from_receipt(args, receipt))
    except ValueError as error:
        fix = f"give {tool.output.__name__} as an object: {', '.join(tool.output.model_fields)}"
        raise InvalidInput(
            f"The receipt is not enough for the result of {tool.name}.",
            errors=[{"field": "receipt", "problem": _wrong(error)[:500], "fix": fix}],
        ) from error


def _wrong(error: ValueError) -> str:
    """What is wrong with a receipt, in words that speak of JSON."""
    if not isinstance(error, ValidationError):
        return str(error)
    return "; ".join(f"{where or 'it'}: {problem}" for where, problem in misfit.problems(error))


def _external_id(run: Run, invoked: e.ToolInvoked, payload: dict[str, Any]) -> str | None:
    return _tool(run, invoked.tool).external_id_of(payload["result"]) if "result" in payload else None


def _refuse_while_sender_lives(act: Act, slot: Slot, wait: Wait, *, is_attested: bool) -> str:
    """No fence closes the gap between a worker's check and its first byte: before a call is sent again, its senders
    must be gone: the last one, unless it is known to be done, and every one before it that lost the run on the way.
    Answers what was attested."""
    sends = Event.objects.filter(run_id=act.run.id, slot=wait.slot, attempt=wait.attempt, kind__in=_SENDS)
    sent_at = dict(sends.order_by("seq").values_list("epoch", "at"))  # when each claim sent last
    lost = Event.objects.filter(run_id=act.run.id, kind="WorkerLost", epoch__in=sent_at).values_list("epoch", flat=True)
    unknown, last = slot.at(wait.attempt).unknown, max(sent_at)
    doubtful = {last, *lost}
    # Whoever reported the outcome as unknown, or the call as taken or refused, has nothing more of it to send.
    is_reported = slot.at(wait.attempt).accepted is not None or slot.at(wait.attempt).is_refused
    if is_reported or (isinstance(unknown, e.ToolOutcomeUnknown) and unknown.is_sender_done):
        doubtful.discard(last)
    invoked = slot.at(wait.attempt).intent
    assert isinstance(invoked, e.ToolInvoked)
    attested = [_word_on_sender(act, invoked, epoch, sent_at[epoch], is_attested) for epoch in sorted(doubtful)]
    return ", ".join(word for word in attested if word)


def _word_on_sender(act: Act, invoked: e.ToolInvoked, epoch: int, sent_at: datetime, is_attested: bool) -> str:
    """Proof is best. Of a worker that was given up without proof nobody here knows whether it still sends: its
    request's time must be over, and the person must say that nothing of it runs any more."""
    claims = Event.objects.filter(run_id=act.run.id, kind="RunClaimed", epoch=epoch).order_by("-seq")
    claimed = e.decode(claims.values_list("clear", flat=True)[0])
    assert isinstance(claimed, e.RunClaimed)
    sender = Process.objects.filter(pk=claimed.worker).first()
    if sender is None or is_gone(sender) or (sender.ended_at is not None and sender.end_cause not in WITHOUT_PROOF):
        return ""
    who = f"pid {sender.pid} on {sender.host}"
    subject = f"The worker that sent it ({who})"
    if sender.ended_at is None or is_here(sender):
        raise _not_again(act, f"{subject} is still alive and could still be sending: end it first.")
    over_at = sent_at + timedelta(seconds=_tool(act.run, invoked.tool).timeout) + SLACK
    if act.now < over_at:
        raise _not_again(
            act, f"{subject} was given up without proof; its request may last until {over_at.isoformat()}: wait."
        )
    if not is_attested:
        raise _not_again(
            act,
            f"{subject} was given up without proof: {sender.end_proof}. Make sure that nothing of it runs any more, "
            "and say so: send `sender_is_gone: true` with the verdict, "
            f"or run `manage.py declare_dead --host {sender.host} --reason …`.",
        )
    return f"{who} is gone"


def _not_again(act: Act, hint: str) -> IllegalTransition:
    return IllegalTransition("send the call again", str(act.run.state), hint)
