"""Tools: functions with typed input and output that declare the effect of a repeated call."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property, wraps
from hashlib import sha256
from typing import Any, Final, NoReturn, ParamSpec, get_type_hints

from pydantic import BaseModel

from ledger import redacted, scrubbing
from ledger.spans import span_id, traceparent
from runs.engine.canonical import as_recorded, printable, unstable
from runs.engine.content.reads import MAX_CACHE
from runs.engine.errors import BadAnswer, DefinitionError, MisusedContext, describe_error
from runs.engine.gating import documents as shown
from runs.engine.gating.fields import RISKS as RISKS
from runs.engine.gating.fields import AmountRule, amount_entry, amount_problem, editable_problem, names_problem
from runs.engine.gating.fields import Evidence as Evidence
from runs.engine.gating.stages import Requirement, Stage
from runs.engine.gating.timing import MAX_WAIT, OnTimeout, Time, WorkingHours, problem_of
from runs.engine.limits import RateLimit
from runs.engine.secrets import Secret, names_of, takes_secrets

log = logging.getLogger("durableagents.engine")

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
MAX_EXTERNAL_ID = 500  # characters; an index takes at most 2,704 bytes
FINAL = "final_result"  # name of the output tool with which a model ends its loop
FOR_DISPATCH: Final = object()  # token that gives access to a tool's function
BY_RECEIPT: Final = object()  # validation context for a result made from a person's receipt


class ReplayClass(StrEnum):
    """The declared effect of a repeated call. It decides what happens to calls with an intent but no result."""

    PURE = "pure"
    IDEMPOTENT_WITH_KEY = "idempotent_with_key"
    UNSAFE_ON_REPLAY = "unsafe_on_replay"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """Facts about the current call, for a tool's function.

    `run_id` and `trace_id` identify the run; they stay the same when it is resumed. `tool` is the tool's name, `slot`
    the call's place in the run, and `attempt` the number of recorded decisions to send it again: 0 for the first
    attempt. `key` is the idempotency key to send with the call: it is the same for each repeat, and None for tools that
    aren't keyed.
    `callback_url` is the URL to which the upstream system sends its answer later; None unless the tool `answers_later`.
    `timeout` is in seconds. `secrets` are the values of the secrets that the tool declares or its input names, by name;
    read them with `secret`.
    """

    run_id: str
    trace_id: str
    tool: str
    slot: str
    attempt: int
    key: str | None = field(repr=False)
    callback_url: str | None = field(repr=False)
    timeout: float
    secrets: Mapping[str, str] | None = field(default=None, repr=False)

    @property
    def traceparent(self) -> str:
        """The W3C header that makes the upstream system's spans children of this call's span."""
        return traceparent(self.trace_id, span_id(self.run_id, self.slot, self.attempt, "call"))

    def secret(self, name: str) -> str:
        """Return the value of the secret `name`, a plain name or a `Secret`. The value was read just before the call.

        Raises MisusedContext for a secret that neither the tool declares nor its input names.
        """
        reference = Secret(name)
        if (value := (self.secrets or {}).get(reference.name)) is None:
            problem = f"the tool {self.tool!r} asks for {reference}, which it does not declare"
            raise MisusedContext(f"{problem}: add secrets=[{reference.name!r}] to its @tool")
        return value


@dataclass(frozen=True, slots=True)
class Pending:
    """Returned by a tool that answers later: the upstream system accepted the call and will call back.

    `receipt` is the upstream system's response (plain data, passed to `check_answer`), and `within` the time to wait
    for its answer (default 14 days).
    """

    receipt: Any = None
    within: timedelta = timedelta(days=14)

    def __post_init__(self) -> None:
        if not isinstance(self.within, timedelta) or abs(self.within) > MAX_WAIT:
            raise ValueError(f"Pending(within={self.within!r}): give a timedelta of at most {MAX_WAIT.days} days")


@dataclass(frozen=True, slots=True)
class Gate:
    """Declares which calls of a tool people must approve, who is asked, and why.

    `queue` is one of the installation's queues, whose people decide. `rule` tells them why they are asked. `when(args)`
    tells whether this call needs approval (default: every call); if it raises an error, the call needs approval, and
    the question says so. `headline(args)` is the decisive fact, such as the amount, in a few words. `within` (7 days)
    is the time they have to decide; it may be `WorkingHours(8)`, counted in the queue's calendar. After that time the
    call is denied, unless `on_timeout` says otherwise: reject (deny), escalate (also ask `escalate_to`, if the queue
    itself has no further queue), remind (wait without limit). If the queue has a different setting, the stricter one
    applies.

    `amount` is the amount at stake, for approvers with a limit: a function of the input that returns an `Amount`, or a
    field and a currency, such as "total USD". `quorum` (1) is the number of different people of `queue` who must
    approve; `then` are further stages, each asked after the previous one has approved: `then=[Stage("board",
    quorum=2)]`. Nobody may take part in two stages. One denial ends the approval. `editable` names the fields of the
    input that people may change when they approve (default: none), and `same` those that must match for a standing
    approval (default: all). `documents` is a function of the input that returns a list of `Document` to show too; it
    must return the same documents each time.

    Raises DefinitionError for empty texts, coroutine functions, and invalid times.
    """

    queue: str
    rule: str
    when: Callable[[Any], bool] = lambda args: True
    headline: Callable[[Any], str] | None = None
    within: timedelta | WorkingHours = timedelta(days=7)
    amount: AmountRule | None = None
    quorum: int = 1
    then: Sequence[Stage] = ()
    on_timeout: OnTimeout | None = None
    escalate_to: str = ""
    editable: Sequence[str] = ()
    same: Sequence[str] = ()
    documents: shown.Declared | None = None
    # These are derived from the other fields: the time settings, the required approvals, and the plan's entry for
    # stages.
    time: Time = field(init=False, repr=False, compare=False)
    requirement: Requirement = field(init=False, repr=False, compare=False)
    stages: dict[str, Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "time", Time(self.within, self.on_timeout, self.escalate_to))
        for name in ("queue", "rule"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name).strip():
                raise DefinitionError(f"Gate({name}={getattr(self, name)!r}): give a non-empty text")
        for name in ("when", "headline", "documents"):
            given = getattr(self, name)
            if shown.wrong(given) or (name == "when" and given is None):
                problem = "give a plain function of the tool's input"
                raise DefinitionError(f"Gate({name}={given!r}) of queue {self.queue!r}: {problem}")
        if problem := problem_of(self.time):
            raise DefinitionError(f"Gate(within={self.within!r}) of queue {self.queue!r}: {problem}")
        if wrong := "give no coroutine" if inspect.iscoroutinefunction(self.amount) else amount_problem(self.amount):
            raise DefinitionError(f"Gate(amount={self.amount!r}) of queue {self.queue!r}: {wrong}")
        for name in ("editable", "same"):
            if wrong := names_problem(given := getattr(self, name)):
                raise DefinitionError(f"Gate({name}={given!r}) of queue {self.queue!r}: {wrong}")
            object.__setattr__(self, name, tuple(given))
        requirement = Requirement.of(self.queue, self.quorum, self.then)
        object.__setattr__(self, "requirement", requirement)
        object.__setattr__(self, "then", requirement.stages[1:])
        object.__setattr__(self, "stages", requirement.in_plan())

    def rule_for(self, args: Any) -> str | None:
        """Return why a call with these `args` must be approved, as a text for approvers; None if that isn't required.

        If the rule raises, the call must be approved, and the text says so.
        """
        try:
            return self.rule if self.when(args) else None
        except Exception as error:  # the rule failed, so a person must decide
            problem = describe_error(error, 200)
        log.warning("the rule of the gate %r failed with %s: %s is asked", self.rule, problem, self.queue)
        return f"{self.rule} (the rule itself failed with {problem}, which counts as yes)"

    def is_needed(self, args: Any) -> bool:
        """Return whether a call with these `args` must be approved."""
        return self.rule_for(args) is not None

    def headline_for(self, args: Any) -> str:
        """Return the headline for these `args`; empty if it can't be created.

        It is only text, so an error in creating it must not prevent people from deciding.
        """
        try:
            return str(self.headline(args)) if self.headline else ""
        except Exception as error:
            log.warning("the headline of the gate %r could not be made: %s", self.rule, describe_error(error, 200))
            return ""

    def amount_for(self, args: Any) -> dict[str, Any]:
        """Return the plan's entry for the amount of a call with these `args`; empty if the gate declares no amount."""
        return {} if self.amount is None else {"amount": amount_entry(self.amount, args)}


@dataclass(frozen=True, slots=True)
class Happened:
    """A reconcile hook's answer: the effect exists, and `output` is the call's result."""

    output: Any


@dataclass(frozen=True, slots=True)
class DidNotHappen:
    """A reconcile hook's answer: the effect doesn't exist, and the earlier attempt can no longer have one."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A call's result: `output` for the node, `result` for the record.

    `output` is parsed from `result`, as it is on a replay.
    """

    output: BaseModel
    result: Any


@dataclass(frozen=True)
class Tool:
    """A registered tool.

    `opened(FOR_DISPATCH)` gives access to its function. Calling the tool directly is refused, so that no effect
    bypasses intent and gate by accident.
    """

    name: str
    title: str
    system: str
    effect: str
    replay_class: ReplayClass
    _function: Callable[..., Any] = field(repr=False)
    input: type[BaseModel]
    output: type[BaseModel]
    timeout: float = 30.0
    key_ttl: timedelta | None = None
    gate: Gate | None = None
    answers_later: bool = False
    external_id: str | None = None
    reconcile: Callable[..., Awaitable[Happened | DidNotHappen | None]] | None = None
    on_receipt: Callable[[Any, Any], Any] | None = None
    check_answer: Callable[[Any, Any], str | None] | None = None
    description: str = ""
    sequential: bool = False
    rate_limit: RateLimit | None = None
    cache: timedelta | None = None
    shared: bool = False
    parts: dict[str, Any] = field(default_factory=dict)
    undo: Undo | None = None
    risk: str = ""
    link: Callable[[Any], str | None] | None = None
    secrets: tuple[str, ...] = ()
    redact: tuple[str, ...] = ()

    @cached_property
    def uses_secrets(self) -> bool:
        """Return whether a call of the tool may need the values of secrets."""
        return bool(self.secrets) or takes_secrets(self.input)

    @cached_property
    def is_pure(self) -> bool:
        """Return whether the tool only reads."""
        return self.replay_class is ReplayClass.PURE

    @cached_property
    def is_unsafe(self) -> bool:
        """Return whether the upstream system can't distinguish a repeat from a second order."""
        return self.replay_class is ReplayClass.UNSAFE_ON_REPLAY

    def has_forgotten(self, key: str | None, intended_at: datetime | None, now: datetime) -> bool:
        """Return whether the upstream system may have forgotten a key since its first intent.

        Return True if the time of the intent is unknown.
        """
        if key is None or self.key_ttl is None:
            return False
        return intended_at is None or now >= intended_at + self.key_ttl

    @cached_property
    def is_async(self) -> bool:
        """Return whether the function is async. Other functions run in a thread, which can't be interrupted."""
        return inspect.iscoroutinefunction(self._function)

    def opened(self, token: object) -> Callable[..., Any]:
        """Return the function, for a caller that has recorded the call's intent.

        Raises TypeError unless `token` is FOR_DISPATCH.
        """
        if token is not FOR_DISPATCH:
            self()
        return self._function

    @property
    def function(self) -> Callable[..., Any]:
        """Raise TypeError, as a direct call does."""
        self()

    def external_id_of(self, output: dict[str, Any]) -> str | None:
        """Return the effect's id in the upstream system, if the tool declares which output field holds it; else None.

        An id that is too long for the index is cut, and a digest of the whole id is appended. The result contains the
        whole id.
        """
        value = output.get(self.external_id) if self.external_id else None
        return None if value is None else as_external_id(value)

    def checked(self, answer: Any) -> Answer:
        """Return a try's result, parsed as the declared output. Raises BadAnswer."""
        try:
            given = answer if isinstance(answer, self.output) else self.output.model_validate(answer)
            result, output = as_recorded(given, self.output)
            if scrubbing.scrubber is not None and (cleaned := scrubbing.scrubbed(result)) != result:
                result, output = as_recorded(self.output.model_validate(cleaned), self.output)
            return Answer(output, result)
        except ValueError as error:
            raise BadAnswer(f"{self.name} did not return a {self.output.__name__}: {error}") from error

    def output_from_callback(self, receipt: Any, body: Any) -> BaseModel:
        """Return a callback's body, parsed as the call's result.

        `receipt` is the upstream system's response when it accepted the call, if known. Raises ValueError for a body
        that doesn't fit; for a wrong field this is a ValidationError.
        """
        output = self.output.model_validate(body)
        wrong = None if self.check_answer is None or receipt is None else self.check_answer(receipt, output)
        if wrong:
            raise ValueError(wrong)
        return output

    def output_from_receipt(self, args: BaseModel, receipt: Any) -> BaseModel:
        """Return the result of a call that happened according to a person.

        Raises ValueError if the receipt isn't enough.
        """
        if self.on_receipt is not None:
            return self.output.model_validate(self.on_receipt(args, receipt))
        return self.output.model_validate({} if receipt is None else receipt, context=BY_RECEIPT)

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise TypeError, because a direct call would bypass the record and the tool's gate."""
        raise TypeError(
            f"tool {self.name!r} can only be called through ctx.call or ctx.think: "
            "a direct call is neither recorded nor gated"
        )


@dataclass(frozen=True, slots=True)
class Undo:
    """The undo of an effect: a call of `tool` with `args(asked, got)`, built from the effect's input and output.

    The tool is an ordinary tool of the agent, with its own key, gate and hooks. `args` is a plain function that returns
    the tool's input. `name` distinguishes several undos that use the same tool (default: the tool's name). Raises
    DefinitionError.
    """

    tool: Tool
    args: Callable[[Any, Any], Any]
    name: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.tool, Tool):
            raise DefinitionError(f"Undo(tool={self.tool!r}): give a tool")
        if inspect.iscoroutinefunction(self.args) or not callable(self.args):
            raise DefinitionError(f"Undo(args={self.args!r}) by {self.tool.name!r}: give a plain function")
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name or self.tool.name):
            raise DefinitionError(f"Undo(name={self.name!r}) by {self.tool.name!r}: give a lower_snake_case name")
        object.__setattr__(self, "name", self.name or self.tool.name)


_P = ParamSpec("_P")
_Registration = Callable[[Callable[..., Any]], Tool]
_CLASSES = (
    "tool() needs replay_class=, the effect of a repeated call: ReplayClass.PURE (the tool only reads), "
    "ReplayClass.IDEMPOTENT_WITH_KEY (it sends call.key, and the other side takes a key once), or "
    "ReplayClass.UNSAFE_ON_REPLAY (a repeat would act twice: a call whose outcome is unknown waits for a person)"
)


def _with_replay_class(register: Callable[_P, _Registration]) -> Callable[_P, _Registration]:
    """Refuse a declaration without a replay class, including a bare `@tool`. The error explains the three choices."""

    @wraps(register)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _Registration:
        if args or "replay_class" not in kwargs:
            raise DefinitionError(f"@tool: {_CLASSES}" if args else _CLASSES)
        return register(*args, **kwargs)

    return checked


@_with_replay_class
def tool(
    *,
    replay_class: ReplayClass,
    title: str = "",
    system: str = "",
    effect: str = "",
    timeout: float | timedelta = 30.0,
    key_ttl: timedelta | None = None,
    gate: Gate | None = None,
    answers_later: bool = False,
    output: type[BaseModel] | None = None,
    external_id: str | None = None,
    reconcile: Callable[..., Awaitable[Happened | DidNotHappen | None]] | None = None,
    on_receipt: Callable[[Any, Any], Any] | None = None,
    check_answer: Callable[[Any, Any], str | None] | None = None,
    sequential: bool = False,
    rate_limit: RateLimit | None = None,
    cache: timedelta | None = None,
    shared: bool = False,
    undo: Undo | None = None,
    risk: str = "",
    link: Callable[[Any], str | None] | None = None,
    secrets: Sequence[str] = (),
    redact: Sequence[str] = (),
) -> Callable[[Callable[..., Any]], Tool]:
    """Register a function as a tool.

    It takes a Pydantic model (its input) and a `ToolCall`, and returns a Pydantic model.

    `replay_class` (required) decides what may happen to a call whose intent is recorded but whose outcome isn't.
    `title` (default: the function's name), `system` and `effect` tell people what the tool does in which system.
    `timeout`: seconds (30) or a timedelta. `key_ttl`: how long the upstream system remembers keys, after which a keyed
    call is unsafe. `gate`: which calls a person must approve. `answers_later`: it returns `Pending`, and the callback
    must fit `output` (default: the return annotation); `check_answer(receipt, output)` may return a problem, such as
    a callback for a request other than the one in the receipt. `external_id` names the output's field with the
    effect's id in the upstream system. `reconcile(args, call)` asks the upstream system for a call's outcome:
    `Happened`, `DidNotHappen`, or None. `on_receipt(args, receipt)` returns the result of a call that happened
    according to a person.

    The calls of one model turn are made concurrently, unless one of their tools is `sequential`. `rate_limit`: how
    often the upstream system may be called by all workers together; an operator may override it, so it is not part of a
    version. `cache`: how long other calls with the same input may use a pure tool's cached answer. This covers calls of
    the same agent or, with `shared`, of any agent. Set `shared` only if the answer depends on nothing but the input.
    `undo`: how the tool's effect is undone when the run fails or is cancelled (docs/how-to/undo.md). `risk` is *low*,
    *medium* or *high*, for policies. `link(args)` returns the call's URL in the upstream system. `secrets` names the
    secrets whose values the function gets from `call.secret(name)`; they are read before each call, which is not sent
    without them. `redact` names fields of arguments and results, by the endings of their paths, such as iban or
    customer.name: pages, the API and exports don't show them. Raises DefinitionError.
    """
    if not isinstance(replay_class, ReplayClass):
        raise DefinitionError(
            f"replay_class is {replay_class!r}: give one of {', '.join('ReplayClass.' + c.name for c in ReplayClass)}"
        )

    def register(function: Callable[..., Any]) -> Tool:
        name = _name_of(function)
        taken, given = _signature(name, function)
        result = output or given
        if result is None:
            problem = "say what it returns: a Pydantic model as return annotation, or output="
            raise DefinitionError(f"tool {name!r}: {problem}")
        made = Tool(
            name=name,
            title=title or name.replace("_", " ").capitalize(),
            system=system,
            effect=effect,
            replay_class=replay_class,
            _function=function,
            input=taken,
            output=result,
            timeout=timeout.total_seconds() if isinstance(timeout, timedelta) else timeout,
            key_ttl=key_ttl,
            gate=gate,
            answers_later=answers_later,
            external_id=external_id,
            reconcile=reconcile,
            on_receipt=on_receipt,
            check_answer=check_answer,
            description=inspect.cleandoc(function.__doc__ or ""),
            sequential=sequential,
            rate_limit=rate_limit,
            cache=cache,
            shared=shared,
            undo=undo,
            risk=risk,
            link=link,
            secrets=names_of(f"tool {name!r}", secrets),
            redact=_redacted(name, redact),
        )
        _check(made)
        return made

    return register


def as_external_id(value: Any) -> str:
    """Return an output's value as an external id. A long one is cut, and a digest of the whole is appended."""
    text: str = printable(str(value))
    return text if len(text) <= MAX_EXTERNAL_ID else f"{text[:400]}…{sha256(text.encode()).hexdigest()}"


def _redacted(name: str, paths: object) -> tuple[str, ...]:
    problem = f'tool {name!r}: redact={paths!r}: give a list of fields, such as ["iban", "customer.name"]'
    if isinstance(paths, str) or not isinstance(paths, Sequence):
        raise DefinitionError(problem)
    try:
        if paths:
            redacted.declare(name, paths)
    except ValueError as error:
        raise DefinitionError(f"{problem}: {error}") from None
    return tuple(paths)


def _check(tool: Tool) -> None:
    name, gate, undo = tool.name, tool.gate, tool.undo
    must_be_stable(f"tool {name!r}, input", tool.input)
    must_be_stable(f"tool {name!r}, output", tool.output)
    for names, fields in () if gate is None else (("editable", gate.editable), ("same", gate.same)):
        if problem := editable_problem(fields, tool.input):
            raise DefinitionError(f"tool {name!r}: Gate({names}=…): {problem}")
    _check_key_ttl(name, tool.replay_class, tool.key_ttl)
    _check_times(name, tool.timeout)
    _check_cache(name, tool.replay_class, tool.cache, tool.shared)
    if tool.risk not in RISKS:
        raise DefinitionError(f"tool {name!r}: risk is {tool.risk!r}: give one of {', '.join(RISKS[1:])}")
    if shown.wrong(tool.link):
        raise DefinitionError(f"tool {name!r}: link is {tool.link!r}: give a plain function of its input")
    if tool.answers_later and tool.is_pure:
        raise DefinitionError(
            f"tool {name!r}: a pure tool can't answer later, as its request is an effect: give another class"
        )
    if undo is not None and (tool.is_pure or not isinstance(undo, Undo)):
        problem = (
            "a pure tool has nothing to undo: leave out undo="
            if isinstance(undo, Undo)
            else f"undo={undo!r}: give an Undo"
        )
        raise DefinitionError(f"tool {name!r}: {problem}")


def _name_of(function: Callable[..., Any]) -> str:
    name = str(getattr(function, "__name__", repr(function)))
    if name == FINAL:
        raise DefinitionError(f"tool name {FINAL!r} is reserved for a model's final answer: choose another")
    if not _NAME.fullmatch(name):
        raise DefinitionError(f"tool name {name!r} is invalid: use lower_snake_case, at most 64 characters")
    return name


def _check_times(name: str, timeout: object) -> None:
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout < MAX_WAIT.total_seconds():
        raise DefinitionError(f"tool {name!r}: timeout is {timeout!r}: give a number of seconds above 0")


def _check_cache(name: str, replay_class: ReplayClass, cache: object, shared: object) -> None:
    if cache is None and shared is False:
        return
    if replay_class is not ReplayClass.PURE:
        raise DefinitionError(
            f"tool {name!r}: cache= is only for pure tools, because other calls must always be made: leave it out"
        )
    if not isinstance(cache, timedelta) or not timedelta(0) < cache <= MAX_CACHE:
        raise DefinitionError(
            f"tool {name!r}: cache is {cache!r}: give a positive timedelta of at most {MAX_CACHE.days} days"
        )
    if not isinstance(shared, bool):
        raise DefinitionError(f"tool {name!r}: shared is {shared!r}: give True or False")


def _check_key_ttl(name: str, replay_class: ReplayClass, key_ttl: timedelta | None) -> None:
    if key_ttl is not None and (replay_class is not ReplayClass.IDEMPOTENT_WITH_KEY or key_ttl <= timedelta(0)):
        problem = "key_ttl is for keyed tools, and positive: how long the upstream system remembers a key"
        raise DefinitionError(f"tool {name!r}: {problem}")


def must_be_stable(whose: str, model: Any) -> None:
    """Raise DefinitionError unless this is a model whose fields can all be recorded without loss."""
    if problem := unstable(model):
        raise DefinitionError(f"{whose}: {problem}")


def _signature(name: str, function: Callable[..., Any]) -> tuple[type[BaseModel], type[BaseModel] | None]:
    """Return the input model, and the output model if the return annotation is one."""
    hints = get_type_hints(function)
    parameters: Sequence[str] = list(inspect.signature(function).parameters)
    taken = hints.get(parameters[0]) if parameters else None
    if len(parameters) != 2 or not (isinstance(taken, type) and issubclass(taken, BaseModel)):
        raise DefinitionError(f"tool {name!r} must take exactly (args: a Pydantic model, call: ToolCall)")
    given = hints.get("return")
    return taken, given if isinstance(given, type) and issubclass(given, BaseModel) else None
