"""Adapts a Pydantic AI agent's function tool to the engine: plain arguments and answers, recorded exceptions."""

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
# Recorded codes of its own exceptions, which a replay reports to the model again.
AGAIN, NO = "model_retry", "tool_failed"
# Undeclared behaviour: the run fails with the fix.
LATER, UNGATED = "later_undeclared", "gate_undeclared"
HOW = "durable"
FOREVER = 1e9  # its own time limit would make an unknown outcome look like a refusal; the engine's limit applies
USUAL_TIMEOUT = 300.0
ANY: dict[str, Any] = {"type": "object"}
# Told to the model about a call that a person says happened, without a receipt. Told nothing, it would call again.
UNKNOWN = "This call happened, as a person found out. What it returned is not known. Don't make it again."


UNKEPT = "This call was made, but what it returned can't be put on record, and so not be shown. Don't make it again."


class Arguments(RootModel[dict[str, Any]]):
    """What a tool is called with."""

    def __getitem__(self, name: str) -> Any:
        """Return an argument, so that a gate's rule can use `args["amount"]`."""
        return self.root[name]


class Returned(BaseModel):
    """What a tool returned. A callback's body, and a person's receipt, may be the bare value."""

    returned: Any = None
    whole: Any = None  # a Pydantic AI `ToolReturn`, if there are files or extra content for the model

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, given: Any, info: ValidationInfo) -> Any:
        if given == {}:
            return {"returned": UNKNOWN} if info.context is BY_RECEIPT else {}
        return given if isinstance(given, dict) and "returned" in given else {"returned": given}


@dataclass(frozen=True)
class Live:
    """The call that Pydantic AI is about to make."""

    name: str
    arguments: dict[str, Any]
    context: Any
    tool: Any
    make: Callable[..., Awaitable[Any]]


_live: ContextVar[Live | None] = ContextVar("pydantic_ai_call", default=None)
_call: ContextVar[ToolCall | None] = ContextVar("tool_call", default=None)


@contextmanager
def about_to_call(live: Live) -> Iterator[None]:
    token = _live.set(live)
    try:
        yield
    finally:
        _live.reset(token)


def this_call() -> ToolCall:
    """Return the current call in a Pydantic AI tool that runs in a `think`. Raises MisusedContext elsewhere. It has
    the idempotency `key` to send, and the `callback_url` for a later answer."""
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
        known = ", ".join("ReplayClass." + c.name for c in ReplayClass)
        raise DefinitionError(f"tool {name!r}: replay class {replay_class!r}: give one of {known}")
    if answers_later and replay_class is ReplayClass.PURE:
        raise DefinitionError(
            f"tool {name!r}: a pure tool can't answer later, as its request is an effect: give another class"
        )
    if gate is not None and gate.editable:
        problem = "a Pydantic AI agent calls its tools itself, so approvers can't change arguments: leave it out"
        raise DefinitionError(f"tool {name!r}: Gate(editable={gate.editable!r}): {problem}")
    taken = _arguments(name, schema)
    if gate is not None and (problem := editable_problem(gate.same, taken)):
        raise DefinitionError(f"tool {name!r}: Gate(same=…): {problem}")
    return Tool(
        name=name,
        title=name.replace("_", " ").capitalize(),
        system="",
        effect="",
        replay_class=replay_class,
        _function=_function_of(function, answers_later),
        input=taken,
        output=Returned,
        timeout=timeout or USUAL_TIMEOUT,
        gate=gate,
        answers_later=answers_later,
        description=description,
        sequential=sequential,
    )


def _function_of(author: Any, answers_later: bool) -> Callable[..., Any]:
    """Return the function the engine calls; `author` is the tool's own, for the fingerprint."""
    function = partial(_dispatch, answers_later)
    function.author = author  # type: ignore[attr-defined]
    return function


async def _dispatch(answers_later: bool, args: Arguments, call: ToolCall) -> Any:
    """Run the tool now that its intent is recorded. Raises BusinessFailure, or TransportError for an outage."""
    from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed

    live = _live.get()
    assert live is not None, "only a think calls it"
    token = _call.set(call)
    try:
        beside = {"idempotency_key": call.key, "callback_url": call.callback_url}
        context = replace(live.context, metadata={**(live.context.metadata or {}), **beside})
        return recorded(await live.make(live.name, live.arguments, context, _untimed(live.tool)))
    except ModelRetry as again:
        raise BusinessFailure(again.message, code=AGAIN) from again
    except ToolFailed as no:
        raise BusinessFailure(str(no.message), code=NO) from no
    except CallDeferred as later:
        if not answers_later:
            raise BusinessFailure(f"{live.name} answers later: name it in {HOW}(…, later=[…])", code=LATER) from later
        return Pending(receipt=later.metadata)
    except ApprovalRequired as asked:
        problem = f"{live.name} asks for an approval: say of whom in {HOW}(…, gates={{…}})"
        raise BusinessFailure(problem, code=UNGATED) from asked
    except Exception as error:
        if not is_outage(error):
            raise
        # Never proof that nothing was sent: the tool may have sent something else before.
        raise TransportError(f"{live.name}: {error}") from error
    finally:
        _call.reset(token)


def _untimed(tool: Any) -> Any:
    """Remove the tool's own time limit, also inside wrapping toolsets."""
    tool = replace(tool, tool_def=replace(tool.tool_def, timeout=FOREVER))
    inner = getattr(tool, "source_tool", None)
    return tool if inner is None else replace(tool, source_tool=_untimed(inner))


def recorded(value: Any) -> Returned:
    """Return a result as JSON for the record; if it can't be recorded, a notice to the model instead."""
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
        return Returned(returned=f"{UNKEPT} {printable(str(error))[:1000]}")


def given(answer: Returned) -> Any:
    """Return a recorded result for Pydantic AI, with files as files."""
    from pydantic import TypeAdapter
    from pydantic_ai.messages import ToolReturn

    return answer.returned if answer.whole is None else TypeAdapter(ToolReturn).validate_python(answer.whole)


def _arguments(name: str, schema: dict[str, Any]) -> type[Arguments]:
    """Return a model of the tool's arguments, with the schema shown to the model."""

    def described(cls: Any, core: Any, handler: Callable[[Any], Any]) -> dict[str, Any]:
        return dict(schema)

    title = "".join(word.capitalize() for word in re.split(r"[_.-]+", name)) + "Arguments"
    return type(title, (Arguments,), {"__get_pydantic_json_schema__": classmethod(described), "__module__": __name__})
