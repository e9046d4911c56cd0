"""One tool call, from gate to recorded outcome, and what a replay makes of a call that was interrupted.

Sending and recording are in `dispatch.py`; the crash points are explained in docs/step-protocol.md.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from pydantic import BaseModel, ValidationError

from ledger import events as e
from runs.engine.canonical import idempotency_key
from runs.engine.dispatch import ATTENTION, STEP, Dispatch, brief, checked, digest_of, opened_event
from runs.engine.errors import ApprovalExpired, ApprovalMissing, ToolFailure
from runs.engine.gates import decided, is_used, open_gate, plan_of, with_history
from runs.engine.journal import Grant
from runs.engine.outcomes import Broken, Stopped
from runs.engine.tape import LAPSED, payload_of
from runs.engine.tools import DidNotHappen, Evidence, Happened, Tool, ToolCall
from runs.engine.visit import Visit, log


async def call_tool(
    visit: Visit,
    slot: str,
    tool: Tool,
    args: BaseModel,
    *,
    evidence: Sequence[Evidence] = (),
    why: str = "",
    grant: Grant | None = None,
) -> BaseModel:
    """Make, or replay, one logical call. Raises ToolFailure, Rejected; unwinds when the run must wait or stop."""
    return await _Call(visit, slot, tool, args, evidence, why, grant).run()


class _Call(Dispatch):
    async def run(self) -> BaseModel:
        if self.past.result is not None or (
            self.past.reconciled is not None and self.past.reconciled.verdict == "happened"
        ):
            return self._replayed()
        if self.past.intent is not None:
            return await self._resume()
        grant = await self._pass_gate()
        if self.tool.is_pure and grant is None:
            self._wait_for_timer()
            self.visit.check_stop()
            return await self.dispatch()
        await self._intend(grant)
        return await self.dispatch()

    # --- what a replay answers ---

    def _replayed(self) -> BaseModel:
        """The recorded outcome, as the live call gave it."""
        result = self.past.reconciled if self.past.result is None else self.past.result
        try:
            match result:
                case e.ToolFailed():
                    said = payload_of(result)
                    raise ToolFailure(self.tool.name, result.code, said.get("message", ""), said.get("details"))
                case e.ToolRead() | e.ToolReturned():
                    return self.tool.output.model_validate(payload_of(result)["result"])
                case e.CallbackReceived():
                    return self._from_callback(result)
                case e.ToolReconciled():
                    said = payload_of(result)
                    if "result" in said:
                        return self.tool.output.model_validate(said["result"])
                    return self.tool.output_from_receipt(self.args, said.get("receipt"))
                case _:
                    raise self.visit.unwind(
                        Broken("unexpected_record", {"slot": self.slot, "found": type(result).__name__})
                    )
        except (ValidationError, ValueError, KeyError) as error:
            found = {
                "slot": self.slot,
                "tool": self.tool.name,
                "problem": f"the recorded result does not fit the tool's output: {error}",
            }
            raise self.visit.unwind(Broken("recorded_result", found)) from error

    def _from_callback(self, event: e.CallbackReceived) -> BaseModel:
        try:
            return self.tool.output_from_callback(payload_of(self.past.accepted).get("receipt"), event.payload)
        except ValueError as error:
            raise ToolFailure(self.tool.name, "bad_callback", f"the callback's body does not fit: {error}") from error

    # --- an intent without a result ---

    async def _resume(self) -> BaseModel:
        """What the replay class allows for a call that may or may not have happened."""
        past, intent = self.past, payload_of(self.past.intent)
        self.key, self.token = intent.get("key"), intent.get("callback_token")
        self.callback_base = intent.get("callback_base", self.callback_base)
        self.arguments = intent["arguments"]
        self.args = self.tool.input.model_validate(self.arguments)
        if past.is_unknown:
            return await self._ask_again()
        if past.accepted is not None:
            n, resolution = past.last_wait("webhook")
            if resolution == "timed_out":
                raise ToolFailure(
                    self.tool.name, "no_answer", "no callback came before the deadline", payload_of(past.accepted)
                )
            raise self.visit.park(self._wait("webhook", n))
        self.intended_at = datetime.fromisoformat(intent["intended_at"]) if "intended_at" in intent else None
        self._wait_for_timer()
        if past.is_in_doubt and not self.tool.is_pure and (known := await self.settle_doubt(is_sender_done=False)) is not None:
            return known
        if (known := await self.announced_in_time(is_sender_done=False)) is not None:
            return known
        return await self.dispatch()

    async def settle_doubt(self, *, is_sender_done: bool) -> BaseModel | None:
        answer = await ask_hook(self.tool, self.args, self._tool_call())
        if isinstance(answer, Happened):
            return await self._reconciled_by_hook(answer)
        if isinstance(answer, DidNotHappen):
            self.intended_at = self.visit.journal.now()  # nothing is there under the key: its time begins with the next send
        elif self.is_key_spent:
            told = f"it is longer ago than the other side remembers keys ({self.tool.key_ttl}), and no outcome is on record"
            raise await self.unknown(told, is_sender_done=is_sender_done)
        elif self.tool.is_unsafe:
            told = "the worker ended after the intent and before an outcome was recorded"
            raise await self.unknown(told, is_sender_done=is_sender_done)
        return None

    def _wait_for_timer(self) -> None:
        """If a retry timer of this attempt still runs, park on it."""
        n = self.past.open_wait("timer")
        if n is not None:
            raise self.visit.park(self._wait("timer", n))

    async def _reconciled_by_hook(self, answer: Happened) -> BaseModel:
        found = checked(self.tool, answer.output)
        event = e.ToolReconciled(
            slot=self.slot,
            attempt=self.attempt,
            tool=self.tool.name,
            verdict="happened",
            by="hook",
            payload={"result": found.result},
        )
        external_id, digest = self.tool.external_id_of(found.result), digest_of(found.result)
        entry = self._entry("reconciled", external_id=external_id, digest=digest)
        reply = await self.visit.record(event, entries=[entry], usage=STEP)
        if not reply.is_done:
            raise self.visit.unwind(Stopped("overtaken"))
        self.visit.boundary(reply)
        return found.output

    # --- gate and intent ---

    async def _pass_gate(self) -> tuple[str, str] | None:
        """The grant that the intent will use, or None where no gate stands. A further attempt is looked at anew: what went out under a
        yes goes out again under that one only while today's rule asks for no other, and the database sees to it that it is in time."""
        record, gate = self.record, self.tool.gate
        rule = gate if gate is not None and gate.is_needed(self.args) else None
        if record.gate is not None:
            was_used = record.gate.approval_id in {approval_id for _, approval_id in record.grants.values()}
            is_other = was_used and rule is not None and (rule.queue, rule.rule_for(self.args)) != (record.gate.queue, record.gate.rule)
            if is_other or (record.decision is not None and record.decision.verdict == LAPSED):
                await self._ask_anew()
            grant = await decided(self.visit, self.slot, record, tool=self.tool.name, arguments=self.arguments)
            return grant.slot, grant.plan_hash
        if self.grant is not None:
            if record.grants and rule is not None and rule.queue != self.grant.queue:
                await self._ask_anew()
            self._check_grant(self.grant, self.grant.queue if rule is None else rule.queue)
            return self.grant.slot, self.grant.plan_hash
        if rule is None and not record.grants:
            return None
        await self._ask_anew()
        return None

    def _check_grant(self, grant: Grant, queue: str) -> None:
        """A yes to another call, or from other people than the tool's own gate asks, lets nothing through."""
        granted, now = (grant.queue, grant.requested_hash), (queue, self.requested_hash)
        if granted != now:
            raise self.visit.unwind(Broken("grant_mismatch", {"slot": self.slot, "granted": granted, "now": now}))
        if is_used(self.visit, grant.slot, besides=self.slot):  # the wait's row says so too, but a row can be set back
            told = {"slot": self.slot, "tool": self.tool.name, "problem": f"the approval of slot {grant.slot} was used by another call"}
            raise self.visit.unwind(Broken("approval_missing", told))

    async def _intend(self, grant: tuple[str, str] | None) -> None:
        """TX1, with everything that a repeat will need to send the same bytes."""
        visit, tool = self.visit, self.tool
        if not tool.is_unsafe and not tool.is_pure:
            self.key = idempotency_key(visit.run_id, self.slot, self.attempt)
        wait = None
        stored: dict[str, Any] = {"arguments": self.arguments, "key": self.key}
        if tool.key_ttl is not None:
            self.intended_at = visit.journal.now()
            stored["intended_at"] = self.intended_at.isoformat()
        if tool.answers_later:
            self.token = stored["callback_token"] = secrets.token_urlsafe(32)
            stored["callback_base"] = self.callback_base
            wait = self._wait(
                "webhook",
                0,
                detail={"tool": tool.name, "title": tool.title},
                within=timedelta(days=14),
                token=self.token,
            )
        event = e.ToolInvoked(
            slot=self.slot, attempt=self.attempt, payload=stored, tool=tool.name, replay_class=str(tool.replay_class),
            requested_hash=self.requested_hash, executed_hash=self.requested_hash, grant=grant[0] if grant else None,
        )  # fmt: skip
        opened = [] if wait is None else [opened_event(wait)]
        try:
            await visit.intend(
                event, *opened, entry=None if tool.is_pure else self._entry("pending"), grant=grant, wait=wait
            )
        except ApprovalMissing as error:
            if isinstance(error, ApprovalExpired) or self.record.grants:
                await self._ask_anew()
            raise visit.unwind(
                Broken("approval_missing", {"slot": self.slot, "tool": tool.name, "problem": str(error)})
            ) from error
        self.past.intent = event

    async def _ask_anew(self) -> None:
        """Put the call to its queue, with what became of it and of every answer so far. Always unwinds.

        The question stands at the call's own place, also where a grant of `ctx.approve` was to let it through: the node went on from
        that answer, so another one can't take its place there.
        """
        visit, tool, asked, gate = self.visit, self.tool, self.record.gate, self.tool.gate
        given = visit.tape.slot(self.grant.slot) if self.grant is not None else None
        earlier = asked or (given.gate if given is not None else None)
        queue, rule, headline = "", "", ""
        if gate is not None and (earlier is None or gate.is_needed(self.args)):
            queue, rule, headline = gate.queue, gate.rule_for(self.args), gate.headline_for(self.args)
        elif earlier is not None:
            queue, rule = earlier.queue, earlier.rule
        elif self.grant is not None:
            queue, rule = self.grant.queue, f"{visit.node} asks {self.grant.queue}"
        plan = plan_of(
            visit, self.slot, queue=queue, rule=rule, tool=tool.name, arguments=self.arguments, title=tool.title, effect=tool.effect,
            headline=headline, evidence=self.evidence,
        )  # fmt: skip
        if earlier is not None:
            plan |= {name: earlier.payload[name] for name in ("title", "effect", "headline", "evidence")}
        within = ATTENTION if gate is None else gate.within
        n = 0 if asked is None else asked.n + 1
        await open_gate(
            visit, self.slot, with_history(plan, self.record, given), requested_hash=self.requested_hash, why=self.why, within=within, n=n
        )  # fmt: skip

    async def _ask_again(self) -> BaseModel:
        """Wait for the person's verdict. A retried run whose verdict was *fail* asks anew: the outcome is as unknown as before. A call
        that was accepted and never answered comes here when its run is retried: its callback is waited for beside the person."""
        past = self.past
        n = past.open_wait("reconcile")
        if n is not None:
            raise self.visit.park(self._wait("reconcile", n))
        if past.unknown is None:
            if isinstance(answer := await ask_hook(self.tool, self.args, self._tool_call()), Happened):
                return await self._reconciled_by_hook(answer)
            raise await self.unknown("the other side took the call, and no callback came before its deadline", is_sender_done=True)
        wait = self._reconcile_wait(past.waits_of("reconcile"))
        await self.visit.record(opened_event(wait), wait=wait)
        raise self.visit.park(wait)


async def ask_hook(tool: Tool, args: BaseModel, call: ToolCall) -> Happened | DidNotHappen | None:
    """Ask upstream, through the tool's reconcile hook, what became of a call. No hook, or no usable answer: None."""
    if tool.reconcile is None:
        return None
    try:
        answer = await asyncio.wait_for(tool.reconcile(args, call), tool.timeout)
        if isinstance(answer, Happened):
            return Happened(checked(tool, answer.output).output)
        return answer if isinstance(answer, DidNotHappen) else None
    except Exception as error:  # whatever went wrong with asking, nothing is known that wasn't before
        log.warning("run %s: the reconcile hook of %s gave no answer: %s", call.run_id, tool.name, brief(error))
        return None
