"""Turns function tools of Pydantic AI into tools of the engine: plain arguments and answers, recorded exceptions."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pydantic import BaseModel, RootModel, ValidationInfo, model_validator

from runs.engine.canonical import as_json, plain, printable
from runs.engine.content.files import has_files
from runs.engine.errors import BusinessFailure, DefinitionError, MisusedContext, TransportError
from runs.engine.gating.fields import editable_problem
from runs.engine.thinking.answers import is_outage
from runs.engine.tools import BY_RECEIPT, Gate, Pending, ReplayClass, Tool, ToolCall

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
# Codes by which Pydantic AI's exceptions are recorded. A replay reports them to the model again.
MODEL_RETRY, TOOL_FAILED = "model_retry", "tool_failed"
# Codes for behaviour that was not declared. The run fails with a message that says how to fix it.
LATER_UNDECLARED, GATE_UNDECLARED = "later_undeclared", "gate_undeclared"
# the tool's own limit would make an unknown outcome look like a failure; the engine's limit applies instead
NO_TIMEOUT = 1e9
DEFAULT_TIMEOUT = 300.0
ANY_OBJECT: dict[str, Any] = {"type": "object"}
# This text is shown to the model if a person confirmed that a call happened, but gave no receipt. Otherwise the model
# would repeat the call.
RESULT_UNKNOWN = "This call happened, as a person confirmed. Its result is not known. Don't make it again."
RESULT_NOT_RECORDABLE = (
    "This call was made, but its result can't be recorded, and so can't be shown. Don't make it again."
)


class Arguments(RootModel[dict[str, Any]]):
    """The arguments of a tool."""

    def __getitem__(self, name: str) -> Any:
        """Return an argument by name, so that the rule of a gate can use `args["amount"]`."""
        return self.root[name]


class Returned(BaseModel):
    """The result of a tool. The body of a callback, and a person's receipt, may be the value itself."""

    returned: Any = None
    whole: Any = None  # a Pydantic AI `ToolReturn`, if the result has files or extra content for the model

    @model_validator(mode="before")
    @classmethod
    def _wrap_bare_value(cls, value: Any, info: ValidationInfo) -> Any:
        if value == {}:
            return {"returned": RESULT_UNKNOWN} if info.context is BY_RECEIPT else {}
        return value if isinstance(value, dict) and "returned" in value else {"returned": value}


@dataclass(frozen=True)
class LiveCall:
    """A call that Pydantic AI is about to make, with the function that makes it."""

    name: str
    arguments: dict[str, Any]
    context: Any
    tool: Any
    make: Callable[..., Awaitable[Any]]


_live: ContextVar[LiveCall | None] = ContextVar("pydantic_ai_call", default=None)
_call: ContextVar[ToolCall | None] = ContextVar("tool_call", default=None)


@contextmanager
def set_live_call(live: LiveCall) -> Iterator[None]:
    """Make the call available to the tool's function, which the engine calls inside this context."""
    token = _live.set(live)
    try:
        yield
    finally:
        _live.reset(token)


def this_call() -> ToolCall:
    """Return the current call, inside a Pydantic AI tool that runs within `think`.

    It has the idempotency `key` to send, and the `callback_url` for a later answer. Raises MisusedContext elsewhere."""
    call = _call.get()
    if call is None:
        raise MisusedContext("this_call() is for the tools of a Pydantic AI agent, while ctx.think runs them")
    return call


def tool_of(
    name: str,
    replay_class: Any,
    *,
    function: Any,
    description: str,
    schema: dict[str, Any],
    timeout: float | None,
    gate: Gate | None,
    answers_later: bool,
    sequential: bool,
) -> Tool:
    """Return the engine's tool for Pydantic AI's tool `name`. Raises DefinitionError."""
    if not NAME.fullmatch(name):
        raise DefinitionError(f"tool name {name!r} is invalid: it must match {NAME.pattern}")
    if not isinstance(replay_class, ReplayClass):
        classes = ", ".join("ReplayClass." + c.name for c in ReplayClass)
        raise DefinitionError(f"tool {name!r}: replay class {replay_class!r}: give one of {classes}")
    if answers_later and replay_class is ReplayClass.PURE:
        raise DefinitionError(
            f"tool {name!r}: a pure tool can't answer later, as its request is an effect: give another class"
        )
    if gate is not None and gate.editable:
        problem = "a Pydantic AI agent calls its tools itself, so approvers can't change arguments: leave it out"
        raise DefinitionError(f"tool {name!r}: Gate(editable={gate.editable!r}): {problem}")
    arguments = _arguments(name, schema)
    if gate is not None and (problem := editable_problem(gate.same, arguments)):
        raise DefinitionError(f"tool {name!r}: Gate(same=…): {problem}")
    return Tool(
        name=name,
        title=name.replace("_", " ").capitalize(),
        system="",
        effect="",
        replay_class=replay_class,
        _function=_function_of(function, answers_later),
        input=arguments,
        output=Returned,
        timeout=timeout or DEFAULT_TIMEOUT,
        gate=gate,
        answers_later=answers_later,
        description=description,
        sequential=sequential,
    )


def _function_of(author: Any, answers_later: bool) -> Callable[..., Any]:
    """Return the function that the engine calls. `author` is the tool's own function, for the fingerprint."""
    function = partial(_dispatch, answers_later)
    function.author = author  # type: ignore[attr-defined]
    return function


async def _dispatch(answers_later: bool, args: Arguments, call: ToolCall) -> Any:
    """Run the tool; the call's intent is already recorded. Raises BusinessFailure, or TransportError for an outage."""
    from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed

    live = _live.get()
    assert live is not None, "the engine calls it within set_live_call"
    token = _call.set(call)
    try:
        ours = {"idempotency_key": call.key, "callback_url": call.callback_url}
        context = replace(live.context, metadata={**(live.context.metadata or {}), **ours})
        return to_record(await live.make(live.name, live.arguments, context, _untimed(live.tool)))
    except ModelRetry as error:
        raise BusinessFailure(error.message, code=MODEL_RETRY) from error
    except ToolFailed as error:
        raise BusinessFailure(str(error.message), code=TOOL_FAILED) from error
    except CallDeferred as deferred:
        if not answers_later:
            raise BusinessFailure(
                f"{live.name} answers later: name it in durable(…, later=[…])", code=LATER_UNDECLARED
            ) from deferred
        return Pending(receipt=deferred.metadata)
    except ApprovalRequired as error:
        problem = f"{live.name} asks for an approval: name the queue in durable(…, gates={{…}})"
        raise BusinessFailure(problem, code=GATE_UNDECLARED) from error
    except Exception as error:
        if not is_outage(error):
            raise
        # An outage doesn't prove that nothing was sent: the tool may have sent something else before.
        raise TransportError(f"{live.name}: {error}") from error
    finally:
        _call.reset(token)


def _untimed(tool: Any) -> Any:
    """Remove the tool's own time limit, including inside wrapping toolsets."""
    tool = replace(tool, tool_def=replace(tool.tool_def, timeout=NO_TIMEOUT))
    inner = getattr(tool, "source_tool", None)
    return tool if inner is None else replace(tool, source_tool=_untimed(inner))


def to_record(value: Any) -> Returned:
    """Return a result as JSON for the record; if it can't be recorded, return a notice to the model instead."""
    from pydantic_ai.messages import ToolReturn
    from pydantic_core import to_jsonable_python

    try:
        if isinstance(value, ToolReturn):
            made = Returned(returned=None, whole=to_jsonable_python(value))
        elif has_files(value):
            made = Returned(returned=None, whole=to_jsonable_python(ToolReturn(return_value=value)))
        else:
            made = Returned(returned=as_json(value))
        plain(made)
        return made
    except ValueError as error:
        return Returned(returned=f"{RESULT_NOT_RECORDABLE} {printable(str(error))[:1000]}")


def from_record(answer: Returned) -> Any:
    """Return a recorded result in the form that Pydantic AI expects, with its files."""
    from pydantic import TypeAdapter
    from pydantic_ai.messages import ToolReturn

    return answer.returned if answer.whole is None else TypeAdapter(ToolReturn).validate_python(answer.whole)


def _arguments(name: str, schema: dict[str, Any]) -> type[Arguments]:
    """Return a pydantic model of the tool's arguments, with the schema that the language model sees."""

    def described(cls: Any, core: Any, handler: Callable[[Any], Any]) -> dict[str, Any]:
        return dict(schema)

    title = "".join(word.capitalize() for word in re.split(r"[_.-]+", name)) + "Arguments"
    return type(title, (Arguments,), {"__get_pydantic_json_schema__": classmethod(described), "__module__": __name__})
