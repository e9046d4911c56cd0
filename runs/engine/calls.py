"""One tool call, from gate to recorded outcome, and what a replay makes of a call that was interrupted.

The step protocol, seen from the engine (crash points as in docs/step-protocol.md):

    CP1  before the intent commits          CP2  intent durable, nothing sent        CP3  upstream did it, answer not here
    CP4  answer here, not durable           CP6  result durable, next step not begun
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import secrets
import time
import traceback
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, ValidationError

from ledger import events as e
from runs.engine.canonical import canonical, idempotency_key
from runs.engine.errors import (
    ApprovalMissing,
    BusinessFailure,
    NotSent,
    ToolFailure,
    TransportError,
)
from runs.engine.gates import decided, open_gate, plan_of
from runs.engine.journal import Entry, Grant, Usage, WaitSpec
from runs.engine.tape import Attempt, payload_of
from runs.engine.tools import DidNotHappen, Evidence, Happened, Pending, Tool, ToolCall
from runs.engine.visit import Broken, Crashed, Visit, log

ATTENTION = timedelta(
    days=7
)  # how long a person has to settle an unknown outcome before it counts as overdue
STEP = Usage(steps=1, tool_calls=1)


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


class _Call:
    def __init__(
        self,
        visit: Visit,
        slot: str,
        tool: Tool,
        args: BaseModel,
        evidence: Sequence[Evidence],
        why: str,
        grant: Grant | None,
    ) -> None:
        self.visit, self.slot, self.tool, self.args, self.evidence, self.why, self.grant = (
            visit,
            slot,
            tool,
            args,
            evidence,
            why,
            grant,
        )
        self.arguments = args.model_dump(mode="json")
        self.requested_hash = visit.runtime.hasher({"tool": tool.name, "arguments": self.arguments})
        self.record = visit.remember(slot, tool.name, self.requested_hash)
        self.attempt = self.record.current
        self.key: str | None = None
        self.token: str | None = None

    @property
    def past(self) -> Attempt:
        """What is on record of the attempt in force."""
        return self.record.at(self.attempt)

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
            return await self._dispatch()
        await self._intend(grant)
        return await self._dispatch()

    # --- what a replay answers ---

    def _replayed(self) -> BaseModel:
        """The recorded outcome, as the live call gave it."""
        result = self.past.reconciled if self.past.result is None else self.past.result
        try:
            match result:
                case e.ToolFailed():
                    said = payload_of(result)
                    raise ToolFailure(
                        self.tool.name, result.code, said.get("message", ""), said.get("details")
                    )
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
                        Broken(
                            "unexpected_record", {"slot": self.slot, "found": type(result).__name__}
                        )
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
            return self.tool.output.model_validate(event.payload)
        except ValidationError as error:
            raise ToolFailure(
                self.tool.name, "bad_callback", f"the callback's body does not fit: {error}"
            ) from error

    # --- an intent without a result ---

    async def _resume(self) -> BaseModel:
        """What the replay class allows for a call that may or may not have happened."""
        past, intent = self.past, payload_of(self.past.intent)
        self.key, self.token = intent.get("key"), intent.get("callback_token")
        self.arguments = intent["arguments"]
        self.args = self.tool.input.model_validate(self.arguments)
        if past.unknown is not None:
            raise await self._ask_again()
        if past.accepted is not None:
            if past.waits.get(("webhook", 0)) == "timed_out":
                raise ToolFailure(
                    self.tool.name,
                    "no_answer",
                    "no callback came before the deadline",
                    payload_of(past.accepted),
                )
            raise self.visit.park(self._wait("webhook", 0))
        self._wait_for_timer()
        if past.is_in_doubt and not self.tool.is_pure:
            answer = await ask_hook(self.tool, self.args, self._tool_call())
            if isinstance(answer, Happened):
                return await self._reconciled_by_hook(answer)
            if self.tool.is_unsafe and not isinstance(answer, DidNotHappen):
                raise await self._unknown(
                    "the worker ended after the intent and before an outcome was recorded",
                    is_sender_done=False,
                )
        await self.visit.intend(self._resent())
        return await self._dispatch()

    def _wait_for_timer(self) -> None:
        """If a retry timer of this attempt still runs, park on it."""
        n = self.past.open_wait("timer")
        if n is not None:
            raise self.visit.park(self._wait("timer", n))

    def _resent(self) -> e.ToolRedispatched:
        self.past.resends += 1
        return e.ToolRedispatched(
            slot=self.slot, attempt=self.attempt, tool=self.tool.name, n=self.past.resends
        )

    async def _reconciled_by_hook(self, answer: Happened) -> BaseModel:
        output = self._checked(answer.output)
        result = output.model_dump(mode="json")
        event = e.ToolReconciled(
            slot=self.slot,
            attempt=self.attempt,
            tool=self.tool.name,
            verdict="happened",
            by="hook",
            payload={"result": result},
        )
        entry = self._entry(
            "reconciled", external_id=self.tool.external_id_of(result), digest=_digest(result)
        )
        self.visit.boundary(await self.visit.record(event, entries=[entry], usage=STEP))
        return output

    # --- gate and intent ---

    async def _pass_gate(self) -> tuple[str, str] | None:
        """The grant that the intent will consume, or None where no gate stands. A later attempt needs no second grant."""
        if self.record.was_invoked:
            return None
        gate = self.tool.gate
        if self.record.gate is None:
            if self.grant is not None:
                if self.grant.requested_hash != self.requested_hash:
                    raise self.visit.unwind(
                        Broken(
                            "grant_mismatch",
                            {
                                "slot": self.slot,
                                "granted": self.grant.requested_hash,
                                "now": self.requested_hash,
                            },
                        )
                    )
                return self.grant.slot, self.grant.plan_hash
            if gate is None or not gate.is_needed(self.args):
                return None
            headline = gate.headline(self.args) if gate.headline else ""
            plan = plan_of(
                self.visit, self.slot, queue=gate.queue, rule=gate.rule, tool=self.tool.name, arguments=self.arguments, title=self.tool.title,
                effect=self.tool.effect, headline=headline, evidence=self.evidence,
            )  # fmt: skip
            await open_gate(
                self.visit,
                self.slot,
                plan,
                requested_hash=self.requested_hash,
                why=self.why,
                within=gate.within,
            )
        grant = decided(
            self.visit, self.slot, self.record, tool=self.tool.name, arguments=self.arguments
        )
        return grant.slot, grant.plan_hash

    async def _intend(self, grant: tuple[str, str] | None) -> None:
        """TX1, with everything that a repeat will need to send the same bytes."""
        visit, tool = self.visit, self.tool
        if not tool.is_unsafe and not tool.is_pure:
            self.key = idempotency_key(visit.run_id, self.slot, self.attempt)
        wait = None
        stored: dict[str, Any] = {"arguments": self.arguments, "key": self.key}
        if tool.answers_later:
            self.token = stored["callback_token"] = secrets.token_urlsafe(32)
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
                event,
                *opened,
                entry=None if tool.is_pure else self._entry("pending"),
                grant=grant,
                wait=wait,
            )
        except ApprovalMissing as error:
            raise visit.unwind(
                Broken(
                    "approval_missing",
                    {"slot": self.slot, "tool": tool.name, "problem": str(error)},
                )
            ) from error
        self.past.intent = event

    # --- sending and recording ---

    async def _dispatch(self) -> BaseModel:
        """Send, and retry what may be retried, until there is an outcome on record."""
        policy, tries, began = self.visit.runtime.retry, 0, time.monotonic()
        while True:
            tries += 1
            try:
                answer = await self._send()
            except BusinessFailure as refusal:
                raise await self._failed(refusal) from refusal
            except NotSent as error:
                trouble: Exception = error
                if self.tool.is_unsafe:
                    await self._not_sent(error)
            except (TransportError, TimeoutError) as error:
                trouble = error
                if self.tool.is_unsafe:
                    is_done = not isinstance(error, TimeoutError) or inspect.iscoroutinefunction(
                        self.tool.function
                    )
                    raise await self._unknown(story(error), is_sender_done=is_done) from error
            except Exception as bug:
                if self.tool.is_unsafe:
                    raise await self._unknown(story(bug), is_sender_done=True) from bug
                raise self.visit.unwind(
                    Crashed("tool_error", f"{self.tool.name}: {brief(bug)}", traceback.format_exc())
                ) from bug
            else:
                return await self._answered(answer)
            delay = policy.delay(tries)
            if time.monotonic() - began + delay > policy.in_place:
                raise await self._try_later(trouble)
            await self.visit.rest(delay)
            if self.past.intent is not None:
                await self.visit.intend(self._resent())

    async def _send(self) -> Any:
        """One try. What it raises says what is known of it."""
        call = self._tool_call()
        self.visit.runtime.hit("CP2", self.tool.name)
        if inspect.iscoroutinefunction(self.tool.function):
            answer = await asyncio.wait_for(self.tool.function(self.args, call), self.tool.timeout)
        else:
            loop = asyncio.get_running_loop()
            answer = await asyncio.wait_for(
                loop.run_in_executor(
                    self.visit.runtime.threads, self.tool.function, self.args, call
                ),
                self.tool.timeout,
            )
        self.visit.runtime.hit("CP4", self.tool.name)
        return answer

    async def _answered(self, answer: Any) -> BaseModel:
        if isinstance(answer, Pending):
            raise await self._accepted(answer)
        output = self._checked(answer)
        result = output.model_dump(mode="json")
        if self.past.intent is None:
            event: e.Event = e.ToolRead(
                slot=self.slot, attempt=self.attempt, tool=self.tool.name, requested_hash=self.requested_hash,
                payload={"arguments": self.arguments, "result": result},
            )  # fmt: skip
            entries = []
        else:
            external = self.tool.external_id_of(result)
            event = e.ToolReturned(
                slot=self.slot,
                attempt=self.attempt,
                tool=self.tool.name,
                external_id=external,
                payload={"result": result},
            )
            entries = (
                []
                if self.tool.is_pure
                else [self._entry("committed", external_id=external, digest=_digest(result))]
            )
        reply = await self.visit.record(event, entries=entries, usage=STEP)
        self.visit.runtime.hit("CP6", self.tool.name)
        self.visit.boundary(reply)
        return output

    async def _accepted(self, answer: Pending) -> BaseException:
        """Upstream will answer by callback: the run waits for it, or goes on at once if it came already."""
        event = e.ToolAccepted(
            slot=self.slot,
            attempt=self.attempt,
            tool=self.tool.name,
            payload={"receipt": answer.receipt},
        )
        self.visit.boundary(await self.visit.record(event, usage=STEP))
        return self.visit.park(self._wait("webhook", 0))

    async def _failed(self, refusal: BusinessFailure) -> Exception:
        payload = {
            "message": refusal.message,
            "details": refusal.details,
            "arguments": self.arguments,
        }
        event = e.ToolFailed(
            slot=self.slot,
            attempt=self.attempt,
            tool=self.tool.name,
            code=refusal.code,
            requested_hash=self.requested_hash,
            payload=payload,
        )
        entries = (
            []
            if self.past.intent is None or self.tool.is_pure
            else [self._entry("failed", digest=_digest(payload))]
        )
        self.visit.boundary(await self.visit.record(event, entries=entries, usage=STEP))
        return ToolFailure(self.tool.name, refusal.code, refusal.message, refusal.details)

    async def _not_sent(self, error: NotSent) -> None:
        """Put the proof on record, so that a crash from here on leaves nothing in doubt."""
        self.past.not_sents += 1
        event = e.ToolNotDispatched(
            slot=self.slot,
            attempt=self.attempt,
            tool=self.tool.name,
            n=self.past.not_sents,
            payload={"error": error.message},
        )
        self.visit.boundary(await self.visit.record(event))

    async def _unknown(self, reason: str, *, is_sender_done: bool) -> BaseException:
        """Never repeated unasked: a person settles it."""
        event = e.ToolOutcomeUnknown(
            slot=self.slot,
            attempt=self.attempt,
            tool=self.tool.name,
            is_sender_done=is_sender_done,
            payload={"reason": reason, "arguments": self.arguments},
        )
        wait = self._reconcile_wait(0)
        await self.visit.record(
            event, opened_event(wait), entries=[self._entry("unknown")], wait=wait
        )
        return self.visit.park(wait)

    async def _ask_again(self) -> BaseException:
        """Wait for the person's verdict. A retried run whose verdict was *fail* asks anew: the outcome is as unknown as before."""
        n = self.past.open_wait("reconcile")
        if n is not None:
            return self.visit.park(self._wait("reconcile", n))
        wait = self._reconcile_wait(self.past.waits_of("reconcile"))
        await self.visit.record(opened_event(wait), wait=wait)
        return self.visit.park(wait)

    async def _try_later(self, trouble: Exception) -> BaseException:
        """The outage lasts: free the worker slot and come back by a durable timer. The same key and bytes go out again."""
        n = self.past.waits_of("timer")
        seconds = self.visit.runtime.retry.timer(n)
        detail = {
            "tool": self.tool.name,
            "title": self.tool.title,
            "retry": n + 1,
            "error": brief(trouble),
        }
        wait = self._wait("timer", n, detail=detail, within=timedelta(seconds=seconds))
        await self.visit.record(opened_event(wait, {"error": story(trouble)}), wait=wait)
        return self.visit.park(wait)

    # --- small parts ---

    def _tool_call(self) -> ToolCall:
        url = self.visit.runtime.callback_url(self.token) if self.token else None
        return ToolCall(
            self.visit.run_id,
            self.visit.trace_id,
            self.tool.name,
            self.slot,
            self.attempt,
            self.key,
            url,
            self.tool.timeout,
        )

    def _entry(self, fact: str, **more: str | None) -> Entry:
        return Entry(
            self.slot, self.attempt, fact, self.tool.name, str(self.tool.replay_class), key=self.key, input_hash=self.requested_hash,
            external_id=more.get("external_id"), digest=more.get("digest"),
        )  # fmt: skip

    def _wait(
        self,
        kind: str,
        n: int,
        *,
        detail: dict[str, Any] | None = None,
        within: timedelta = timedelta(0),
        token: str | None = None,
    ) -> WaitSpec:
        hashed = hashlib.sha256(token.encode()).digest() if token else None
        return WaitSpec(
            self.visit.run_id,
            self.slot,
            self.attempt,
            kind,
            n,
            self.visit.journal.now() + within,
            detail or {},
            hashed,
        )

    def _reconcile_wait(self, n: int) -> WaitSpec:
        return self._wait(
            "reconcile",
            n,
            detail={"tool": self.tool.name, "title": self.tool.title, "attempt": self.attempt},
            within=ATTENTION,
        )

    def _checked(self, answer: Any) -> BaseModel:
        """A tool must return what it declared; anything else is a bug of the tool, found before it is recorded."""
        try:
            return (
                answer
                if isinstance(answer, self.tool.output)
                else self.tool.output.model_validate(answer)
            )
        except ValidationError as error:
            what = Crashed(
                "tool_result",
                f"{self.tool.name} returned something else than {self.tool.output.__name__}",
                str(error),
            )
            raise self.visit.unwind(what) from error


async def ask_hook(tool: Tool, args: BaseModel, call: ToolCall) -> Happened | DidNotHappen | None:
    """Ask upstream, through the tool's reconcile hook, what became of a call. No hook, or no answer: None."""
    if tool.reconcile is None:
        return None
    try:
        return await asyncio.wait_for(tool.reconcile(args, call), tool.timeout)
    except (NotSent, TransportError, TimeoutError, BusinessFailure) as error:
        log.warning(
            "run %s: the reconcile hook of %s gave no answer: %s",
            call.run_id,
            tool.name,
            brief(error),
        )
        return None


def opened_event(wait: WaitSpec, payload: Any = None) -> e.WaitOpened:
    return e.WaitOpened(
        slot=wait.slot,
        attempt=wait.attempt,
        wait=wait.kind,
        n=wait.n,
        deadline=wait.deadline.isoformat(),
        payload=payload,
    )


def _digest(result: Any) -> str:
    return "sha256:" + hashlib.sha256(canonical(result)).hexdigest()


def brief(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:500]


def story(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))[-8000:]
