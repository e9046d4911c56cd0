"""What must be right before anything runs: each check's message is one line, the problem and its fix, and ends the
command with 2.

Definitions are checked in every process, when its agents are loaded; the model and the master key by the commands that
use them (`check`, `up`, `web`, `worker`).
"""

from __future__ import annotations

import ast
import inspect
import os
import textwrap
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.db import Error

from durableagents import env, keys
from ledger.web.roles import ROLES
from runs.engine.agents import Agent, Node, registry
from runs.journal.wait_hooks import queues


def check_definitions() -> None:
    """Everybody whom an agent asks can be asked, as far as that can be seen without running it. Raises
    ImproperlyConfigured."""
    for agent in registry.agents():
        for where, name, known in _named(agent):
            if name not in known:
                raise ImproperlyConfigured(
                    f"{agent.graph_id}: {where} asks {name!r}, whom nobody answers for: "
                    f"use one of {', '.join(sorted(known))}"
                )


def check_budget_queue() -> None:
    """Somebody decides at the queue that is asked to raise budgets. Raises ImproperlyConfigured."""
    name = settings.DURABLEAGENTS.budget_queue
    if name and name not in queues:
        raise ImproperlyConfigured(
            f"DURABLEAGENTS_BUDGET_QUEUE={name!r}: nobody decides there; use one of {', '.join(sorted(queues))}"
        )


def check_model() -> None:
    """The models that DURABLEAGENTS_MODEL names can be asked. Raises ImproperlyConfigured."""
    names = settings.DURABLEAGENTS.models
    if not names:
        return
    from pydantic_ai.exceptions import UserError

    from runs.engine.thinking.request import real_model

    for name in names:
        try:
            real_model(name)
        except (UserError, ImportError, ValueError) as error:
            reason = " ".join(str(error).split()).partition(". To try")[0][:300]
            raise ImproperlyConfigured(
                f"DURABLEAGENTS_MODEL={name!r}: {reason}; expected provider:model, such as openai:gpt-5"
            ) from error


def check_key() -> None:
    """The master key is this database's. While the database is away nobody can tell: then each process asks before it
    serves."""
    try:
        reason = keys.refusal()
    except Error:
        return
    if reason:
        raise ImproperlyConfigured(reason)


@register("start")
def start_checks(**_: Any) -> list[Any]:
    """For `manage.py check`, and for the commands that start something."""
    check_model()
    check_budget_queue()
    check_key()
    return []


@register("environment")
def environment_checks(**_: Any) -> list[CheckMessage]:
    """For `manage.py check` and whatever else looks at everything: a misspelt name would otherwise change nothing and
    say nothing. What starts something is told by manage.py."""
    if "DURABLEAGENTS_UP" in os.environ:
        return []
    return [
        Warning(line, hint="correct the name, or take it out of the environment", id="durableagents.W003")
        for line in env.unread()
    ]


def _named(agent: Agent) -> Iterator[tuple[str, str, set[str]]]:
    """Who is asked where, with whom that place may ask."""
    for tool in agent.all_tools():
        if tool.gate is not None:
            yield f"the gate of tool {tool.name!r}", tool.gate.queue, set(queues)
    for node in agent.nodes.values():
        for verb, name in _literal_calls(node):
            yield f"ctx.{verb} in node {node.name!r}", name, set(queues) | (set(ROLES) if verb == "ask" else set())


def _literal_calls(node: Node) -> Iterator[tuple[str, str]]:
    """`ctx.approve("…")` and `ctx.ask("…")` in the node's own text; what is computed is found out at the call."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(node.function)))
    except (OSError, TypeError, SyntaxError):
        return
    context = [*inspect.signature(node.function).parameters, "", ""][1]
    for call in ast.walk(tree):
        if not (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and isinstance(call.func.value, ast.Name)
        ):
            continue
        if call.func.value.id == context and call.func.attr in ("approve", "ask"):
            given = (
                call.args[0] if call.args else next((k.value for k in call.keywords if k.arg in ("queue", "of")), None)
            )
            if isinstance(given, ast.Constant) and isinstance(given.value, str):
                yield call.func.attr, given.value


@register(Tags.security, deploy=True)
def proxies_are_known(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Who may say for whom a request comes."""
    environment = settings.DURABLEAGENTS
    if not environment.is_production:
        return []
    networks = environment.proxy_networks
    if not networks:
        return [
            Warning(
                "No proxy is trusted: every plain request is redirected to https, also those that your proxy forwards.",
                hint="Set DURABLEAGENTS_TRUSTED_PROXIES to the addresses of the proxy that ends TLS.",
                id="durableagents.W001",
            )
        ]
    if any(network.prefixlen == 0 for network in networks):
        return [
            Warning(
                "Every address is a trusted proxy: anybody can write any address into the records.",
                hint="Set DURABLEAGENTS_TRUSTED_PROXIES to the addresses of your proxies.",
                id="durableagents.W002",
            )
        ]
    return []
