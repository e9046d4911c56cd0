"""The manifest of an agent version: which data is recorded, recomputed, secret or external.
The manifest is built from declarations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, Field
from pydantic.errors import PydanticInvalidForJsonSchema

from ledger.web.shapes import Shape
from runs.engine.agents import Agent
from runs.engine.tools import Tool
from runs.queries.secret_fields import models_of, secret_paths


class FactRow(Shape):
    """One entry of a manifest."""

    kind: str = Field(description="For example `state`, `result`, `node` or `tool`.")
    name: str = Field(description="Name of the part.")
    note: str = Field(description="Remark about it; empty if none.")


class ManifestRow(Shape):
    """The parts of a version that are recorded, recomputed, secret, or external."""

    persisted: list[FactRow] = Field(description="Parts that are recorded.")
    recomputed: list[FactRow] = Field(description="Parts that are computed again on replay.")
    secret: list[FactRow] = Field(description="Parts that are never recorded.")
    external: list[FactRow] = Field(description="Parts outside the engine.")


def manifest_of(agent: Agent) -> ManifestRow:
    return ManifestRow(
        persisted=list(_persisted(agent)),
        recomputed=list(_recomputed(agent)),
        secret=list(_secret(agent)),
        external=list(_external(agent)),
    )


def fact(kind: str, name: str, note: str = "") -> FactRow:
    return FactRow(kind=kind, name=name, note=note)


def _persisted(agent: Agent) -> Iterator[FactRow]:
    for name, kind in _fields(agent.input):
        yield fact("input", name, kind)
    for name, kind in _fields(agent.state):
        yield fact("state", name, f"{kind}, checkpointed at the start of each node")
    for tool in agent.all_tools():
        yield fact("result", tool.name, _listed(agent_fields for agent_fields, _ in _fields(tool.output)))
    for assistant in agent.assistants:
        yield fact("conversation", assistant.name, "each request and answer")
    for message in agent.messages.values():
        yield fact("message", message.name, "request and answer" if message.answers else "request")
    for signal in ["any name"] if agent.signals is None else agent.signals:
        yield fact("signal", signal, "its payload")
    for name, attribute in agent.attributes.items():
        yield fact("attribute", name, attribute.kind)
    if agent.output is not None:
        for name, kind in _fields(agent.output):
            yield fact("output", name, kind)


def _recomputed(agent: Agent) -> Iterator[FactRow]:
    for node in agent.nodes.values():
        yield fact("node", node.name, "its code runs again after a stop, with the recorded results of its calls")
    for tool in agent.all_tools():
        if tool.is_pure:
            kept = f"; an answer is shared for {_time(tool.cache)}" if tool.cache else ""
            yield fact("read", tool.name, f"called again if its answer isn't recorded yet{kept}")
        if tool.gate is not None:
            yield fact("gate", tool.name, f"{tool.gate.rule}: decided for each call that isn't recorded")
    for view in agent.views.values():
        yield fact("view", view.name, "computed from the recorded state on request")


def _secret(agent: Agent) -> Iterator[FactRow]:
    for owner, model in models_of(agent):
        for path in secret_paths(model):
            yield fact("field", f"{owner}: {path}", "recorded and shown as asterisks")
    for screen in agent.screens:
        yield fact("screen", screen.id, f"may hide content from {', '.join(sorted(screen.source))}")


def _external(agent: Agent) -> Iterator[FactRow]:
    for tool in agent.all_tools():
        yield fact("tool", tool.name, "; ".join(_outside(tool)))


def _outside(tool: Tool) -> Iterator[str]:
    if tool.system:
        yield f"at {tool.system}"
    yield str(tool.replay_class).replace("_", " ")
    if tool.key_ttl is not None:
        yield f"remembers a key for {_time(tool.key_ttl)}"
    if tool.external_id:
        yield f"its own id is in {tool.external_id}"
    if tool.answers_later:
        yield "answers later, by callback"
    if tool.reconcile is not None:
        yield "can be queried for the outcome of a call"


# --- schemas ----------------------------------------------------------------------------------------------------------


def _schema(model: type[BaseModel] | None) -> Mapping[str, Any]:
    if model is None:
        return {}
    try:
        return model.model_json_schema()
    except PydanticInvalidForJsonSchema:
        return {}


def _fields(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    for name, field in _schema(model).get("properties", {}).items():
        yield name, _type(field)


def _type(field: Mapping[str, Any]) -> str:
    if "type" in field:
        return str(field["type"])
    if "$ref" in field:
        return str(field["$ref"]).rpartition("/")[2]
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(_type(each) for each in field["anyOf"]))
    return "any"


def _listed(names: Iterator[str]) -> str:
    return ", ".join(names) or "nothing"


def _time(length: timedelta) -> str:
    seconds = length.total_seconds()
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"
