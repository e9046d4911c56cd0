"""Tools: functions with typed input and output whose behaviour on a repeat is declared, not assumed."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property, wraps
from typing import Any, Final, NoReturn, ParamSpec, get_type_hints

from pydantic import BaseModel

from runs.engine.canonical import as_recorded, printable, unstable
from runs.engine.content.reads import LONGEST_CACHE
from runs.engine.errors import BadAnswer, DefinitionError, brief
from runs.engine.gate import amounts
from runs.engine.gate import documents as shown
from runs.engine.gate import editable as edits
from runs.engine.gate.evidence import RISKS as RISKS
from runs.engine.gate.evidence import Evidence as Evidence
from runs.engine.gate.requirement import Requirement, Stage
from runs.engine.gate.timing import LONGEST, OnTimeout, Time, WorkingHours, problem_of
from runs.engine.limits import RateLimit

log = logging.getLogger("durableagents.engine")

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
FINAL = "final_result"  # the output tool by which a model ends its loop
FOR_DISPATCH: Final = object()  # what the engine shows to get at a tool's function
BY_RECEIPT: Final = object()  # what a result is validated with that a person's receipt gives


class ReplayClass(StrEnum):
    """What may happen when a call's intent is on record and its result isn't."""

    PURE = "pure"
    IDEMPOTENT_WITH_KEY = "idempotent_with_key"
    UNSAFE_ON_REPLAY = "unsafe_on_replay"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What the engine tells a tool about the call that it is making.

    `run_id` and `trace_id` name the run (the same over all its resumes), `tool` the tool, `slot` and `attempt` the
    call: its place in the run, and how many recorded decisions have sent it again. `key` is the idempotency key to send
    along: the same at each repeat, None for tools that aren't keyed. `callback_url` is where the other side answers
    later, None unless the tool `answers_later`. `timeout` is in seconds.
    """

    run_id: str
    trace_id: str
    tool: str
    slot: str
    attempt: int
    key: str | None
    callback_url: str | None
    timeout: float


@dataclass(frozen=True, slots=True)
class Pending:
    """Returned by a tool that answers later: upstream took the call, and will call back.

    `receipt` is what it said (plain data; `check_answer` gets it), `within` how long its answer is waited for (14
    days).
    """

    receipt: Any = None
    within: timedelta = timedelta(days=14)

    def __post_init__(self) -> None:
        if not isinstance(self.within, timedelta) or abs(self.within) > LONGEST:
            raise ValueError(f"Pending(within={self.within!r}): give a timedelta of at most {LONGEST.days} days")


@dataclass(frozen=True, slots=True)
class Gate:
    """When a call needs a person first, whom to ask, and by which rule.

    `queue` is who decides: one of the installation's queues. `rule` says why a person is asked, in words for them.
    `when(args)` tells whether this call needs one (each does unless given); a rule that raises counts as yes, and says
    so. `headline(args)` is what decides, such as the sum, in a few words. `within` (7 days) is how long they have: a
    deadline that passes is a no. `amount` is how much it is about, for people whose limit says how much they may
    approve: a function of the input that returns an `Amount`, or a field and a currency, such as "total USD". `quorum`
    (1) is how many different people of `queue` have to say yes; `then` are further stages, each asked when the one
    before has said yes: `then=[Stage("board", quorum=2)]`. Nobody has a part in two. One no is enough to end it.
    `within` may be `WorkingHours(8)`, which counts in the queue's calendar. `on_timeout` is what becomes of a question
    that nobody answered: reject (a no), escalate (it is put to a further queue besides, `escalate_to` where the queue
    has none of its own), remind (it waits for ever). Where the queue says something else, the stricter word wins.
    `editable` names the fields of the input that people may change as they approve (none unless given), `same` those
    that count as the same for whoever allows the same again (all unless given). `documents` is a function of the input
    that returns what they are shown besides, a list of `Document`, the same at each repeat.

    Raises DefinitionError for empty texts, coroutine functions, and times that are none.
    """

    queue: str
    rule: str
    when: Callable[[Any], bool] = lambda args: True
    headline: Callable[[Any], str] | None = None
    within: timedelta | WorkingHours = timedelta(days=7)
    amount: amounts.Declared | None = None
    quorum: int = 1
    then: Sequence[Stage] = ()
    on_timeout: OnTimeout | None = None
    escalate_to: str = ""
    editable: Sequence[str] = ()
    same: Sequence[str] = ()
    documents: shown.Declared | None = None

    def __post_init__(self) -> None:
        for name in ("queue", "rule"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name).strip():
                raise DefinitionError(f"Gate({name}={getattr(self, name)!r}): give a text that isn't empty")
        for name in ("when", "headline", "documents"):
            given = getattr(self, name)
            if shown.wrong(given) or (name == "when" and given is None):
                problem = "give a plain function of the tool's input"
                raise DefinitionError(f"Gate({name}={given!r}) of queue {self.queue!r}: {problem}")
        if problem := problem_of(self.time):
            raise DefinitionError(f"Gate(within={self.within!r}) of queue {self.queue!r}: {problem}")
        if wrong := "give no coroutine" if inspect.iscoroutinefunction(self.amount) else amounts.wrong(self.amount):
            raise DefinitionError(f"Gate(amount={self.amount!r}) of queue {self.queue!r}: {wrong}")
        for name in ("editable", "same"):
            if wrong := edits.wrong(given := getattr(self, name)):
                raise DefinitionError(f"Gate({name}={given!r}) of queue {self.queue!r}: {wrong}")
            object.__setattr__(self, name, tuple(given))
        object.__setattr__(self, "then", self.requirement.stages[1:])

    @property
    def time(self) -> Time:
        """What it says of time."""
        return Time(self.within, self.on_timeout, self.escalate_to)

    @property
    def requirement(self) -> Requirement:
        """Who has to say yes, in which order."""
        return Requirement.of(self.queue, self.quorum, self.then)

    def is_needed(self, args: Any) -> bool:
        """Whether a call with these `args` must be approved. An error in the rule means that it must."""
        return self._verdict(args)[0]

    def rule_for(self, args: Any) -> str:
        """The rule for these `args` as the approver reads it: where its code failed, that is why they are asked, and it
        is said so."""
        problem = self._verdict(args)[1]
        if problem:
            log.warning("the rule of the gate %r failed with %s: %s is asked", self.rule, problem, self.queue)
        return f"{self.rule} (the rule itself failed with {problem}, which counts as yes)" if problem else self.rule

    def headline_for(self, args: Any) -> str:
        """What decides about a call with these `args`. Words only, so an error in making them stops nobody from
        deciding."""
        try:
            return str(self.headline(args)) if self.headline else ""
        except Exception as error:
            log.warning("the headline of the gate %r could not be made: %s", self.rule, brief(error, 200))
            return ""

    def amount_for(self, args: Any) -> dict[str, Any]:
        """What the plan of a call with these `args` says besides: nothing for a gate that declares no amount."""
        return {} if self.amount is None else {"amount": amounts.told(self.amount, args)}

    def _verdict(self, args: Any) -> tuple[bool, str]:
        """The rule's answer, and what went wrong with asking it."""
        try:
            return bool(self.when(args)), ""
        except Exception as error:  # the rule can't tell, so a person has to
            return True, brief(error, 200)


@dataclass(frozen=True, slots=True)
class Happened:
    """A reconcile hook's answer: the effect is there, and `output` is the call's result."""

    output: Any


@dataclass(frozen=True, slots=True)
class DidNotHappen:
    """A reconcile hook's answer: the effect is not there and the earlier attempt can't bring it any more."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A call's result: as the node sees it, and as it is recorded. The one is made from the other, as on a replay."""

    output: BaseModel
    result: Any


@dataclass(frozen=True)
class Tool:
    """A registered tool. Call it through the context only: its function is handed out to whoever shows `FOR_DISPATCH`,
    so that nobody has an effect without an intent, and past a gate, by mistake. (Python keeps nothing from an author
    who means to.)"""

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

    @property
    def is_pure(self) -> bool:
        """Whether the tool only reads."""
        return self.replay_class is ReplayClass.PURE

    @property
    def is_unsafe(self) -> bool:
        """Whether upstream can't tell a repeat from a second order."""
        return self.replay_class is ReplayClass.UNSAFE_ON_REPLAY

    def has_forgotten(self, key: str | None, intended_at: datetime | None, now: datetime) -> bool:
        """Whether the other side may have forgotten a key, so that a repeat could be a second order. Counted from the
        first intent, when it may have learnt the key; one that doesn't say when it was made counts as too old."""
        if key is None or self.key_ttl is None:
            return False
        return intended_at is None or now >= intended_at + self.key_ttl

    @cached_property
    def is_async(self) -> bool:
        """Whether the function is awaited; others run in a thread, which nothing can cut short."""
        return inspect.iscoroutinefunction(self._function)

    def opened(self, token: object) -> Callable[..., Any]:
        """The function itself, for the one that has put the call's intent on record."""
        if token is not FOR_DISPATCH:
            self()
        return self._function

    @property
    def function(self) -> Callable[..., Any]:
        """Refused, as a call is."""
        self()

    def external_id_of(self, output: dict[str, Any]) -> str | None:
        """The effect's name upstream, if the tool says which output field holds it."""
        value = output.get(self.external_id) if self.external_id else None
        return None if value is None else printable(str(value))

    def checked(self, answer: Any) -> Answer:
        """What a try gave, as the declared output. Raises BadAnswer."""
        try:
            given = answer if isinstance(answer, self.output) else self.output.model_validate(answer)
            result, output = as_recorded(given, self.output)
            return Answer(output, result)
        except ValueError as error:
            raise BadAnswer(f"{self.name} returned something else than {self.output.__name__}: {error}") from error

    def output_from_callback(self, receipt: Any, body: Any) -> BaseModel:
        """A callback's body as the call's result. `receipt` is what upstream said when it took the call, if known.
        Raises ValueError (a ValidationError where a field is wrong) for a body that is no answer to this call."""
        output = self.output.model_validate(body)
        wrong = None if self.check_answer is None or receipt is None else self.check_answer(receipt, output)
        if wrong:
            raise ValueError(wrong)
        return output

    def output_from_receipt(self, args: BaseModel, receipt: Any) -> BaseModel:
        """The result of a call that a person says happened. Raises ValueError when the receipt isn't enough for it."""
        if self.on_receipt is not None:
            return self.output.model_validate(self.on_receipt(args, receipt))
        return self.output.model_validate({} if receipt is None else receipt, context=BY_RECEIPT)

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: a direct call would have an effect without an intent, and past the tool's gate."""
        raise TypeError(
            f"tool {self.name!r} can only be called through ctx.call or ctx.think: "
            "a direct call is neither recorded nor gated"
        )


@dataclass(frozen=True, slots=True)
class Undo:
    """How an effect is undone: by a call of `tool`, with what `args(asked, got)` makes of the effect's own input and
    output.

    The tool is an ordinary one of the agent, with its own key, gate and hooks. `args` is a plain function that returns
    the tool's input. `name` tells it from another one of the same tool (the tool's name unless given). Raises
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
    "tool() needs a replay_class=, what a repeated call would do: ReplayClass.PURE (the tool only reads), "
    "ReplayClass.IDEMPOTENT_WITH_KEY (it sends call.key, and the other side takes a key once), or "
    "ReplayClass.UNSAFE_ON_REPLAY (a repeat would act twice: a call whose outcome is unknown waits for a person)"
)


def _with_replay_class(register: Callable[_P, _Registration]) -> Callable[_P, _Registration]:
    """Refuse a declaration without a replay class, also a bare `@tool`, with an explanation of the three choices."""

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
    timeout: float = 30.0,
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
) -> Callable[[Callable[..., Any]], Tool]:
    """Register a function as a tool. It takes one Pydantic model (its input) and a `ToolCall`, and returns a Pydantic
    model.

    `replay_class` says what may happen when a call's intent is on record and its outcome isn't; without it no tool can
    be registered. `title` (the function's name unless given), `system` and `effect` tell people what it does where.
    `timeout` is in seconds (30). `key_ttl`: how long the other side remembers keys; past it a keyed call counts as
    unsafe. `gate`: which calls a person must approve. `answers_later`: it returns `Pending`, and the callback's body
    has to fit `output`, which is the return annotation unless given; `check_answer(receipt, output)` may say what is
    wrong with it, such as an answer to another request than the receipt names. `external_id` names the output's field
    by which the other side knows the effect. `reconcile(args, call)` asks the other side what became of a call:
    `Happened`, `DidNotHappen`, or None. `on_receipt(args, receipt)` makes the result of a call that a person says
    happened. A model that asks for several calls in one turn gets them made at once, unless one of them is of a
    `sequential` tool. `rate_limit`: how often the other side may be called, by all workers together; an operator may
    say otherwise, so it is no part of a version. `cache`: for how long other calls with the same input may take a pure
    tool's answer from the cache, of the same agent, or with `shared` of any (docs/agents.md says when not to).
    `undo`: how its effect is undone when the run fails or is cancelled (docs/undo.md). `risk` is *low*, *medium* or
    *high*, for policies (docs/policies.md). `link(args)`: the call's address on the web there. Raises DefinitionError.
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
            timeout=timeout,
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
        )
        _check(made)
        return made

    return register


def _check(tool: Tool) -> None:
    """Raise DefinitionError for a declaration whose parts don't fit each other."""
    name, gate, undo = tool.name, tool.gate, tool.undo
    must_be_stable(f"tool {name!r}, input", tool.input)
    must_be_stable(f"tool {name!r}, output", tool.output)
    for names, fields in () if gate is None else (("editable", gate.editable), ("same", gate.same)):
        if problem := edits.misfit(fields, tool.input):
            raise DefinitionError(f"tool {name!r}: Gate({names}=…): {problem}")
    _check_key_ttl(name, tool.replay_class, tool.key_ttl)
    _check_times(name, tool.timeout)
    _check_cache(name, tool.replay_class, tool.cache, tool.shared)
    if tool.risk not in RISKS:
        raise DefinitionError(f"tool {name!r}: risk is {tool.risk!r}: give one of {', '.join(RISKS[1:])}")
    if shown.wrong(tool.link):
        raise DefinitionError(f"tool {name!r}: link is {tool.link!r}: give a plain function of its input")
    if tool.answers_later and tool.is_pure:
        raise DefinitionError(f"tool {name!r}: a pure tool can't answer later, for asking has an effect")
    if undo is not None and (tool.is_pure or not isinstance(undo, Undo)):
        problem = "a pure tool has nothing to undo" if isinstance(undo, Undo) else f"undo={undo!r}: give an Undo"
        raise DefinitionError(f"tool {name!r}: {problem}")


def _name_of(function: Callable[..., Any]) -> str:
    name = str(getattr(function, "__name__", repr(function)))
    if name == FINAL:
        raise DefinitionError(f"tool name {FINAL!r} is how a model ends its loop: choose another")
    if not _NAME.fullmatch(name):
        raise DefinitionError(f"tool name {name!r} is not lower_snake_case of at most 64 letters")
    return name


def _check_times(name: str, timeout: object) -> None:
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout < LONGEST.total_seconds():
        raise DefinitionError(f"tool {name!r}: timeout is {timeout!r}: give seconds, more than none")


def _check_cache(name: str, replay_class: ReplayClass, cache: object, shared: object) -> None:
    if cache is None and shared is False:
        return
    if replay_class is not ReplayClass.PURE:
        raise DefinitionError(f"tool {name!r}: cache= is for pure tools: any other call must be made")
    if not isinstance(cache, timedelta) or not timedelta(0) < cache <= LONGEST_CACHE:
        raise DefinitionError(f"tool {name!r}: cache is {cache!r}: give a timedelta, {LONGEST_CACHE.days} days at most")
    if not isinstance(shared, bool):
        raise DefinitionError(f"tool {name!r}: shared is {shared!r}: give True or False")


def _check_key_ttl(name: str, replay_class: ReplayClass, key_ttl: timedelta | None) -> None:
    if key_ttl is not None and (replay_class is not ReplayClass.IDEMPOTENT_WITH_KEY or key_ttl <= timedelta(0)):
        problem = "key_ttl is for keyed tools, and a positive time: for how long the other side remembers a key"
        raise DefinitionError(f"tool {name!r}: {problem}")


def must_be_stable(whose: str, model: Any) -> None:
    """Raises DefinitionError for what is no model, and for a field whose value would not come back from the record."""
    if problem := unstable(model):
        raise DefinitionError(f"{whose}: {problem}")


def _signature(name: str, function: Callable[..., Any]) -> tuple[type[BaseModel], type[BaseModel] | None]:
    """The input model and, where the annotation is one, the output model."""
    hints = get_type_hints(function)
    parameters: Sequence[str] = list(inspect.signature(function).parameters)
    taken = hints.get(parameters[0]) if parameters else None
    if len(parameters) != 2 or not (isinstance(taken, type) and issubclass(taken, BaseModel)):
        raise DefinitionError(f"tool {name!r} must take exactly (args: a Pydantic model, call: ToolCall)")
    given = hints.get("return")
    return taken, given if isinstance(given, type) and issubclass(given, BaseModel) else None
