"""What an agent declares that others may say to its runs, and ask of them: messages, views."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, RootModel

from runs.engine.errors import DefinitionError
from runs.engine.tools import must_be_stable

NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


@dataclass(frozen=True, slots=True)
class Message:
    """A request that a run takes: its name, what comes in and goes out, who handles it, and who looks at it before it
    is accepted."""

    name: str
    takes: type[BaseModel]
    answers: type[BaseModel] | None
    function: Callable[..., Any]
    check: Callable[..., Any] | None
    title: str
    doc: str


@dataclass(frozen=True, slots=True)
class View:
    """A named reading of the recorded state."""

    name: str
    answers: type[BaseModel]
    function: Callable[..., Any]
    title: str
    doc: str


def message_of(
    agent: str,
    state: type[BaseModel],
    function: Callable[..., Any],
    *,
    name: str,
    takes: type[BaseModel],
    answers: type[BaseModel] | None,
    check: Callable[..., Any] | None,
    title: str,
) -> Message:
    """A declared message. Raises DefinitionError."""
    name = _named(agent, "message", function, name)
    if issubclass(state, RootModel):
        raise DefinitionError(f"{agent}: messages change the state's fields, and {state.__name__} has none")
    _plain_function(f"{agent}: message {name!r}", function)
    if check is not None:
        _plain_function(f"{agent}: the check of message {name!r}", check)
    _model(f"{agent}, message {name!r}, takes", takes)
    if answers is not None:
        _model(f"{agent}, message {name!r}, answers", answers)
    return Message(name, takes, answers, function, check, title or name.replace("_", " "), _doc(function))


def view_of(agent: str, function: Callable[..., Any], *, name: str, answers: type[BaseModel], title: str) -> View:
    """A declared view. Raises DefinitionError."""
    name = _named(agent, "view", function, name)
    _plain_function(f"{agent}: view {name!r}", function)
    _model(f"{agent}, view {name!r}, answers", answers)
    return View(name, answers, function, title or name.replace("_", " "), _doc(function))


def _named(agent: str, what: str, function: Callable[..., Any], name: str) -> str:
    name = name or getattr(function, "__name__", "")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise DefinitionError(f"{agent}: {what} name {name!r} is not lower_snake_case of at most 64 letters")
    return name


def _plain_function(what: str, function: Callable[..., Any]) -> None:
    if not callable(function) or inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise DefinitionError(f"{what} must be a plain `def`: it has no context, and makes no calls")


def _model(what: str, model: Any) -> None:
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise DefinitionError(f"{what}: {model!r} is no Pydantic model")
    must_be_stable(what, model)


def _doc(function: Callable[..., Any]) -> str:
    return inspect.cleandoc(function.__doc__ or "")
