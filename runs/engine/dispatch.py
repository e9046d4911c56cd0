"""Sending one call and putting its outcome on record: the second half of the step protocol, and its retries.

CP2  intent durable, nothing sent       CP3  upstream did it, answer not here       CP4  answer here, not durable
CP6  result durable, next step not begun
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic import BaseModel

from ledger import events as e
from runs.engine.canonical import plain, printable
from runs.engine.errors import BusinessFailure, MisusedContext, NotSent, ToolFailure, TransportError
from runs.engine.journal import Entry, Grant, Reply, Usage, WaitSpec
from runs.engine.outcomes import Crashed, LateAnswer, Stopped, Unwind
from runs.engine.tape import Attempt
from runs.engine.tools import FOR_DISPATCH, Evidence, Pending, Tool, ToolCall
from runs.engine.visit import Visit, is_being_cancelled

ATTENTION = timedelta(days=7)  # how long a person has to settle an unknown outcome before it counts as overdue
_DIGESTED = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
STEP = Usage(steps=1, tool_calls=1)
# How many tries one announcement covers: about what a round in place takes. See docs/decisions/0002.
BURST = 16


class Dispatch(ABC):
    """One logical call in the hands of its visit."""

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
        if visit.agent.tool(tool.name) is not tool:
            # What becomes of a call in doubt is found out through the agent, by whoever settles it, in whatever process.
            raise MisusedContext(
                f"{visit.agent.graph_id} does not declare the tool {tool.name!r}: name it in tools=[…], or in an assistant's"
            )
        self.visit, self.slot, self.tool = visit, slot, tool
        self.evidence, self.why, self.grant = evidence, why, grant
        # What is sent is made from what is recorded, the first time as on a repeat: so the bytes are the same.
        self.arguments = plain(args)
        self.args = tool.input.model_validate(self.arguments)
        self.requested_hash = visit.runtime.hasher({"tool": tool.name, "arguments": self.arguments})
        self.record = visit.remember(slot, tool.name, self.requested_hash, self.arguments)
        self.attempt = self.record.current
        self.key: str | None = None
        self.token: str | None = None
        self.intended_at: datetime | None = None  # by the database's clock; only where the tool's keys have a lifetime
        self.lingers = False  # a blocking try timed out, and its thread may still be sending
        self.announced = 0  # tries that the journal has told of and that were not made yet
        # Stored with the intent: a repeat must send the same bytes, also after the installation moved to another address.
        self.callback_base = visit.runtime.callback_url("") if tool.answers_later else ""

    @property
    def past(self) -> Attempt:
        """What is on record of the attempt in force."""
        return self.record.at(self.attempt)

    @property
    def is_key_spent(self) -> bool:
        """Whether the other side may have forgotten the key, so that a repeat could be taken for a second order. Counted from the first
        intent: that is when it may have learnt the key. An intent that doesn't say when it was made counts as too old."""
        if self.key is None or self.tool.key_ttl is None:
            return False
        return self.intended_at is None or self.visit.journal.now() >= self.intended_at + self.tool.key_ttl

    @abstractmethod
    async def settle_doubt(self, *, is_sender_done: bool) -> BaseModel | None:
        """What the other side says of a call in doubt, or None if it may be sent again. Unwinds where only a person can tell."""

    async def dispatch(self) -> BaseModel:
        """Send, and retry what may be retried, until there is an outcome on record."""
        if not self.tool.is_unsafe:
            return await self._dispatch()
        with self.visit.control.unsafe_call():
            return await self._dispatch()

    async def _dispatch(self) -> BaseModel:
        policy, tries, began = self.visit.runtime.retry, 0, time.monotonic()
        while True:
            tries += 1
            try:
                answer = await self._answer()
            except NotSent as error:
                trouble: Exception = error
                if self.tool.is_unsafe:
                    await self._not_sent(error)
            except (TransportError, TimeoutError) as error:
                trouble = error
                if self.tool.is_unsafe:
                    is_done = not isinstance(error, TimeoutError) or self.tool.is_async
                    raise await self.unknown(story(error), is_sender_done=is_done) from error
            except (Exception, asyncio.CancelledError) as bug:
                if isinstance(bug, asyncio.CancelledError) and is_being_cancelled():
                    raise
                raise await self._bug(bug) from bug
            else:
                return await self._answered(answer)
            delay = policy.delay(tries, asked=getattr(trouble, "retry_after", None))
            if policy.is_over(time.monotonic() - began + delay, self.past.waits_of("timer")):
                raise await self._try_later(trouble)
            await self.visit.rest(delay)
            self.lingers |= isinstance(trouble, TimeoutError) and not self.tool.is_async
            if self.past.intent is not None and (known := await self.announced_in_time(is_sender_done=not self.lingers)) is not None:
                return known

    async def announced_in_time(self, *, is_sender_done: bool) -> BaseModel | None:
        """Announce a repeat while its key still protects. To put it on record may take as long as an outage of the database, so the key
        is looked at afterwards too. What the other side says of the call is the answer, if it has to be asked and knows."""
        while True:
            if self.is_key_spent and (known := await self.settle_doubt(is_sender_done=is_sender_done)) is not None:
                return known
            await self.announce()
            if not self.is_key_spent:
                return None

    async def announce(self) -> None:
        """Before a repeat leaves: have it on record that it may, and make sure that it still may. Unwinds if it may not.

        One fact covers a burst of tries under one claim; each of them is checked against fence, flags and a callback that came,
        which writes nothing. An unsafe call is told of try by try: each may follow a proof that the one before had not left.
        """
        if self.announced > 0:
            await self.visit.check_repeat(self.slot, self.attempt)
        else:
            self.announced = 1 if self.tool.is_unsafe else BURST
            self.past.resends += 1
            await self.visit.intend(
                e.ToolRedispatched(
                    slot=self.slot, attempt=self.attempt, tool=self.tool.name, n=self.past.resends, tries=self.announced
                )
            )
        self.announced -= 1

    async def _answer(self) -> Pending | BusinessFailure | Answer:
        """One try, told as it can be put on record. What it raises says what is known of it."""
        try:
            answer = await self._send()
        except BusinessFailure as no:
            return BusinessFailure(
                printable(no.message), code=printable(no.code), details=_plain(self.tool, no.details)
            )
        if self.tool.answers_later:
            if not isinstance(answer, Pending):
                raise BadAnswer(
                    f"{self.tool.name} answers later, so it has to return Pending, not {type(answer).__name__}"
                )
            return Pending(_plain(self.tool, answer.receipt), answer.within)
        return checked(self.tool, answer)

    async def _send(self) -> Any:
        call = self._tool_call()
        self.visit.runtime.hit("CP2", self.tool.name)
        if self.visit.runtime.is_fenced():
            # Others may take this worker for dead by now. Nothing left, and that goes on record if the run is still ours.
            raise NotSent("this worker lost its place in the fleet between the intent and the call: not sent")
        function = self.tool.opened(FOR_DISPATCH)
        async with asyncio.timeout(self.tool.timeout):
            if self.tool.is_async:
                answer = await _no_exit(function(self.args, call))
            else:
                loop = asyncio.get_running_loop()
                answer = await loop.run_in_executor(self.visit.runtime.threads, function, self.args, call)
        self.visit.runtime.hit("CP4", self.tool.name)
        return answer

    async def _answered(self, answer: Pending | BusinessFailure | Answer) -> BaseModel:
        if isinstance(answer, Pending):
            raise await self._accepted(answer)
        if isinstance(answer, BusinessFailure):
            raise await self._failed(answer)
        result = answer.result
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
                [] if self.tool.is_pure else [self._entry("committed", external_id=external, digest=digest_of(result))]
            )
        reply = await self._told(event, entries, self._late(result=result, external_id=self.tool.external_id_of(result)))
        self.visit.runtime.hit("CP6", self.tool.name)
        self.visit.boundary(reply)
        return answer.output

    def _late(self, **what: Any) -> LateAnswer:
        return LateAnswer(self.visit.run_id, self.slot, self.attempt, self.tool.name, **what)

    async def _told(self, event: e.Event, entries: Sequence[Entry], late: LateAnswer) -> Reply:
        """TX2 of an outcome. Where somebody else has the run by now, the answer is handed in as news: it may settle what they don't know."""
        try:
            return await self.visit.record(event, entries=entries, usage=STEP)
        except Unwind:
            if self.visit.has_lost_lease and self.past.intent is not None and not self.tool.is_pure:
                self.visit.runtime.hand_in(late)
            raise

    async def _accepted(self, answer: Pending) -> BaseException:
        """Upstream will answer by callback: the run waits for it, or goes on at once if it came already."""
        wait = self._wait("webhook", 0, within=answer.within)
        payload = {"receipt": answer.receipt, "deadline": wait.deadline.isoformat()}
        event = e.ToolAccepted(slot=self.slot, attempt=self.attempt, tool=self.tool.name, payload=payload)
        self.visit.boundary(await self.visit.record(event, usage=STEP, wait=wait))
        return self.visit.park(wait)

    async def _bug(self, bug: BaseException) -> BaseException:
        """The tool's code broke, so what it did before is anybody's guess: unsafe is unknown, the rest fails the run."""
        if self.tool.is_unsafe:
            return await self.unknown(story(bug), is_sender_done=True)
        code = "tool_result" if isinstance(bug, BadAnswer) else "tool_error"
        return self.visit.unwind(Crashed(code, f"{self.tool.name}: {brief(bug)}", story(bug)))

    async def _failed(self, refusal: BusinessFailure) -> Exception:
        payload = {"message": refusal.message, "details": refusal.details, "arguments": self.arguments}
        event = e.ToolFailed(
            slot=self.slot,
            attempt=self.attempt,
            tool=self.tool.name,
            code=refusal.code,
            requested_hash=self.requested_hash,
            payload=payload,
        )
        entries = (
            [] if self.past.intent is None or self.tool.is_pure else [self._entry("failed", digest=digest_of(payload))]
        )
        self.visit.boundary(await self._told(event, entries, self._late(failure=payload | {"code": refusal.code})))
        return ToolFailure(self.tool.name, refusal.code, refusal.message, refusal.details)

    async def _not_sent(self, error: NotSent) -> None:
        """Put the proof on record, so that a crash from here on leaves nothing in doubt."""
        self.past.not_sents += 1
        event = e.ToolNotDispatched(
            slot=self.slot,
            attempt=self.attempt,
            tool=self.tool.name,
            n=self.past.not_sents,
            payload={"error": printable(error.message)},
        )
        self.visit.boundary(await self.visit.record(event))

    async def unknown(self, reason: str, *, is_sender_done: bool) -> BaseException:
        """Never repeated unasked: a person settles it."""
        event = e.ToolOutcomeUnknown(
            slot=self.slot,
            attempt=self.attempt,
            tool=self.tool.name,
            is_sender_done=is_sender_done,
            payload={"reason": reason, "arguments": self.arguments},
        )
        wait = self._reconcile_wait(0)
        reply = await self.visit.record(event, opened_event(wait), entries=[self._entry("unknown")], wait=wait)
        return self.visit.park(wait) if reply.is_done else self.visit.unwind(Stopped("overtaken"))

    async def _try_later(self, trouble: Exception) -> BaseException:
        """The outage lasts: free the worker slot and come back by a durable timer. The same key and bytes go out again."""
        n = self.past.waits_of("timer")
        seconds = self.visit.runtime.retry.timer(n, asked=getattr(trouble, "retry_after", None))
        detail = {"tool": self.tool.name, "title": self.tool.title, "retry": n + 1, "error": brief(trouble)}
        wait = self._wait("timer", n, detail=detail, within=timedelta(seconds=seconds))
        told = {"error": story(trouble), "call": self.tool.name, "hash": self.requested_hash}
        await self.visit.record(opened_event(wait, told), wait=wait)
        return self.visit.park(wait)

    # --- small parts ---

    def _tool_call(self) -> ToolCall:
        url = self.callback_base + self.token if self.token else None
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
            self.visit.run_id, self.slot, self.attempt, kind, n, self.visit.journal.now() + within, detail or {}, hashed
        )

    def _reconcile_wait(self, n: int) -> WaitSpec:
        return self._wait(
            "reconcile",
            n,
            detail={"tool": self.tool.name, "title": self.tool.title, "attempt": self.attempt},
            within=ATTENTION,
        )


class BadAnswer(Exception):
    """A tool gave something that isn't what it declared, or that can't be put on record."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A call's result: as the node sees it, and as it is recorded. The one is made from the other, as on a replay."""

    output: BaseModel
    result: Any


def checked(tool: Tool, answer: Any) -> Answer:
    """What a tool gave, as its declared output. Raises BadAnswer."""
    try:
        given = answer if isinstance(answer, tool.output) else tool.output.model_validate(answer)
        result = plain(given)
        return Answer(tool.output.model_validate(result), result)
    except ValueError as error:
        raise BadAnswer(f"{tool.name} returned something else than {tool.output.__name__}: {error}") from error


def _plain(tool: Tool, value: Any) -> Any:
    try:
        return plain(value)
    except ValueError as error:
        raise BadAnswer(f"what {tool.name} said besides its result: {error}") from error


async def _no_exit(calling: Awaitable[Any]) -> Any:
    """A tool's `sys.exit()` would end the worker and every run in it."""
    try:
        return await calling
    except SystemExit as error:
        raise RuntimeError(f"it tried to end the worker process with exit code {error.code}") from error


def opened_event(wait: WaitSpec, payload: Any = None) -> e.WaitOpened:
    return e.WaitOpened(
        slot=wait.slot,
        attempt=wait.attempt,
        wait=wait.kind,
        n=wait.n,
        deadline=wait.deadline.isoformat(),
        payload=payload,
    )


def digest_of(result: Any) -> str:
    """Of sorted compact JSON: RFC 8785's form would refuse a 64-bit id, after the effect."""
    return "sha256:" + hashlib.sha256(_DIGESTED.encode(result).encode()).hexdigest()


def brief(error: BaseException) -> str:
    return str(printable(f"{type(error).__name__}: {error}"[:500]))


def story(error: BaseException) -> str:
    return str(printable("".join(traceback.format_exception(error))[-8000:]))
