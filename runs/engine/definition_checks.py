"""Checks of an agent's declaration, made without running its code.

Each returns the problem and its fix, or None.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile
from types import CodeType, FunctionType
from typing import Any

from pydantic import AliasChoices, AliasPath, BaseModel, RootModel, ValidationError

from runs.engine.fingerprint.source import FUNCTIONS, content, module_of
from runs.engine.tools import Tool

_CONTEXT = "Context"
_CONTEXT_NAMES = ("ctx", "context")
# Statements that may prevent later ones from running, or that define code which runs later.
_BRANCHES = (ast.If, ast.IfExp, ast.Match, ast.BoolOp, ast.Try, *FUNCTIONS, ast.Lambda)


def parameters_problem(function: Callable[..., Any], state: type[BaseModel]) -> str | None:
    """Return the problem with a node's parameters; None if it can be called as `function(state, ctx)`."""
    # What counts are the parameters of a decorator's wrapper, not those of the wrapped function.
    signature = inspect.signature(function, follow_wrapped=False)
    try:
        signature.bind(None, None)
    except TypeError:
        return f"it takes {signature}: a node takes two parameters, (state: {state.__name__}, ctx: Context)"
    named = [each for each in signature.parameters.values() if each.kind is not each.VAR_POSITIONAL][:2]
    if len(named) < 2:
        return None
    first, second = map(_annotated, named)
    if first or second:
        is_swapped = (first == _CONTEXT or second == state.__name__) and first != state.__name__
    else:
        is_swapped = named[0].name in _CONTEXT_NAMES and named[1].name not in _CONTEXT_NAMES
    if not is_swapped:
        return None
    return f"its parameters are swapped: write (state: {state.__name__}, ctx: Context) instead of {signature}"


def _annotated(parameter: inspect.Parameter) -> str:
    given = parameter.annotation
    if given is parameter.empty:
        return ""
    name = given if isinstance(given, str) else getattr(given, "__name__", "")
    return name.strip("'\" ").rpartition(".")[2]


def state_problem(input: type[BaseModel], state: type[BaseModel]) -> str | None:
    """Return why the first state can't be built from the input, comparing the fields that both declare; else None."""
    if issubclass(input, RootModel) or issubclass(state, RootModel) or input.model_config.get("extra") == "allow":
        return None
    reads, writes = state.__pydantic_decorators__, input.__pydantic_decorators__
    if writes.model_serializers or any(each.info.mode != "after" for each in reads.model_validators.values()):
        return None
    given = {name for name, each in input.model_fields.items() if not each.exclude} | set(input.model_computed_fields)
    if input.model_config.get("serialize_by_alias"):
        given |= {each.serialization_alias or each.alias or name for name, each in input.model_fields.items()}
    by_name = state.model_config.get("populate_by_name") or state.model_config.get("validate_by_name")
    for name, each in state.model_fields.items():
        read = {*_aliases(each.validation_alias), *([name] if by_name or each.validation_alias is None else [])}
        if each.is_required() and not read & given:
            return (
                f"state={state.__name__} can't be built from input={input.__name__}, which lacks the required field "
                f"{name!r}: give initial=, a function of the input, or give {state.__name__}.{name} a default"
            )
    return None


def _aliases(alias: str | AliasPath | AliasChoices | None) -> Iterator[str]:
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
    for each in choices:
        if each is not None:
            yield str(each.path[0]) if isinstance(each, AliasPath) else each


def sample_problem(document: Any, input: type[BaseModel], begin: Callable[[Any], Any] | None) -> str | None:
    """Return why a run can't start with a sample's document; None if it can.

    `begin` builds the first state; it is None if that would run the author's code.
    """
    made = f"input={input.__name__}"
    try:
        parsed = input.model_validate(document)
        if begin is not None:
            made = "its state"
            begin(parsed)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, wrong["loc"])) or "the document"
        return f"it doesn't fit {made}: {where}: {wrong['msg']}; correct the sample"
    return None


def undeclared_call(function: Callable[..., Any], is_declared: Callable[[Tool], bool]) -> str | None:
    """Describe the first `ctx.call` of an undeclared tool; None if there is none.

    Helpers that the node calls are searched too, up to their first branch.
    """
    for tool, place in _calls(function, set()):
        if not is_declared(tool):
            return f"{place} calls the tool {tool.name!r}, which the agent does not declare: name it in tools=[…]"
    return None


def _calls(function: Callable[..., Any], seen: set[FunctionType]) -> Iterator[tuple[Tool, str]]:
    names = list(inspect.signature(function, follow_wrapped=False).parameters)
    if isinstance(function, FunctionType) and len(names) == 2:
        yield from _calls_in(function, names[1], seen, is_helper=False)


def _calls_in(
    function: FunctionType, context: str, seen: set[FunctionType], *, is_helper: bool
) -> Iterator[tuple[Tool, str]]:
    code = function.__code__
    module = module_of(function)
    tree = module.find(code) if module else None
    if function in seen or not isinstance(tree, FUNCTIONS):
        return
    seen.add(function)
    known = _visible(function)
    body = _before_branches(tree.body) if is_helper else tree.body
    for call in (each for statement in body for each in ast.walk(statement) if isinstance(each, ast.Call)):
        if _is_call_of(call, context):
            tool = _resolved(call.args[0], known) if call.args else None
            if isinstance(tool, Tool):
                yield tool, f"{code.co_filename}, line {call.lineno},"
        elif parameter := _handed(call, context, helper := _resolved(call.func, known)):
            yield from _calls_in(helper, parameter, seen, is_helper=True)


def _before_branches(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements that always run, regardless of the arguments."""
    return list(takewhile(lambda statement: not any(isinstance(n, _BRANCHES) for n in ast.walk(statement)), body))


def _is_call_of(call: ast.Call, context: str) -> bool:
    at = call.func
    return (
        isinstance(at, ast.Attribute)
        and at.attr == "call"
        and isinstance(at.value, ast.Name)
        and at.value.id == context
    )


def _handed(call: ast.Call, context: str, helper: Any) -> str | None:
    if not isinstance(helper, FunctionType):
        return None
    names = list(inspect.signature(helper, follow_wrapped=False).parameters)
    for name, given in [*zip(names, call.args, strict=False), *((each.arg, each.value) for each in call.keywords)]:
        if isinstance(given, ast.Starred):
            return None
        if isinstance(given, ast.Name) and given.id == context:
            return name
    return None


def _visible(function: FunctionType) -> Mapping[str, Any]:
    """Return the values of the names that a function reads from outside, except those that it binds itself."""
    code = function.__code__
    cells = zip(code.co_freevars, function.__closure__ or (), strict=False)
    known = {**function.__globals__, **{name: content(cell) for name, cell in cells}}
    for name in _bound(code):
        known.pop(name, None)
    return known


def _bound(code: CodeType) -> Iterator[str]:
    yield from (*code.co_varnames, *code.co_cellvars)
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _bound(each)


def _resolved(expression: ast.expr, known: Mapping[str, Any]) -> Any:
    """Return the object that a (dotted) name refers to, without running any code; None if unknown."""
    if isinstance(expression, ast.Attribute):
        return inspect.getattr_static(_resolved(expression.value, known), expression.attr, None)
    return known.get(expression.id) if isinstance(expression, ast.Name) else None
