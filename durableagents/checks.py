"""Checks that run before anything starts (`check`, `up`, `web`, `worker`).

Each message is one line with problem and fix; a failed check ends the command with exit code 2.
"""

from __future__ import annotations

import ast
import inspect
import os
import textwrap
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.db import Error, OperationalError, connection

from durableagents import env
from durableagents.object_storage import check_packages
from ledger import privileges
from ledger.errors import first_line
from ledger.web.roles import ROLES, STAFF, is_approver, is_role
from runs import features
from runs.engine import extras
from runs.engine.agents import Agent, Node, registry
from runs.journal import pooler


def check_definitions() -> list[CheckMessage]:
    """Check that every queue and role that an agent's code names exists. Raises ImproperlyConfigured.

    Names are read from the code without running the code. While the database is unreachable, queues created by
    administrators are unknown, so a name that the settings lack is only a warning. Each serving process checks again
    when it starts.
    """
    queues, is_certain = _queues()
    by_name: dict[str, str] = {}
    for name in settings.DURABLEAGENTS_QUEUES:
        if (twin := by_name.setdefault(name.lower(), name)) != name:
            problem = f"DURABLEAGENTS_QUEUES names {twin!r} and {name!r}, which differ only in case"
            raise ImproperlyConfigured(f"{problem}: leave one of them out")
    warnings: list[CheckMessage] = []
    for agent in registry.agents():
        for where, name, known in _named(agent, queues):
            if name in known:
                continue
            fix = f"use one of {', '.join(sorted(known))}, or {_ADD.format(name)}"
            problem = f"{agent.graph_id}: {where} asks {name!r}, which does not exist"
            if is_certain:
                raise ImproperlyConfigured(f"{problem}: {fix}")
            warnings.append(Warning(f"{problem} in the settings; {_UNCHECKED}", hint=fix, id=UNCERTAIN))
    return warnings


def check_budget_queue() -> list[CheckMessage]:
    """Check that the queue for raising budgets exists. Raises ImproperlyConfigured."""
    name = settings.DURABLEAGENTS.budget_queue
    queues, is_certain = _queues()
    if not name or name in queues:
        return []
    fix = f"use one of {', '.join(sorted(queues))}, or {_ADD.format(name)}"
    problem = f"DURABLEAGENTS_BUDGET_QUEUE={name!r}: no such queue exists"
    if is_certain:
        raise ImproperlyConfigured(f"{problem}; {fix}")
    return [Warning(f"{problem} in the settings; {_UNCHECKED}", hint=fix, id=UNCERTAIN)]


UNCERTAIN = "durableagents.W004"
_UNCHECKED = "the database isn't running, so its queues can't be checked"
# Without the queue, the console doesn't start, but queues can only be added in the console. `migrate` runs the same
# check; queues in the settings pass it.
_ADD = "add {}=ROLE to DURABLEAGENTS_QUEUES and run migrate"


def _queues() -> tuple[set[str], bool]:
    """Return the names of present and past queues, and whether the list is complete.

    It is incomplete while the database is unreachable.
    """
    queues = set(settings.DURABLEAGENTS_QUEUES)
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT to_regclass('approvals_queue') IS NOT NULL")
            if cursor.fetchone()[0]:
                cursor.execute("SELECT name FROM approvals_queue")
                queues |= {name for (name,) in cursor.fetchall()}
    except Error:
        return queues, False
    finally:
        if not connection.in_atomic_block:
            connection.close()  # the next step may fork, so no connection may stay open
    return queues, True


def check_limits() -> list[CheckMessage]:
    """Check that limits declared in the settings or by tools have an effect."""
    if features.only(lambda each: each.limits) is not None:
        return []
    tools = {each.name for agent in registry.agents() for each in agent.all_tools() if each.rate_limit is not None}
    declared = [*(["DURABLEAGENTS_LIMITS"] if settings.DURABLEAGENTS.limits else []), *sorted(tools)]
    problem = f"durableagents.contrib.limits is not installed: nothing is limited by {', '.join(declared)}"
    return [Warning(problem, hint="add the app to INSTALLED_APPS", id="durableagents.W006")] if declared else []


def check_screens() -> None:
    """Check that every hook named in the settings is actually called.

    Raises ImproperlyConfigured. Hooks screen what goes to models and tools.
    """
    if settings.DURABLEAGENTS.screens and features.only(lambda each: each.screens) is None:
        raise ImproperlyConfigured(
            "DURABLEAGENTS_SCREENS: durableagents.contrib.screening is not installed, so no hook would run: "
            "add the app to INSTALLED_APPS, or unset it"
        )


def check_signing_in() -> list[CheckMessage]:
    """Check the roles that need a second factor, and providers' secrets and roles. Raises ImproperlyConfigured."""
    environment, known = settings.DURABLEAGENTS, (*ROLES, STAFF)
    for pattern in environment.second_factor_roles:
        if not is_approver(pattern.replace("*", "x")) and not any(fnmatchcase(role, pattern) for role in known):
            raise ImproperlyConfigured(
                f"DURABLEAGENTS_REQUIRE_SECOND_FACTOR={pattern!r} matches no role; there are {', '.join(known)}"
            )
    for provider in environment.oidc:
        where = f"DURABLEAGENTS_OIDC: {provider.id}"
        try:
            secret = provider.client_secret_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ImproperlyConfigured(f"{where}: client_secret_file can't be read: {error}") from None
        if not secret:
            raise ImproperlyConfigured(f"{where}: {provider.client_secret_file} is empty: put the client secret there")
        if environment.is_production and not provider.issuer.startswith("https://"):
            raise ImproperlyConfigured(f"{where}: the issuer {provider.issuer} is not https")
        if is_role(provider.creates_in):
            raise ImproperlyConfigured(
                f"{where}: creates_in={provider.creates_in!r} is a role: name a group that is not a role"
            )
        if unknown := sorted(role for role in set(provider.roles.values()) if not is_role(role)):
            fix = f"there are {', '.join(ROLES)}, and those that begin with approver_"
            raise ImproperlyConfigured(f"{where}: there is no role {unknown[0]!r}; {fix}")
    if any(features.parts_of_all(lambda each: each.second_factors)):
        return []
    hint = "Add durableagents.contrib.accounts to INSTALLED_APPS, or remove the setting."
    problems = [
        *(["DURABLEAGENTS_OIDC has no effect"] if environment.oidc else []),
        *(
            ["nobody with a role named in DURABLEAGENTS_REQUIRE_SECOND_FACTOR can sign in"]
            if environment.second_factor_roles
            else []
        ),
    ]
    return [Warning(f"Without the app accounts {each}.", hint=hint, id="durableagents.W010") for each in problems]


def check_model() -> None:
    """Check that the models in DURABLEAGENTS_MODEL can be used, and that no agent's model lacks its package.

    Raises ImproperlyConfigured.
    """
    for agent in registry.agents():
        for assistant in agent.assistants:
            if lack := next(filter(None, map(extras.missing_for_model, assistant.models)), ""):
                raise ImproperlyConfigured(f"{agent.graph_id}: `models` of assistant {assistant.name!r}: {lack}")
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
            hint = "" if isinstance(error, ImportError) else "; expected provider:model, such as openai:gpt-5"
            raise ImproperlyConfigured(f"DURABLEAGENTS_MODEL={name!r}: {reason}{hint}") from error


def check_keys() -> None:
    """Check that the master key belongs to this database.

    While the database is unreachable, each process makes this check itself before it serves.
    """
    try:
        reasons = [reason for each in privileges.others if (reason := each())]
    except Error:
        return
    if reasons:
        raise ImproperlyConfigured(reasons[0])


def check_certification() -> list[CheckMessage]:
    """Warn if tools with idempotency keys need certificates and no installed app issues any."""
    policy = settings.DURABLEAGENTS.uncertified_tools
    if policy == "allow" or features.only(lambda each: each.certification) is not None:
        return []
    problem = (
        f"DURABLEAGENTS_UNCERTIFIED_TOOLS is {policy}, but no app certifies tools, so all keyed tools are uncertified."
    )
    return [Warning(problem, hint="Add the app certify to INSTALLED_APPS.", id="durableagents.W005")]


@register("start")
def start_checks(**_: Any) -> list[Any]:
    """Run the checks of `manage.py check` that commands need before they start something."""
    for alias in settings.STORAGES:
        check_packages(alias)
    check_model()
    warnings = [*check_definitions(), *check_budget_queue(), *check_limits(), *check_certification()]
    check_screens()
    warnings += check_signing_in()
    check_keys()
    return warnings


@register("start", deploy=True)
def serving_checks(**_: Any) -> list[CheckMessage]:
    """Check the database as `web` and `worker` do before they serve, for `check --deploy`."""
    try:
        reason = pooler.refusal()
    except OperationalError as error:
        reason = f"the database can't be reached: {first_line(error)}"
    return [checks.Error(f"web and workers won't start: {reason}", id="durableagents.E001")] if reason else []


@register("environment")
def environment_checks(**_: Any) -> list[CheckMessage]:
    """Warn about misspelt environment variables, which would have no effect. `up` warns for all its processes."""
    if "DURABLEAGENTS_UP" in os.environ:
        return []
    return [
        Warning(line, hint="correct the name, or remove it from the environment", id="durableagents.W003")
        for line in env.unread()
    ]


def _named(agent: Agent, queues: set[str]) -> Iterator[tuple[str, str, set[str]]]:
    """Yield each place where an agent names a queue or role, and the names that are valid there."""
    for tool in agent.all_tools():
        if tool.gate is not None:
            yield from ((f"the gate of tool {tool.name!r}", queue, queues) for queue in tool.gate.requirement.queues)
    for node in agent.nodes.values():
        for verb, name in _literal_calls(node):
            yield (
                f"ctx.{verb} in node {node.name!r}",
                name,
                queues | ({*ROLES, *filter(is_role, [name])} if verb == "ask" else set()),
            )


def _literal_calls(node: Node) -> Iterator[tuple[str, str]]:
    """Yield literal calls `ctx.approve("…")` and `ctx.ask("…")` of a node.

    Computed names are only checked when called.
    """
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


_OPEN_KEY = "durableagents.W011"


@register(Tags.security, deploy=True)
def settings_are_safe(**_: Any) -> list[CheckMessage]:
    """Check what Django's own checks don't cover, or report by the names of Django's settings instead of ours."""
    environment = settings.DURABLEAGENTS
    if not environment.is_production:
        return []
    problems = []
    if len(settings.SECRET_KEY) < 32:
        problems.append("DURABLEAGENTS_SECRET_KEY is shorter than 32 characters, so sessions and links can be forged.")
    if environment.public_url is None:
        problems.append("DURABLEAGENTS_BASE_URL is not set, so links in mail and callbacks don't lead here.")
    elif not environment.public_url.startswith("https://"):
        problems.append(
            f"DURABLEAGENTS_BASE_URL={environment.public_url} is not https, so links can be read on the way."
        )
    if "*" in environment.allowed_hosts:
        problems.append("DURABLEAGENTS_ALLOWED_HOSTS contains *, so requests with any host name are answered.")
    found: list[CheckMessage] = [checks.Error(each, id="durableagents.E002") for each in problems]
    is_open = environment.data.stat().st_mode & 0o001  # otherwise the modes of its files don't matter
    for path in sorted([environment.data / "secret_key", *environment.data.glob("*.key")] if is_open else []):
        if path.exists() and (mode := path.stat().st_mode & 0o777) & 0o007:
            text = f"{path} has mode {mode:04o} and {environment.data} is open: other users of this host can read it."
            found.append(Warning(text, hint=f"Run chmod 0600 {path} and chmod 0700 {environment.data}", id=_OPEN_KEY))
    return found


@register(Tags.security, deploy=True)
def proxies_are_known(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check the trusted proxies, which determine the addresses of clients."""
    environment = settings.DURABLEAGENTS
    if not environment.is_production:
        return []
    networks = environment.proxy_networks
    if not networks:
        return [
            Warning(
                "No proxy is trusted: every http request is redirected to https, including those from your proxy.",
                hint="Set DURABLEAGENTS_TRUSTED_PROXIES to the addresses of the proxy that terminates TLS.",
                id="durableagents.W001",
            )
        ]
    if any(network.prefixlen == 0 for network in networks):
        return [
            Warning(
                "Every address is a trusted proxy: clients can put any address into the records.",
                hint="Set DURABLEAGENTS_TRUSTED_PROXIES to the addresses of your proxies.",
                id="durableagents.W002",
            )
        ]
    return []
