"""One logical call of a tool: the node's request, and what this visit knows about it."""

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
    """The upstream system's definite refusal of a call, in recordable form."""

    code: str
    message: str
    details: Any


@dataclass(frozen=True, slots=True)
class Settled:
    """The output of a call whose outcome is already recorded."""

    output: BaseModel


ARGUMENTS = "arguments"  # name of the place that hooks check; a call has only one
AskedUndo = Undo | OfTheTool | None
Outcome = Answer | Pending | Refusal | Settled


@dataclass(frozen=True, slots=True)
class CallSpec:
    """A call as requested by a node, or by a model on its behalf.

    `evidence` and `why` are for approvers, `grant` is an earlier approval. `source` tells who requests it (`node` or
    `model`), and `name` is the name of that node or assistant.
    """

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
    """A call and its current attempt.

    A replay that finds a recorded intent sends exactly the bytes of the intent.
    """

    def __init__(self, visit: Visit, slot: str, spec: CallSpec) -> None:
        self.visit, self.slot, self.spec = visit, slot, spec
        self.tool = tool = spec.tool
        self.limit_key = f"tool:{tool.name}"  # key of its limits and halts
        # The arguments are sent in their recorded form, so that the first try and a repeat send the same bytes.
        self.arguments, self.args = as_recorded(spec.args, tool.input)
        self.requested_hash = visit.runtime.hasher({"tool": tool.name, "arguments": self.arguments})
        self.executed_hash = self.requested_hash  # differs if a hook or a person changed the arguments
        self.record = record = visit.recall(slot, tool.name, self.requested_hash, self.arguments)
        self.is_new = not record.attempts
        self.attempt, self.past = record.current, record.at(record.current)
        # These fields determine what is sent, and when it may be sent again.
        self.key: str | None = None
        self.token: str | None = None
        self.secret = visit.runtime.call_secret if visit.created.protocol >= SECRET_KEYS else None
        # The address is stored with the intent: a repeat must send the same bytes even if the installation's address
        # changed.
        self.callback_base = visit.runtime.callback_url("") if tool.answers_later else ""
        self.intended_at: datetime | None = None  # by the database's clock; only if the tool's keys expire
        self.is_resumed = False  # whether its intent is from an earlier claim
        self.may_have_been_sent = False  # and nothing since has shown that it was not
        self.tries_left = 0  # tries that are recorded but not made yet
        self.cleared_at = 0.0  # monotonic time when it was last known not to be halted
        self.may_still_send = False  # a blocking try timed out, and its thread may still be sending
        self.abandoned: Callable[[Callable[[], None]], None] | None = None  # adds a callback for when that thread ends
        # These fields are for people and guards.
        self.grant = spec.grant
        self.grant_record: Slot | None = None  # the record of that grant's question
        self.grant_users: Collection[str] = ()
        self.grant_problem = ""  # why the grant isn't valid: see gate.py
        self.original_args: BaseModel | None = None  # the requested arguments, if a person changed them
        self.misfit = ""  # why amended arguments can't be sent
        self.judged: Judged | None = None  # verdict of the policies in force, if there are any
        self.needs_fresh_policies = False  # guards must use what is in force now, not a cache
        self.began_at: datetime | None = None  # when it began, if it is a read whose age matters
        self.hold: Any = None  # its permits, if it is limited
        self.marks: dict[str, Any] = {}  # further fields of its intent
        if not self.is_new:
            self._take_changes()
        # For a new call with small arguments and without waits, only the guards in force run; else every guard runs.
        past, guards = self.past, visit.runtime.guards
        is_plain = past.intent is None and past.result is None and not past.waits
        if is_plain and has_at_most(self.arguments, MAX_FOR_TOOL):
            guards = visit.guards_for(tool)
        self.guards: Sequence[Guard] = guards
        if spec.max_age is not None or tool.cache is not None:
            self.began_at = visit.journal.now()

    def _take_changes(self) -> None:
        """Replace the requested arguments with those set by hooks or people."""
        record = self.record
        if any(each.screenings for each in record.attempts.values()) and ARGUMENTS in (
            replaced := recorded_replacements(record)
        ):
            self.replace(replaced[ARGUMENTS])
        if record.amended and (amended := arguments_of(record)) is not None:
            self.amend(amended)

    def go_to(self, attempt: int) -> None:
        """Switch to another attempt, and set `past` to its record."""
        self.attempt, self.past = attempt, self.record.at(attempt)

    def replace(self, arguments: Any) -> None:
        """Replace the arguments that will be sent."""
        self.take(arguments)
        self.executed_hash = self.visit.runtime.hasher({"tool": self.tool.name, "arguments": arguments})

    def amend(self, arguments: Any) -> None:
        """Replace the arguments with those that a person entered.

        If these don't fit, `misfit` tells why, and the gate asks again.
        """
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
        """Use these recorded arguments. Stops for an operator if they no longer fit the tool."""
        self.arguments = arguments
        try:
            self.args = self.tool.input.model_validate(arguments)
        except ValidationError as error:
            problem = f"the recorded arguments do not fit the tool's input: {error}"
            payload = {"slot": self.slot, "tool": self.tool.name, "problem": problem}
            self.visit.stop(Broken("recorded_arguments", payload))

    @cached_property
    def documents(self) -> tuple[Document, ...]:
        """The documents given by the node, or made by the gate from the arguments before amendment.

        Raises ValueError.
        """
        gate, given = self.tool.gate, tuple(self.spec.documents)
        if given or gate is None or gate.documents is None:
            return given
        args = self.args if self.original_args is None else self.original_args
        return build_documents(gate.documents, args, self.tool.name)

    @property
    def demands(self) -> Sequence[Demand]:
        """The approvals that policies require for the call."""
        return () if self.judged is None else self.judged.requirements

    @property
    def may_be_gated(self) -> bool:
        """Return whether the call may need an approval, from the tool's rule, policies, a grant, or the record."""
        is_demanded = self.judged is not None and self.judged.effect == "require"
        return is_demanded or not (
            self.tool.gate is None and self.grant is None and self.record.gate is None and not self.record.grants
        )

    @property
    def has_pending_entry(self) -> bool:
        """Return whether the ledger has a pending entry for the call, which its outcome must complete."""
        return self.past.intent is not None and not self.tool.is_pure

    @property
    def is_key_expired(self) -> bool:
        return self.tool.has_forgotten(self.key, self.intended_at, self.visit.journal.now())

    def intent(self) -> Intent:
        replay_class = str(self.tool.replay_class)
        return Intent(self.slot, self.attempt, self.tool.name, replay_class, self.key, self.requested_hash)

    def registered(self) -> list[e.Event]:
        """Return the event that registers how the effect can be undone; empty if it can't be. Raises MisusedContext."""
        undo = self.spec.undo
        if undo is None or (isinstance(undo, OfTheTool) and self.tool.undo is None):
            return []
        agent = self.visit.agent
        known = agent.all_undos()
        name = name_of(known, self.tool, undo, agent.graph_id)
        return [e.UndoRegistered(slot=self.slot, attempt=self.attempt, undo=name, tool=known[name].tool.name)]

    def booked(self, fact: str, outcome: Any, *, external_id: str | None = None) -> list[Entry]:
        """Return the ledger's entry for the outcome. Empty for a read, and if there is no intent."""
        if self.past.intent is None or self.tool.is_pure:
            return []
        return [self.intent().entry(fact, external_id=external_id, digest=digest_of(outcome))]

    @property
    def is_repeated_read(self) -> bool:
        """Return whether a read already has a recorded result, so that this is a repeat."""
        return self.past.intent is None and self.past.result is not None

    def repeated_read(self, payload: dict[str, Any], code: str = "") -> e.ToolReadAnew:
        """Return the event for the result of a repeated read."""
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
        """Return the event for a definite refusal."""
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
        """Create a callback token.

        Return the form that the intent stores: the token itself only if it can't be derived again.
        """
        if self.secret is not None:
            self.token = callback_token(self.visit.run_id, self.slot, self.attempt, self.secret)
            return {}
        self.token = secrets.token_urlsafe(32)
        return {"callback_token": self.token}

    def take_keys(self, stored: dict[str, Any]) -> None:
        """Use the key and the callback address that the intent stored."""
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
        """Return a wait of the call with a deadline `within` from now."""
        hashed = token_digest(token) if token else None
        deadline = self.visit.journal.now() + within
        return WaitSpec(self.visit.run_id, self.slot, self.attempt, kind, n, deadline, detail or {}, hashed)

    @property
    def identity(self) -> dict[str, str]:
        """The call's name and hash, for a wait that may be the first record of the call."""
        return {"call": self.tool.name, "hash": self.requested_hash}

    def facts(self) -> list[e.Event]:
        """Return the events that guards add to the record of the call."""
        return [fact for guard in self.guards for fact in guard.facts(self)]

    async def park_until(self, when: datetime, why: str) -> NoReturn:
        """Park the run on a durable timer, on behalf of a guard. The guard runs again when the timer fires.

        `why` completes a sentence "The call …" and is shown to people who may not read payloads.
        """
        n = self.past.waits_of("timer")
        detail = {"tool": self.tool.name, "title": self.tool.title, "held": why}
        wait = WaitSpec(self.visit.run_id, self.slot, self.attempt, "timer", n, when, detail)
        await self.visit.commit(Batch([wait.opened({"held": why, **self.identity})], wait=wait))
        self.visit.park(wait)

    def park_on_timer(self) -> None:
        """Park if a retry timer of this attempt has not fired yet."""
        n = self.past.open_wait("timer")
        if n is not None:
            self.visit.park(self.wait("timer", n))
