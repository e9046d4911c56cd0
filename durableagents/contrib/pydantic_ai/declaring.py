"""Declares a Pydantic AI agent: replay classes and gates of its tools, and who answers the external ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, RootModel

from durableagents.contrib.pydantic_ai.running import AgentLoop
from durableagents.contrib.pydantic_ai.tools import ANY_OBJECT, NAME, tool_of
from runs.engine.assistants import SCRIPTED, Request, WrappedAgent
from runs.engine.canonical import plain
from runs.engine.content.files import Prompt
from runs.engine.errors import DefinitionError
from runs.engine.gating.timing import MAX_WAIT
from runs.engine.secrets import names_of
from runs.engine.tools import Gate, ReplayClass, Tool
from runs.engine.visit import Visit

if TYPE_CHECKING:
    from pydantic_ai import Agent as PydanticAgent
    from pydantic_ai.models import Model

DEFAULT_MAX_REQUESTS = 50


@dataclass(frozen=True, slots=True)
class Outside:
    """The source of the result of a tool that is executed elsewhere: a signal or, with `ask`, the answer of a person.

    `ask` names a role or queue, whose people fill in a form made from `schema`. After the time `within` (default 7
    days) the model is told that nobody answered. Raises DefinitionError."""

    ask: str = ""
    schema: type[BaseModel] | None = None
    within: timedelta = timedelta(days=7)

    def __post_init__(self) -> None:
        if bool(self.ask) != (self.schema is not None):
            raise DefinitionError("Outside(ask=…, schema=…): give both or neither")
        if not isinstance(self.within, timedelta) or not timedelta(0) < self.within <= MAX_WAIT:
            raise DefinitionError(f"Outside(within={self.within!r}): give a positive timedelta")


@dataclass(frozen=True)
class PydanticAssistant(WrappedAgent):
    """A Pydantic AI agent as one of an agent's assistants. Created by `durable`."""

    outside: Mapping[str, Outside] = field(default_factory=dict)

    async def think(self, visit: Visit, slot: str, prompt: Prompt, deps: Any) -> Any:
        """Let the agent work on the `prompt` until it returns its output. Raises ModelFailure."""
        return await AgentLoop(visit, visit.open_path(slot, "think"), self).complete(prompt, deps)

    def check_tool(self, name: str, kind: str) -> None:
        """Raise DefinitionError if a tool found at run time isn't declared, or lacks a gate that it needs."""
        declared = self.tool(name)
        if kind == "external" and name not in self.outside:
            raise DefinitionError(_unanswered(self.name, name))
        if kind != "external" and declared is None:
            raise DefinitionError(_undeclared(self.name, name))
        if kind == "unapproved" and declared is not None and declared.gate is None:
            raise DefinitionError(_ungated(self.name, name))

    def asking(self, request: Request) -> Self:
        """Return a copy for one request. Its `most_tokens` is the `max_tokens` of the request's settings, if set."""
        made = super().asking(request)
        limit = request.settings.get("max_tokens")
        if isinstance(limit, int):
            object.__setattr__(made, "most_tokens", limit)
        return made

    def settings(self) -> dict[str, Any]:
        """Return the settings to record: the timeout, and those of the request's settings that are plain data."""
        settings = {} if self.request is None else self.request.settings
        return {"timeout": self.timeout} | {name: value for name, value in settings.items() if _is_plain(value)}

    def own_model(self, name: str) -> Any:
        """Return the agent's own model object that is recorded as `name`; None if there is none."""
        own = self.agent.model
        if own is None or isinstance(own, str):
            return None
        for model in _alternatives(own):
            if _name_of(model) == name or (name.startswith(SCRIPTED) and _name_of(model) is None):
                return model
        return None

    def described(self) -> dict[str, Any]:
        """Return further parts of the fingerprint: the agent's own functions, and the sources of external results."""
        agent = self.agent
        return {
            "dynamic": [_function(each) for each in _dynamic(agent)],
            "validators": [_function(each) for each in getattr(agent, "_output_validators", ())],
            "history": [_function(each) for each in _history_processors(agent)],
            "outside": {
                name: None if each.schema is None else [each.ask, each.schema.model_json_schema()]
                for name, each in self.outside.items()
            },
        }


def durable(
    agent: PydanticAgent[Any, Any],
    *,
    tools: Mapping[str, ReplayClass] | None = None,
    gates: Mapping[str, Gate] | None = None,
    outside: Mapping[str, Outside] | None = None,
    later: Sequence[str] = (),
    secrets: Mapping[str, Sequence[str]] | None = None,
    name: str = "",
    models: Sequence[str] = (),
    max_requests: int = DEFAULT_MAX_REQUESTS,
    timeout: float = 300.0,
    most_tokens: int | None = None,
) -> PydanticAssistant:
    """Declare how a Pydantic AI `agent` works in a run, for `Agent(assistants=[…])` and `ctx.think`.

    The agent is not changed. `tools` gives the replay class of each function tool, by the name that the model sees
    (also in toolsets); a tool may set `metadata={"replay_class": "pure"}` instead. `gates` says who must approve which
    tool; each tool with `requires_approval=True` needs a gate. `outside` says who gives the result of a tool that is
    executed elsewhere (in an `ExternalToolset`). `later` names the tools that raise `CallDeferred` and get their result
    by callback. `secrets` names the secrets that a tool gets from `this_call().secret(name)`.

    `name` identifies the agent in records, and `models` lists the models to ask, as `provider:model`; both default to
    the agent's own. `max_requests` (50) limits the requests of one `think`; `timeout` (300) is in seconds, for one
    request; `most_tokens` (4096) is what a budget reserves for an answer.

    Raises DefinitionError, for example for a tool without a replay class.
    """
    name = name or agent.name or ""
    if not name:
        raise DefinitionError("durable(…): the agent has no name. Give name=, by which it is recorded")
    classes, gates, outside, secrets = dict(tools or {}), dict(gates or {}), dict(outside or {}), dict(secrets or {})
    found = _find_tools(agent)
    _check_declaration(name, found, classes, gates, outside, {"later": later, "secrets": [*secrets]})
    made = []
    for each in [*found, *(other for other in classes if other not in found)]:
        if each in outside:
            continue
        declared = names_of(f"{name}: tool {each!r}", secrets.get(each, ()))
        made.append(replace(_tool(name, each, found.get(each), classes, gates, later), secrets=declared))
    own_models, offline = _models(agent)
    return PydanticAssistant(
        name=name,
        instructions=_prompts(agent),
        output=_output(agent, name),
        tools=tuple(made),
        offline=offline,
        max_turns=max_requests,
        timeout=timeout,
        most_tokens=most_tokens,
        models=tuple(models or own_models),
        agent=agent,
        outside=outside,
    )


# --- its tools --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _FoundTool:
    function: Callable[..., Any] | None
    definition: Any
    timeout: float | None = None

    @property
    def replay_class(self) -> Any:
        value = (self.definition.metadata or {}).get("replay_class")
        try:
            return value if value is None else ReplayClass(value)
        except ValueError:
            return value  # tool_of refuses it


def _find_tools(agent: Any) -> dict[str, _FoundTool]:
    """Return the tools of the agent's own toolsets. Dynamic and wrapped toolsets are checked by `think`."""
    from pydantic_ai.toolsets import ExternalToolset, FunctionToolset

    found: dict[str, _FoundTool] = {}
    for toolset in agent.toolsets:
        if isinstance(toolset, FunctionToolset):
            for n, t in toolset.tools.items():
                limit = toolset.timeout if t.timeout is None else t.timeout
                found[n] = _FoundTool(t.function, t.tool_def, limit)
        elif isinstance(toolset, ExternalToolset):
            found |= {d.name: _FoundTool(None, d) for d in toolset.tool_defs}
    return found


def _check_declaration(
    name: str,
    found: Mapping[str, _FoundTool],
    classes: Mapping[str, Any],
    gates: Mapping[str, Any],
    outside: Mapping[str, Any],
    others: Mapping[str, Sequence[str]],
) -> None:
    for each, tool in found.items():
        if tool.function is None and each not in outside:
            raise DefinitionError(_unanswered(name, each))
        if tool.function is not None and each in outside:
            raise DefinitionError(
                f"{name}: tool {each!r} has a function: give its replay class in tools={{…}}, not outside={{…}}"
            )
        if tool.definition.kind == "unapproved" and each not in gates:
            raise DefinitionError(_ungated(name, each))
        if tool.function is not None and each not in classes and tool.replay_class is None:
            raise DefinitionError(_undeclared(name, each))
    tools = {*classes, *found} - {*outside}
    for what, names in (("gates", [*gates]), *others.items()):
        for each in names:
            if each not in tools:
                raise DefinitionError(f"{name}: {what} names {each!r}, which is not one of its tools: {sorted(tools)}")
    for each in outside:
        if not NAME.fullmatch(each) or each in classes:
            raise DefinitionError(
                f"{name}: outside names {each!r}: use a valid tool name that is not also in tools={{…}}"
            )


def _unanswered(name: str, tool: str) -> str:
    return f"{name}: tool {tool!r} runs outside the agent: name who answers it in outside={{…}}"


def _ungated(name: str, tool: str) -> str:
    return f"{name}: tool {tool!r} requires approval: give its gate in gates={{…}}"


def _undeclared(name: str, tool: str) -> str:
    classes = ", ".join("ReplayClass." + c.name for c in ReplayClass)
    return f"{name}: tool {tool!r} has no replay class: give one in durable(…, tools={{{tool!r}: …}}): {classes}"


def _tool(
    name: str,
    tool: str,
    found: _FoundTool | None,
    classes: Mapping[str, Any],
    gates: Mapping[str, Gate],
    later: Sequence[str],
) -> Tool:
    gate = gates.get(tool)
    if gate is not None and not isinstance(gate, Gate):
        raise DefinitionError(f"{name}: the gate of {tool!r} is {gate!r}: give a Gate(queue=…, rule=…)")
    definition = None if found is None else found.definition
    return tool_of(
        tool,
        classes.get(tool) or (found.replay_class if found else None),
        function=None if found is None else found.function,
        description=(definition.description or "") if definition else "",
        schema=definition.parameters_json_schema if definition else ANY_OBJECT,
        timeout=None if found is None else found.timeout,
        gate=gate,
        answers_later=tool in later,
        sequential=bool(definition and definition.sequential),
    )


# --- models, prompts and output ---------------------------------------------------------------------------------------


def _models(agent: Any) -> tuple[list[str], Callable[..., Any] | None]:
    """Return the recorded names of an agent's models; if one is a test model, only a placeholder function."""
    model = agent.model
    if model is None:
        return [], None
    if isinstance(model, str):
        return [model], None
    names = [_name_of(each) for each in _alternatives(model)]
    if any(name is None for name in names):
        return [], _unused
    return [name for name in names if name is not None], None


def _unused(messages: Any, info: Any) -> Any:
    raise AssertionError("the agent's own model answers")


def _alternatives(model: Model) -> list[Model]:
    from pydantic_ai.models.fallback import FallbackModel

    return list(model.models) if isinstance(model, FallbackModel) else [model]


def _name_of(model: Any) -> str | None:
    """Return a model object's recorded name; None for Pydantic AI's test models."""
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.models.test import TestModel

    while hasattr(model, "wrapped"):
        model = model.wrapped
    if isinstance(model, (FunctionModel, TestModel)):
        return None
    return f"{model.system}:{model.model_name}"


def _prompts(agent: Any) -> str:
    prompts = [str(each) for each in getattr(agent, "_system_prompts", ())]
    prompts += [i.instruction for i in getattr(agent, "_instructions", ()) if isinstance(i.instruction, str)]
    return "\n\n".join(prompts)


def _dynamic(agent: Any) -> list[Any]:
    functions = list(getattr(agent, "_system_prompt_functions", ()))
    functions += [i.instruction for i in getattr(agent, "_instructions", ()) if not isinstance(i.instruction, str)]
    return functions


def _history_processors(agent: Any) -> list[Any]:
    root = getattr(agent, "_root_capability", None)
    return [c.processor for c in getattr(root, "capabilities", ()) if hasattr(c, "processor")]


def _function(each: Any) -> Any:
    function = getattr(each, "function", each)
    return function if inspect.isroutine(function) else type(function)


def _output(agent: Any, name: str) -> type[BaseModel]:
    schema = agent.output_json_schema()

    def described(cls: Any, core: Any, handler: Callable[[Any], Any]) -> dict[str, Any]:
        return dict(schema)

    members = {"__get_pydantic_json_schema__": classmethod(described), "__module__": __name__}
    return type("Output", (RootModel[Any],), members | {"__doc__": f"Output of {name}."})


def _is_plain(value: Any) -> bool:
    try:
        plain({"value": value})
    except ValueError:
        return False
    return True
