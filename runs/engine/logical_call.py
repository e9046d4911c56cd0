"""One logical call of a tool: what the node asks for, and what this visit knows of it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, NoReturn

from pydantic import BaseModel, ValidationError

from ledger import events as e
from ledger.kinds import CONTENT_REFUSED
from ledger.protocol import SECRET_KEYS
from runs.engine.amending import arguments_of, editable_of, moved_along
from runs.engine.canonical import as_recorded, callback_token, digest_of, has_at_most, token_digest
from runs.engine.content.hooks import MAX_FOR_TOOL
from runs.engine.errors import POLICY_DENIED, PolicyDenied, ToolFailure, describe_error
from runs.engine.gating.documents import Document, build_documents
from runs.engine.guards import Guard
from runs.engine.journal import Batch, Entry, Grant, Intent, WaitSpec
from runs.engine.outcomes import Broken
from runs.engine.policy import Demand, Judged
from runs.engine.screening import recorded_replacements, refusal
from runs.engine.tape import Slot, payload_of
from runs.engine.tools import Answer, Evidence, Pending, Tool, ToolCall, Undo
from runs.engine.undo import OF_THE_TOOL as OF_THE_TOOL
from runs.engine.undo import OfTheTool, name_of
from runs.engine.visit import Visit


@dataclass(frozen=True, slots=True)
class Refusal:
    """A definite refusal from upstream, in recordable form."""

    code: str
    message: str
    details: Any


@dataclass(frozen=True, slots=True)
class Settled:
    """Upstream's answer about a call's outcome, already recorded."""

    output: BaseModel


ARGUMENTS = "arguments"  # the only place of a call that hooks check
AskedUndo = Undo | OfTheTool | None
Outcome = Answer | Pending | Refusal | Settled


@dataclass(frozen=True, slots=True)
class CallSpec:
    """A call as a node, or a model of it, asks for it. `evidence` and `why` are for approvers, `grant` is an earlier
    approval; `source` says who asks (`node` or `model`), `name` which of them."""

    tool: Tool
    args: BaseModel
    evidence: Sequence[Evidence] = ()
    why: str = ""
    grant: Grant | None = None
    max_age: timedelta | None = None
    undo: AskedUndo = OF_THE_TOOL
    source: str = "node"
    name: str = ""
    documents: Sequence[Document] = ()


class LogicalCall:
    """A call and its current attempt. A replay that finds an intent sends what it says."""

    def __init__(self, visit: Visit, slot: str, spec: CallSpec) -> None:
        self.visit, self.slot, self.spec = visit, slot, spec
        self.tool = tool = spec.tool
        self.limit_key = f"tool:{tool.name}"  # of its limits and halts
        # The recorded arguments are sent, so that first try and repeat send the same bytes.
        self.arguments, self.args = as_recorded(spec.args, tool.input)
        self.requested_hash = visit.runtime.hasher({"tool": tool.name, "arguments": self.arguments})
        self.executed_hash = self.requested_hash  # differs if a hook or a person changed the arguments
        self.record = record = visit.recall(slot, tool.name, self.requested_hash, self.arguments)
        self.is_new = not record.attempts
        self.attempt, self.past = record.current, record.at(record.current)
        # What is sent, and when it may be sent again.
        self.key: str | None = None
        self.token: str | None = None
        self.secret = visit.runtime.call_secret if visit.created.protocol >= SECRET_KEYS else None
        # Stored with the intent: a repeat must send the same bytes even after the installation's address changed.
        self.callback_base = visit.runtime.callback_url("") if tool.answers_later else ""
        self.intended_at: datetime | None = None  # by the database's clock; only if the tool's keys expire
        self.is_resumed = False  # its intent is from an earlier claim
        self.may_have_been_sent = False  # and nothing has shown since that it did not happen
        self.tries_left = 0  # recorded tries not made yet
        self.cleared_at = 0.0  # time when it was last known not to be halted
        self.may_still_send = False  # a blocking try timed out, and its thread may still be sending
        self.abandoned: Callable[[Callable[[], None]], None] | None = None  # calls back once that thread is done
        # What people and guards know of it.
        self.grant = spec.grant
        self.grant_record: Slot | None = None  # the question of that grant, and its other users
        self.grant_users: Collection[str] = ()
        self.grant_problem = ""  # why there is no approval: see gate.py
        self.original_args: BaseModel | None = None  # the requested arguments, if a person changed them
        self.misfit = ""  # why amended arguments can't be sent
        self.judged: Judged | None = None  # by the policies in force, if there are any
        self.needs_fresh_policies = False  # guards must go by what is in force now, not by a cache
        self.began_at: datetime | None = None  # when a read began whose age matters
        self.hold: Any = None  # its permits, if it is limited
        self.marks: dict[str, Any] = {}  # further fields of its intent
        if not self.is_new:
            self._take_changes()
        # A new, small call without waits meets only the guards in force; all others meet every guard.
        past, guards = self.past, visit.runtime.guards
        is_plain = past.intent is None and past.result is None and not past.waits
        if is_plain and has_at_most(self.arguments, MAX_FOR_TOOL):
            guards = visit.guards_for(tool)
        self.guards: Sequence[Guard] = guards
        if spec.max_age is not None or tool.cache is not None:
            self.began_at = visit.journal.now()

    def _take_changes(self) -> None:
        """Continue with the arguments that hooks or people put in place of the requested ones."""
        record = self.record
        if any(each.screenings for each in record.attempts.values()) and ARGUMENTS in (
            replaced := recorded_replacements(record)
        ):
            self.replace(replaced[ARGUMENTS])
        if record.amended and (amended := arguments_of(record)) is not None:
            self.amend(amended)

    def go_to(self, attempt: int) -> None:
        """Switch to an attempt; `past` is its record."""
        self.attempt, self.past = attempt, self.record.at(attempt)

    def replace(self, arguments: Any) -> None:
        """Continue with a hook's replacement for the requested arguments."""
        self.take(arguments)
        self.executed_hash = self.visit.runtime.hasher({"tool": self.tool.name, "arguments": arguments})

    def amend(self, arguments: Any) -> None:
        """Continue with a person's arguments; if they don't fit, `misfit` says why and the gate asks again."""
        try:
            made = self.tool.input.model_validate(arguments)
        except ValidationError as error:
            self.misfit = f"the changed arguments do not fit the tool: {describe_error(error)}"
            return
        fields = editable_of(self.record)
        moved = [] if self.record.was_invoked else moved_along(self.tool, self.arguments, made, fields)
        if moved:
            self.misfit = f"the change also alters {', '.join(moved)}, which may not be edited"
        else:
            self.original_args = self.args
            self.replace(arguments)

    def take(self, arguments: Any) -> None:
        """Continue with recorded arguments; stop for an operator if they no longer fit the tool."""
        self.arguments = arguments
        try:
            self.args = self.tool.input.model_validate(arguments)
        except ValidationError as error:
            problem = f"the recorded arguments do not fit the tool's input: {error}"
            payload = {"slot": self.slot, "tool": self.tool.name, "problem": problem}
            self.visit.stop(Broken("recorded_arguments", payload))

    @cached_property
    def documents(self) -> tuple[Document, ...]:
        """The node's documents, or those its gate makes of the arguments before amendment. Raises ValueError."""
        gate, given = self.tool.gate, tuple(self.spec.documents)
        if given or gate is None or gate.documents is None:
            return given
        args = self.args if self.original_args is None else self.original_args
        return build_documents(gate.documents, args, self.tool.name)

    @property
    def demands(self) -> Sequence[Demand]:
        """The approvals that policies require of it."""
        return () if self.judged is None else self.judged.requirements

    @property
    def may_be_gated(self) -> bool:
        """Return whether an approval may be needed: by the tool's rule, a policy, a given grant, or the record."""
        is_demanded = self.judged is not None and self.judged.effect == "require"
        return is_demanded or not (
            self.tool.gate is None and self.grant is None and self.record.gate is None and not self.record.grants
        )

    @property
    def has_pending_entry(self) -> bool:
        """Return whether the ledger has a pending entry of the call, which its outcome must complete."""
        return self.past.intent is not None and not self.tool.is_pure

    @property
    def is_key_expired(self) -> bool:
        return self.tool.has_forgotten(self.key, self.intended_at, self.visit.journal.now())

    def intent(self) -> Intent:
        replay_class = str(self.tool.replay_class)
        return Intent(self.slot, self.attempt, self.tool.name, replay_class, self.key, self.requested_hash)

    def registered(self) -> list[e.Event]:
        """Return the event that registers how the effect is undone. Raises MisusedContext."""
        undo = self.spec.undo
        if undo is None or (isinstance(undo, OfTheTool) and self.tool.undo is None):
            return []
        agent = self.visit.agent
        known = agent.all_undos()
        name = name_of(known, self.tool, undo, agent.graph_id)
        return [e.UndoRegistered(slot=self.slot, attempt=self.attempt, undo=name, tool=known[name].tool.name)]

    def booked(self, fact: str, outcome: Any, *, external_id: str | None = None) -> list[Entry]:
        """Return the ledger's fact of its outcome, if one is due."""
        if self.past.intent is None or self.tool.is_pure:
            return []
        return [self.intent().entry(fact, external_id=external_id, digest=digest_of(outcome))]

    @property
    def is_repeated_read(self) -> bool:
        """Return whether a read is recorded already, so that this is a further one."""
        return self.past.intent is None and self.past.result is not None

    def repeated_read(self, payload: dict[str, Any], code: str = "") -> e.ToolReadAnew:
        """Return the result of a repeated read."""
        return e.ToolReadAnew(
            slot=self.slot,
            attempt=self.attempt,
            n=self.past.repeats,
            tool=self.tool.name,
            requested_hash=self.requested_hash,
            code=code,
            payload=payload,
        )

    def failure(self, code: str, payload: dict[str, Any]) -> Exception:
        """Return the error for a recorded definite refusal."""
        if code == CONTENT_REFUSED and (no := refusal(self.past)):
            return no
        if code == POLICY_DENIED and isinstance(policy := payload.get("policy"), dict):
            name, version = str(policy.get("name", "")), int(policy.get("version", 0))
            return PolicyDenied(self.tool.name, name, version, payload.get("message", ""))
        return ToolFailure(self.tool.name, code, payload.get("message", ""), payload.get("details"))

    def from_callback(self, event: e.CallbackReceived) -> BaseModel:
        """Return the output of a callback. Raises ToolFailure for a body that doesn't fit."""
        try:
            return self.tool.output_from_callback(payload_of(self.past.accepted).get("receipt"), event.payload)
        except ValueError as error:
            raise ToolFailure(self.tool.name, "bad_callback", f"the callback's body does not fit: {error}") from error

    def failed(self, code: str, payload: dict[str, Any]) -> e.Event:
        """Return the event of a definite refusal."""
        if self.is_repeated_read:
            return self.repeated_read(payload, code)
        return e.ToolFailed(
            slot=self.slot,
            attempt=self.attempt,
            tool=self.tool.name,
            code=code,
            requested_hash=self.requested_hash,
            payload=payload,
        )

    def tool_call(self) -> ToolCall:
        visit, tool = self.visit, self.tool
        url = self.callback_base + self.token if self.token else None
        return ToolCall(visit.run_id, visit.trace_id, tool.name, self.slot, self.attempt, self.key, url, tool.timeout)

    def make_token(self) -> dict[str, str]:
        """Give it a callback token. Return what its intent stores of that: the token, if it can't be derived again."""
        if self.secret is not None:
            self.token = callback_token(self.visit.run_id, self.slot, self.attempt, self.secret)
            return {}
        self.token = secrets.token_urlsafe(32)
        return {"callback_token": self.token}

    def take_keys(self, stored: dict[str, Any]) -> None:
        """Continue with the key and the callback address of its intent."""
        self.key, self.token = stored.get("key"), stored.get("callback_token")
        if "callback_base" in stored and self.token is None and self.secret is not None:
            self.make_token()
        self.callback_base = stored.get("callback_base", self.callback_base)

    def wait(
        self,
        kind: str,
        n: int,
        *,
        detail: dict[str, Any] | None = None,
        within: timedelta = timedelta(0),
        token: str | None = None,
    ) -> WaitSpec:
        """Return a wait of the call, from now."""
        hashed = token_digest(token) if token else None
        deadline = self.visit.journal.now() + within
        return WaitSpec(self.visit.run_id, self.slot, self.attempt, kind, n, deadline, detail or {}, hashed)

    @property
    def identity(self) -> dict[str, str]:
        """Name and hash, for a wait that may be the first thing on record of the call."""
        return {"call": self.tool.name, "hash": self.requested_hash}

    def facts(self) -> list[e.Event]:
        """Return what the guards add to the record of the call."""
        return [fact for guard in self.guards for fact in guard.facts(self)]

    async def park_until(self, when: datetime, why: str) -> NoReturn:
        """Park the run on a durable timer, on behalf of a guard. `why` completes "The call …" for people who may not
        read payloads. The guard is asked again once it has passed."""
        n = self.past.waits_of("timer")
        detail = {"tool": self.tool.name, "title": self.tool.title, "held": why}
        wait = WaitSpec(self.visit.run_id, self.slot, self.attempt, "timer", n, when, detail)
        await self.visit.commit(Batch([wait.opened({"held": why, **self.identity})], wait=wait))
        self.visit.park(wait)

    def park_on_timer(self) -> None:
        """Park if a retry timer of this attempt is still running."""
        n = self.past.open_wait("timer")
        if n is not None:
            self.visit.park(self.wait("timer", n))
