"""What must be right before anything runs: each check's message is one line, the problem and its fix, and ends the command with 2.

Definitions are checked in every process, when its agents are loaded; the model and the master key by the commands that use them
(`check`, `up`, `web`, `worker`).
"""

from __future__ import annotations

import ast
import inspect
import os
import textwrap
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.db import Error

from durableagents import env, keys
from ledger.access import ROLES
from runs.engine.agents import Agent, Node, registry
from runs.waits import queues


def check_definitions() -> None:
    """Everybody whom an agent asks can be asked, as far as that can be seen without running it. Raises ImproperlyConfigured."""
    for agent in registry.agents():
        for where, asked, known in _asked(agent):
            if asked not in known:
                raise ImproperlyConfigured(
                    f"{agent.graph_id}: {where} asks {asked!r}, whom nobody answers for: use one of {', '.join(sorted(known))}"
                )


def check_model() -> None:
    """The model that DURABLEAGENTS_MODEL names can be asked. Raises ImproperlyConfigured."""
    name = settings.DURABLEAGENTS.model
    if not name:
        return
    from pydantic_ai.exceptions import UserError

    from runs.engine.providers import real_model

    try:
        real_model(name)
    except (UserError, ImportError, ValueError) as error:
        told = " ".join(str(error).split()).partition(". To try")[0][:300]
        raise ImproperlyConfigured(f"DURABLEAGENTS_MODEL={name!r}: {told}; expected provider:model, such as openai:gpt-5") from error


def check_key() -> None:
    """The master key is this database's. While the database is away nobody can tell: then each process asks before it serves."""
    try:
        told = keys.refusal()
    except Error:
        return
    if told:
        raise ImproperlyConfigured(told)


@register("start")
def start_checks(**_: Any) -> list[Any]:
    """For `manage.py check`, and for the commands that start something."""
    check_model()
    check_key()
    return []


@register("environment")
def environment_checks(**_: Any) -> list[CheckMessage]:
    """For `manage.py check` and whatever else looks at everything: a misspelt name would otherwise change nothing and say nothing. What
    starts something is told by manage.py."""
    if "DURABLEAGENTS_UP" in os.environ:
        return []
    return [Warning(line, hint="correct the name, or take it out of the environment", id="durableagents.W003") for line in env.unread()]


def _asked(agent: Agent) -> Iterator[tuple[str, str, set[str]]]:
    """Who is asked where, with whom that place may ask."""
    for tool in agent.all_tools():
        if tool.gate is not None:
            yield f"the gate of tool {tool.name!r}", tool.gate.queue, set(queues)
    for node in agent.nodes.values():
        for verb, asked in _literal_calls(node):
            yield f"ctx.{verb} in node {node.name!r}", asked, set(queues) | (set(ROLES) if verb == "ask" else set())


def _literal_calls(node: Node) -> Iterator[tuple[str, str]]:
    """`ctx.approve("…")` and `ctx.ask("…")` in the node's own text; what is computed is found out at the call."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(node.function)))
    except (OSError, TypeError, SyntaxError):
        return
    context = [*inspect.signature(node.function).parameters, "", ""][1]
    for call in ast.walk(tree):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)):
            continue
        if call.func.value.id == context and call.func.attr in ("approve", "ask"):
            given = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg in ("queue", "of")), None)
            if isinstance(given, ast.Constant) and isinstance(given.value, str):
                yield call.func.attr, given.value
