"""Declares how a Pydantic AI agent works in a run: replay classes and gates of its tools, and external tools."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, RootModel

from runs.engine.assistants import SCRIPTED, Assistant, Request
from runs.engine.canonical import plain
from runs.engine.errors import DefinitionError
from runs.engine.gating.timing import LONGEST
from runs.engine.pydantic_agents.tools import ANY, HOW, NAME, tool_of
from runs.engine.secrets import names_of
from runs.engine.tools import Gate, ReplayClass, Tool

if TYPE_CHECKING:
    from pydantic_ai import Agent as PydanticAgent
    from pydantic_ai.models import Model

USUAL_REQUESTS = 50


@dataclass(frozen=True, slots=True)
class Outside:
    """Source of the result of a tool that is executed elsewhere: a signal, or with `ask` a person's answer. `ask` is
    a role or queue, whose people fill in a form made from `schema`. After the time `within` (7 days) the model is
    told that nobody answered. Raises DefinitionError."""

    ask: str = ""
    schema: type[BaseModel] | None = None
    within: timedelta = timedelta(days=7)

    def __post_init__(self) -> None:
        if bool(self.ask) != (self.schema is not None):
            raise DefinitionError("Outside(ask=…, schema=…): give both or neither")
        if not isinstance(self.within, timedelta) or not timedelta(0) < self.within <= LONGEST:
            raise DefinitionError(f"Outside(within={self.within!r}): give a positive timedelta")


@dataclass(frozen=True)
class AgentAssistant(Assistant):
    """A Pydantic AI agent as one of an agent's assistants. Made by `durable`."""

    agent: Any = None
    outside: Mapping[str, Outside] = field(default_factory=dict)

    def asking(self, request: Request) -> Self:
        """Return a copy for one request of the agent's run."""
        made = super().asking(request)
        limit = request.settings.get("max_tokens")
        if isinstance(limit, int):
            object.__setattr__(made, "most_tokens", limit)
        return made

    def settings(self) -> dict[str, Any]:
        """Return the settings sent to the provider, as recorded: those that are plain data."""
        given = {} if self.request is None else self.request.settings
        return {"timeout": self.timeout} | {name: value for name, value in given.items() if _is_plain(value)}

    def own_model(self, name: str) -> Any:
        """Return the agent's own model object recorded as `name`, with its client and settings."""
        whom = self.agent.model
        if whom is None or isinstance(whom, str):
            return None
        for model in _alternatives(whom):
            if _name_of(model) == name or (name.startswith(SCRIPTED) and _name_of(model) is None):
                return model
        return None

    def described(self) -> dict[str, Any]:
        """Return its parts other than tools and prompts for the fingerprint: functions as they are."""
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
    max_requests: int = USUAL_REQUESTS,
    timeout: float = 300.0,
    most_tokens: int | None = None,
) -> AgentAssistant:
    """Declare how a Pydantic AI `agent` works in a run, for `Agent(assistants=[…])` and `ctx.think`.
    The agent is not changed. `tools` gives the replay class of each of its function tools, by the name that the model
    sees (also in toolsets); a tool may set `metadata={"replay_class": "pure"}` instead. `gates` says who must approve
    which tool; each with `requires_approval=True` needs one. `outside` says who gives the result of a tool that is
    executed elsewhere (an `ExternalToolset`'s). `later` names those that raise `CallDeferred` and are answered by
    callback. `secrets` names the secrets that a tool gets from `this_call().secret(name)`.
    `name` identifies it on record and `models` are asked as `provider:model`; both default to the agent's own.
    `max_requests` (50) limits the requests of one `think`; `timeout` is in seconds (300), for one request;
    `most_tokens` is what a budget reserves for an answer (4096).
    Raises DefinitionError, such as for a tool without a replay class.
    """
    name = name or agent.name or ""
    if not name:
        raise DefinitionError(f"{HOW}(…): the agent has no name: give name=, under which it is recorded")
    classes, gates, outside, secrets = dict(tools or {}), dict(gates or {}), dict(outside or {}), dict(secrets or {})
    known = _known_tools(agent)
    _check_names(name, known, classes, gates, outside, {"later": later, "secrets": [*secrets]})
    made = []
    for each in [*known, *(other for other in classes if other not in known)]:
        if each in outside:
            continue
        own = known.get(each)
        declared = names_of(f"{name}: tool {each!r}", secrets.get(each, ()))
        made.append(replace(_tool(name, each, own, classes, gates, later), secrets=declared))
    whom, offline = _models(agent, name)
    return AgentAssistant(
        name=name,
        instructions=_prompts(agent),
        output=_output(agent, name),
        tools=tuple(made),
        offline=offline,
        max_turns=max_requests,
        timeout=timeout,
        most_tokens=most_tokens,
        models=tuple(models or whom),
        agent=agent,
        outside=outside,
    )


def declared_for(assistants: Sequence[Assistant], agent: Any) -> AgentAssistant:
    """Return the declaration for a Pydantic AI agent. Raises DefinitionError if there is none."""
    for assistant in assistants:
        if isinstance(assistant, AgentAssistant) and assistant.agent is agent:
            return assistant
    name = getattr(agent, "name", None) or repr(agent)
    raise DefinitionError(
        f"ctx.think({name}): the agent doesn't declare it: add {HOW}(it, tools={{…}}) to its assistants=[…]"
    )


# --- its tools --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Known:
    function: Callable[..., Any] | None
    definition: Any
    timeout: float | None = None

    @property
    def replay_class(self) -> Any:
        said = (self.definition.metadata or {}).get("replay_class")
        try:
            return said if said is None else ReplayClass(said)
        except ValueError:
            return said


def _known_tools(agent: Any) -> dict[str, _Known]:
    """Return the tools of the agent's own toolsets; `think` checks dynamic and wrapped ones."""
    from pydantic_ai.toolsets import ExternalToolset, FunctionToolset

    known: dict[str, _Known] = {}
    for toolset in agent.toolsets:
        if isinstance(toolset, FunctionToolset):
            for n, t in toolset.tools.items():
                limit = toolset.timeout if t.timeout is None else t.timeout
                known[n] = _Known(t.function, t.tool_def, limit)
        elif isinstance(toolset, ExternalToolset):
            known |= {d.name: _Known(None, d) for d in toolset.tool_defs}
    return known


def _check_names(
    name: str,
    known: Mapping[str, _Known],
    classes: Mapping[str, Any],
    gates: Mapping[str, Any],
    outside: Mapping[str, Any],
    others: Mapping[str, Sequence[str]],
) -> None:
    for each, tool in known.items():
        if tool.function is None and each not in outside:
            raise DefinitionError(f"{name}: tool {each!r} runs outside the agent: name who answers it in outside={{…}}")
        if tool.function is not None and each in outside:
            raise DefinitionError(
                f"{name}: tool {each!r} has a function: give its replay class in tools={{…}}, not outside={{…}}"
            )
        if tool.definition.kind == "unapproved" and each not in gates:
            raise DefinitionError(f"{name}: tool {each!r} requires approval: give its gate in gates={{…}}")
        if tool.function is not None and each not in classes and tool.replay_class is None:
            raise DefinitionError(_undeclared(name, each))
    tools = {*classes, *known} - {*outside}
    for what, names in (("gates", [*gates]), *others.items()):
        for each in names:
            if each not in tools:
                raise DefinitionError(f"{name}: {what} names {each!r}, which is not one of its tools: {sorted(tools)}")
    for each in outside:
        if not NAME.fullmatch(each) or each in classes:
            raise DefinitionError(
                f"{name}: outside names {each!r}: give a valid tool name that is not in tools={{…}} too"
            )


def _undeclared(name: str, tool: str) -> str:
    classes = ", ".join("ReplayClass." + c.name for c in ReplayClass)
    return f"{name}: tool {tool!r} has no replay class: give one in {HOW}(…, tools={{{tool!r}: …}}): {classes}"


def must_be_declared(assistant: AgentAssistant, tool: str, kind: str) -> None:
    """Raise DefinitionError for a tool found at run time that isn't declared."""
    declared = assistant.tool(tool)
    if kind == "external" and tool not in assistant.outside:
        raise DefinitionError(
            f"{assistant.name}: tool {tool!r} runs outside the agent: name who answers it in outside={{…}}"
        )
    if kind != "external" and declared is None:
        raise DefinitionError(_undeclared(assistant.name, tool))
    if kind == "unapproved" and declared is not None and declared.gate is None:
        raise DefinitionError(f"{assistant.name}: tool {tool!r} requires approval: give its gate in gates={{…}}")


def _tool(
    name: str,
    tool: str,
    known: _Known | None,
    classes: Mapping[str, Any],
    gates: Mapping[str, Gate],
    later: Sequence[str],
) -> Tool:
    gate = gates.get(tool)
    if gate is not None and not isinstance(gate, Gate):
        raise DefinitionError(f"{name}: the gate of {tool!r} is {gate!r}: give a Gate(queue=…, rule=…)")
    definition = None if known is None else known.definition
    return tool_of(
        tool,
        classes.get(tool) or (known.replay_class if known else None),
        function=None if known is None else known.function,
        description=(definition.description or "") if definition else "",
        schema=definition.parameters_json_schema if definition else ANY,
        timeout=None if known is None else known.timeout,
        gate=gate,
        answers_later=tool in later,
        sequential=bool(definition and definition.sequential),
    )


# --- models, prompts and output ---------------------------------------------------------------------------------------


def _models(agent: Any, name: str) -> tuple[list[str], Callable[..., Any] | None]:
    """Return the recorded names of its models, and a placeholder function if one needs no provider."""
    whom = agent.model
    if whom is None:
        return [], None
    if isinstance(whom, str):
        return [whom], None
    found = [_name_of(model) for model in _alternatives(whom)]
    if any(each is None for each in found):
        return [], _unused
    return [each for each in found if each is not None], None


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
    said = [str(each) for each in getattr(agent, "_system_prompts", ())]
    said += [i.instruction for i in getattr(agent, "_instructions", ()) if isinstance(i.instruction, str)]
    return "\n\n".join(said)


def _dynamic(agent: Any) -> list[Any]:
    said = list(getattr(agent, "_system_prompt_functions", ()))
    said += [i.instruction for i in getattr(agent, "_instructions", ()) if not isinstance(i.instruction, str)]
    return said


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

    made = {"__get_pydantic_json_schema__": classmethod(described), "__module__": __name__}
    return type("Output", (RootModel[Any],), made | {"__doc__": f"What {name} gives."})


def _is_plain(value: Any) -> bool:
    try:
        plain({"value": value})
    except ValueError:
        return False
    return True
