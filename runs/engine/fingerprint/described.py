"""Describes an agent as plain data: schemas and settings directly, code as encoded by a scheme."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from pydantic import BaseModel
from pydantic.errors import PydanticInvalidForJsonSchema

from runs.engine.gating.timing import WorkingHours
from runs.engine.tools import FOR_DISPATCH, Gate, Tool, Undo

# Cached per model, because each tool and agent that uses the model needs its schema.
_schemas: WeakKeyDictionary[type[BaseModel], dict[str, Any]] = WeakKeyDictionary()
# A function that encodes functions and model classes according to one scheme.
Code = Callable[[Any], Any]


class Described(Protocol):
    """The parts of an agent that define its version.

    This is a protocol because `runs.engine.agents` imports this module.
    """

    @property
    def nodes(self) -> Mapping[str, Any]: ...
    @property
    def start(self) -> str: ...
    @property
    def initial(self) -> Callable[[Any], BaseModel] | None: ...
    @property
    def input(self) -> type[BaseModel]: ...
    @property
    def state(self) -> type[BaseModel]: ...
    @property
    def output(self) -> type[BaseModel] | None: ...
    @property
    def assistants(self) -> Iterable[Any]: ...
    @property
    def attributes(self) -> Mapping[str, Any]: ...
    @property
    def messages(self) -> Mapping[str, Any]: ...
    @property
    def signals(self) -> list[str] | None: ...
    @property
    def undos(self) -> Iterable[Undo]: ...
    @property
    def upgraders(self) -> Mapping[int, Callable[[Any], Any]]: ...
    @property
    def on_failure(self) -> str: ...
    def all_tools(self) -> Iterable[Tool]: ...
    def parts(self) -> dict[str, Any]: ...


def described(agent: Described, code: Code) -> dict[str, Any]:
    """Return everything that defines a version, with code encoded by `code`."""
    return {
        "nodes": {n.name: {"edges": list(n.edges), "code": code(n.function)} for n in agent.nodes.values()},
        "start": agent.start,
        "initial": code(agent.initial),
        "tools": {t.name: tool_described(t, code) for t in agent.all_tools()},
        "models": {
            "input": _schema(agent.input, code),
            "state": _schema(agent.state, code),
            "output": _schema(agent.output, code),
        },
        "assistants": {
            a.name: {
                "instructions": a.instructions,
                "output": _schema(a.output, code),
                "tools": [t.name for t in a.tools],
                "max_turns": a.max_turns,
                **({"agent": _with_code(more, code)} if (more := a.described()) else {}),
            }
            for a in agent.assistants
        },
        # Attributes are omitted if there are none, so that older digests stay valid.
        **({"attributes": {n: a.kind for n, a in agent.attributes.items()}} if agent.attributes else {}),
    } | _declared_parts(agent, code)


def _declared_parts(agent: Described, code: Code) -> dict[str, Any]:
    """Describe messages, signals and upgraders.

    They are omitted if none are declared, so that older digests stay valid.
    """
    messages = {
        m.name: {
            "takes": _schema(m.takes, code),
            "answers": _schema(m.answers, code),
            "code": code(m.function),
            "check": code(m.check),
        }
        for m in agent.messages.values()
    }
    signals = {} if agent.signals is None else {"signals": sorted(agent.signals)}
    upgraders = {"upgraders": {str(n): code(step) for n, step in agent.upgraders.items()}} if agent.upgraders else {}
    return ({"messages": messages} if messages else {}) | signals | upgraders | _undone(agent, code)


def _undone(agent: Described, code: Code) -> dict[str, Any]:
    """Describe how effects are undone. Empty if the agent declares nothing about that."""
    undos = {"undos": {each.name: _undo(each, code) for each in agent.undos}} if agent.undos else {}
    return undos | ({} if agent.on_failure == "undo" else {"on_failure": agent.on_failure})


def tool_described(tool: Tool, code: Code) -> dict[str, Any]:
    """Return everything that defines a tool, with code encoded by `code`."""
    cached = {} if tool.cache is None else {"cache": tool.cache.total_seconds(), "shared": tool.shared}
    undone = {} if tool.undo is None else {"undo": _undo(tool.undo, code)}
    risky = {"risk": tool.risk} if tool.risk else {}
    return (
        cached
        | undone
        | risky
        | {
            "class": str(tool.replay_class),
            "input": _schema(tool.input, code),
            "output": _schema(tool.output, code),
            "code": code(_written(tool)),
            "gate": None if tool.gate is None else _gate(tool.gate, code),
            "timeout": tool.timeout,
            "answers_later": tool.answers_later,
            "key_ttl": None if tool.key_ttl is None else tool.key_ttl.total_seconds(),
            "external_id": tool.external_id,
            "sequential": tool.sequential,
            "description": tool.description,
            "reconcile": code(tool.reconcile),
            "on_receipt": code(tool.on_receipt),
            "check_answer": code(tool.check_answer),
        }
    )


def _undo(undo: Undo, code: Code) -> dict[str, Any]:
    return {"tool": undo.tool.name, "name": undo.name, "args": code(undo.args)}


def _written(tool: Tool) -> Callable[..., Any]:
    """Return the author's function, even if this library wraps it (like the tools of Pydantic AI agents)."""
    function = tool.opened(FOR_DISPATCH)
    return getattr(function, "author", function)


def _with_code(value: Any, code: Code) -> Any:
    """Return plain data with each function replaced by its encoded code."""
    if isinstance(value, dict):
        return {name: _with_code(each, code) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_code(each, code) for each in value]
    return code(value) if callable(value) else value


def _gate(gate: Gate, code: Code) -> dict[str, Any]:
    # Entries that a gate doesn't declare are omitted, so that digests from before these features existed stay valid.
    amount = (
        {} if gate.amount is None else {"amount": gate.amount if isinstance(gate.amount, str) else code(gate.amount)}
    )
    stages = {} if gate.requirement.is_plain else {"stages": [x.as_json() for x in gate.requirement.stages]}
    on_timeout = {} if gate.on_timeout is None else {"on_timeout": [gate.on_timeout, gate.escalate_to]}
    editable = {"editable": list(gate.editable)} if gate.editable else {}
    same = {"same": list(gate.same)} if gate.same else {}
    documents = {} if gate.documents is None else {"documents": code(gate.documents)}
    return (
        amount
        | stages
        | on_timeout
        | editable
        | same
        | documents
        | {
            "queue": gate.queue,
            "rule": gate.rule,
            "when": code(gate.when),
            "headline": code(gate.headline),
            "within": str(gate.within) if isinstance(gate.within, WorkingHours) else gate.within.total_seconds(),
        }
    )


def _schema(model: type[BaseModel] | None, code: Code) -> Any:
    if model is None:
        return None
    try:
        return {"schema": json_schema(model), "code": code(model)}
    except PydanticInvalidForJsonSchema:
        return {"schema": model.__qualname__, "code": code(model)}


def json_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return a model's schema. Callers must not change the result. Raises PydanticInvalidForJsonSchema."""
    if model not in _schemas:
        _schemas[model] = model.model_json_schema()
    return _schemas[model]
