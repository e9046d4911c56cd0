"""Answers from outside: a person's verdict on an unknown outcome, and a callback. Same rules as `services`."""

from __future__ import annotations

import hashlib
import logging
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from pydantic import ValidationError

from ledger import events as e
from ledger import misfit
from ledger.actors import OUTSIDE, Actor
from ledger.append import append
from ledger.clock import database_now
from ledger.errors import IllegalTransition, InvalidInput, NotFound
from ledger.models import Event
from runs import live
from runs.acts import Act, locked, resolve, save, wake, withdraw_waits
from runs.engine.agents import registry
from runs.engine.canonical import plain
from runs.engine.errors import JournalBroken, UnknownAgent, UnknownVersion
from runs.engine.journal import Entry
from runs.engine.tape import Slot, payload_of
from runs.engine.tools import Tool
from runs.fleet import is_gone, is_here
from runs.models import ENDED, WITHOUT_PROOF, Process, Run, Wait
from runs.past import tape_of

log = logging.getLogger("runs.settle")
VERDICTS = ("happened", "did_not", "fail")
RECEIVED = {"status": "received"}
# After either of these the call may be on its way.
_SENDS = ("ToolInvoked", "ToolRedispatched")
# Clocks and networks are given this much beyond a request's own time.
SLACK = timedelta(seconds=5)


@transaction.atomic
def reconcile(
    run_id: UUID, *, verdict: str, receipt: Any = None, sender_is_gone: bool = False, justification: str, by: Actor,
    wait_id: UUID | None = None,
) -> Run:  # fmt: skip
    """Settle an unknown outcome of a run: the one that `wait_id` names, which may be left out where only one is open.

    `happened`: the receipt becomes the call's result. `did_not`: the call is made again as a further attempt, once the old worker is
    proven gone; where nothing here can prove it, the person attests it by `sender_is_gone`. `fail`: the run fails. Raises InvalidInput, IllegalTransition, JustificationRequired, NotFound.
    """
    if verdict not in VERDICTS:
        fix = f"one of {', '.join(VERDICTS)}"
        raise InvalidInput(
            f"verdict must be {fix}.", errors=[{"field": "verdict", "problem": "not a verdict", "fix": fix}]
        )
    act = Act("reconcile", run_id, by=by, justification=justification)
    run = act.run
    wait, slot, invoked = _unsettled(act, wait_id)
    payload: dict[str, Any] = {"receipt": receipt, "justification": act.justification}
    if verdict == "happened":
        payload["result"] = _result(run, invoked, receipt)
    elif verdict == "did_not" and (attested := _refuse_while_sender_lives(act, slot, wait, is_attested=sender_is_gone)):
        payload["attested"] = attested
    settled = e.ToolReconciled(
        slot=wait.slot, attempt=wait.attempt, tool=invoked.tool, verdict=verdict, by=by.ref, n=slot.at(wait.attempt).waits_of("reconcile") - 1,
        payload=payload,
    )  # fmt: skip
    entry = Entry(
        wait.slot, wait.attempt, "reconciled", invoked.tool, invoked.replay_class, key=payload_of(invoked).get("key"),
        input_hash=invoked.requested_hash, external_id=_external_id(run, invoked, payload), digest=verdict,
    )  # fmt: skip
    resolve(wait, verdict, by=by.ref, now=act.now)
    if verdict != "fail":
        answer = run.waits.filter(slot=wait.slot, attempt=wait.attempt, kind="webhook", resolved_at__isnull=True)
        answer.update(resolution="settled", resolved_by=by.ref, resolved_at=act.now)
    if verdict == "fail" and not act.head.is_cancel_requested:
        return act.done(settled, _failed(act, invoked), entries=[entry])
    wake(run, now=act.now)
    return act.done(settled, entries=[entry])


def _unsettled(act: Act, wait_id: UUID | None) -> tuple[Wait, Slot, e.ToolInvoked]:
    """The call that a person speaks of: its wait, locked, its record and its intent. Raises IllegalTransition, InvalidInput.

    A verdict on one call must never settle another, also when it is sent twice: so where several are open, it names its own.
    """
    asked = act.run.waits.select_for_update().filter(kind="reconcile", resolved_at__isnull=True)
    found = [wait for wait in asked.order_by("opened_at") if wait_id in (None, wait.id)]
    if not found:
        raise act.refuse("It has no unknown outcome to settle." if wait_id is None else "That call has been settled.")
    if len(found) > 1:
        problem = {"field": "wait_id", "problem": f"{len(found)} outcomes are unknown", "fix": "name one: waiting_for lists them"}
        raise InvalidInput("Several calls of this run are in doubt: say which one is meant.", errors=[problem])
    wait = found[0]
    if act.run.owner is not None:
        raise act.refuse("Its worker is just parking it: try again in a moment.")
    try:
        slot = tape_of(act.run).slot(wait.slot)
    except JournalBroken as broken:
        raise act.refuse(f"Its journal can't be trusted: {broken}.") from broken
    invoked = slot.at(wait.attempt).intent
    if not isinstance(invoked, e.ToolInvoked) or slot.at(wait.attempt).result is not None:
        raise act.refuse("The call has been answered in the meantime.")
    return wait, slot, invoked


def _failed(act: Act, invoked: e.ToolInvoked) -> e.RunFailed:
    """The run ends because nobody knows what became of a call. The event comes after the verdict: hence the number."""
    run = act.run
    run.fail()
    run.ended_at, run.end_seq, run.error_code = act.now, act.head.seq + 2, "unknown_outcome"
    run.is_woken, run.ready_at = False, None
    save(run, "ended_at", "end_seq", "error_code", "is_woken", "ready_at", now=act.now)
    withdraw_waits(run, by=act.by.ref, now=act.now)
    message = f"{invoked.tool}: its outcome is unknown: {act.justification}"
    return e.RunFailed(code="unknown_outcome", payload={"message": message})


def _tool(run: Run, name: str) -> Tool:
    try:
        tool = registry.find(run.graph_id).tool(name)
    except (UnknownAgent, UnknownVersion):
        tool = None
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
            errors=[{"field": "receipt", "problem": str(error)[:500], "fix": fix}],
        ) from error


def _external_id(run: Run, invoked: e.ToolInvoked, payload: dict[str, Any]) -> str | None:
    return _tool(run, invoked.tool).external_id_of(payload["result"]) if "result" in payload else None


def _refuse_while_sender_lives(act: Act, slot: Slot, wait: Wait, *, is_attested: bool) -> str:
    """No fence closes the gap between a worker's check and its first byte: before a call is sent again, its senders must be gone:
    the last one, unless it is known to be done, and every one before it that lost the run on the way. Answers what was attested."""
    sends = Event.objects.filter(run_id=act.run.id, slot=wait.slot, attempt=wait.attempt, kind__in=_SENDS)
    sent_at = dict(sends.order_by("seq").values_list("epoch", "at"))  # when each claim sent last
    lost = Event.objects.filter(run_id=act.run.id, kind="WorkerLost", epoch__in=sent_at).values_list("epoch", flat=True)
    unknown, last = slot.at(wait.attempt).unknown, max(sent_at)
    doubtful = {last, *lost}
    # Whoever reported the outcome as unknown, or the call as taken, has nothing more of it to send.
    if slot.at(wait.attempt).accepted is not None or (isinstance(unknown, e.ToolOutcomeUnknown) and unknown.is_sender_done):
        doubtful.discard(last)
    tool = slot.at(wait.attempt).intent
    assert isinstance(tool, e.ToolInvoked)
    told = [_word_on_sender(act, tool, epoch, sent_at[epoch], is_attested) for epoch in sorted(doubtful)]
    return ", ".join(word for word in told if word)


def _word_on_sender(act: Act, invoked: e.ToolInvoked, epoch: int, sent_at: datetime, is_attested: bool) -> str:
    """Proof is best. Of a worker that was given up without proof nobody here knows whether it still sends: its request's time must be
    over, and the person must say that nothing of it runs any more."""
    claims = Event.objects.filter(run_id=act.run.id, kind="RunClaimed", epoch=epoch).order_by("-seq")
    claimed = e.decode(claims.values_list("clear", flat=True)[0])
    assert isinstance(claimed, e.RunClaimed)
    sender = Process.objects.filter(pk=claimed.worker).first()
    if sender is None or is_gone(sender) or (sender.ended_at is not None and sender.end_cause not in WITHOUT_PROOF):
        return ""
    who = f"pid {sender.pid} on {sender.host}"
    if sender.ended_at is None or is_here(sender):
        raise _not_again(act, f"The worker that sent it ({who}) is still alive and could still be sending: end it first.")
    over_at = sent_at + timedelta(seconds=_tool(act.run, invoked.tool).timeout) + SLACK
    if act.now < over_at:
        raise _not_again(act, f"The worker that sent it ({who}) was given up without proof; its request may last until {over_at.isoformat()}: wait.")
    if not is_attested:
        told = f"The worker that sent it ({who}) was given up without proof: {sender.end_proof}. Make sure that nothing of it runs any more"
        raise _not_again(act, f"{told}, and say so: send `sender_is_gone: true` with the verdict, or run `manage.py declare_dead --host {sender.host} --reason …`.")
    return f"{who} is gone"


def _not_again(act: Act, hint: str) -> IllegalTransition:
    return IllegalTransition("send the call again", str(act.run.state), hint)


# --- callbacks ----------------------------------------------------------------------------------------------------------


def is_awaited(token: str) -> bool:
    """Whether a call was given this token. Cheap, and before anything of a body is read."""
    return Wait.objects.filter(token_hash=_digest(token)).exists()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


@transaction.atomic
def receive_callback(token: str, body: Any) -> dict[str, str]:
    """Take the answer to a call that was accepted earlier. The token is its only authority; it works once, and a repeat is answered
    like the first. Early answers are kept; late ones are recorded without effect. Raises NotFound, and InvalidInput for a body that
    is no answer to the call: nothing is recorded then, and a right one may still come."""
    digest = _digest(token)
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
    entry = Entry(
        wait.slot, wait.attempt, "committed", invoked.tool, invoked.replay_class, input_hash=invoked.requested_hash
    )
    if not _still_counts(run, wait):
        wait.consumed_at = now
        wait.save(update_fields=["consumed_at"])
        late = e.CallbackArrivedLate(slot=wait.slot, attempt=wait.attempt, tool=invoked.tool, payload=body)
        live.ring(run.id, append(run.id, late, by=OUTSIDE, entries=[entry]))
        log.warning("run %s: the answer to %s came when it was over; recorded, without effect", run.id, invoked.tool)
        return RECEIVED
    settled: list[e.Event] = []
    if wait.resolved_at is None:
        resolve(wait, "received", by=OUTSIDE.ref, now=now)
    else:  # its time had run out, or the run ended meanwhile
        wait.consumed_at = now
        wait.save(update_fields=["consumed_at"])
    if run.state not in ENDED:
        settled = close_others(run, wait.slot, wait.attempt, by=OUTSIDE, now=now, pk=wait.pk)
        wake(run, now=now)
    seq = append(
        run.id,
        e.CallbackReceived(slot=wait.slot, attempt=wait.attempt, tool=invoked.tool, payload=body),
        *settled,
        by=OUTSIDE,
        entries=[entry],
    )
    live.ring(run.id, seq)
    return RECEIVED


def _awaited(run: Run, digest: bytes) -> Wait:
    """The wait for the answer to the call that was given this token, locked: where it is waited for again, the newest."""
    given = run.waits.get(token_hash=digest)
    newest = run.waits.select_for_update().filter(slot=given.slot, attempt=given.attempt, kind=Wait.Kind.WEBHOOK).order_by("-n")
    return newest[0]


def _still_counts(run: Run, wait: Wait) -> bool:
    """Whether an answer that comes now is the call's result. After its time ran out, or the run ended, it is so only where nobody can
    have gone on without it: nothing with an effect was begun after the call, and no worker is about to. Asked under the head's lock."""
    if _is_settled(wait):
        return False
    if wait.resolved_at is None:
        return True
    is_asked = run.waits.filter(slot=wait.slot, attempt=wait.attempt, kind="reconcile", resolved_at__isnull=True).exists()
    if run.state not in ENDED and not is_asked:
        return False
    try:
        tape = tape_of(run)
    except JournalBroken:
        return False
    slot = tape.slots.get(wait.slot)  # none: the run has come to another visit since
    return slot is not None and slot.current == wait.attempt and not tape.went_on_from(wait.slot)


def _is_settled(wait: Wait) -> bool:
    """Whether the journal tells already how the call that is answered now came out, so that the node may have gone on from it."""
    told = Event.objects.filter(run_id=wait.run_id, slot=wait.slot, attempt=wait.attempt)
    verdicts = [e.decode(clear) for clear in told.filter(kind="ToolReconciled").values_list("clear", flat=True)]
    is_reconciled = any(isinstance(x, e.ToolReconciled) and x.verdict != "fail" for x in verdicts)
    return is_reconciled or told.filter(fact="result").exists()


def _check_answer(run: Run, wait: Wait, invoked: e.ToolInvoked, body: Any) -> None:
    """Whether the body is an answer to this call. A process that doesn't know the tool takes it as it is."""
    try:
        tool = registry.find(run.graph_id).tool(invoked.tool)
    except (UnknownAgent, UnknownVersion):
        return
    if tool is None:
        return
    try:
        tool.output_from_callback(_receipt(wait), body)
    except ValidationError as error:
        problems = [
            {
                "field": misfit.path(p["loc"]) or "body",
                "problem": misfit.problem(p),
                "fix": f"send {tool.output.__name__}",
            }
            for p in error.errors(include_url=False, include_input=False)
        ]
        raise InvalidInput(f"The body is no answer to {invoked.tool}.", errors=problems) from error
    except ValueError as error:
        wrong = {"field": "body", "problem": str(error), "fix": "send the answer to the request that this address was given with"}
        raise InvalidInput(f"The body is no answer to this {invoked.tool}: {error}.", errors=[wrong]) from error


def _receipt(wait: Wait) -> Any:
    """What upstream said when it took the call; None before that is on record. An early answer is compared on the way to the node."""
    told = Event.objects.filter(run_id=wait.run_id, slot=wait.slot, attempt=wait.attempt, fact="accepted")
    sealed = told.values_list("sealed", flat=True).first()
    said = None if sealed is None else e.unseal(sealed)
    return said.get("receipt") if isinstance(said, dict) else None


def close_others(run: Run, slot: str, attempt: int, *, by: Actor, now: datetime, **kept: Any) -> list[e.Event]:
    """What was waited for because of a call whose outcome is known now: a person's verdict on it, a timer to send it again. Those that
    `kept` describes stay as they are."""
    told: list[e.Event] = []
    still = run.waits.select_for_update().filter(slot=slot, attempt=attempt, resolved_at__isnull=True)
    for wait in still.exclude(**kept) if kept else still:
        resolve(wait, "answered", by=by.ref, now=now)
        told.append(e.WaitResolved(slot=wait.slot, attempt=wait.attempt, wait=wait.kind, n=wait.n, resolution="answered", by=by.ref))
    return told
