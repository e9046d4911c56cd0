"""Checks of a migration request, field by field, before any run is read: versions, and the mapping of nodes."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from ledger.errors import InvalidInput, NotFound
from ledger.web.bodies import Strict
from runs.engine.agents import Agent, registry
from runs.engine.checkpoints.upgrading import number_by
from runs.engine.migrating import Moving
from runs.engine.migration import number_in
from runs.models import AgentCode, AgentVersion, Run, State, VersionGate
from runs.services.bodies import SteerBody
from runs.services.releases.acts import Version

MOST = 100
Node = Annotated[str, Field(min_length=1, max_length=64)]


class Moved(Strict):
    """Runs to migrate, and how. Either `runs` names them, or the oldest active runs of `from_version` are taken (with
    `retry`, the oldest failed ones): at `node`, in `state`, at most `limit`."""

    from_version: Version
    to_version: Version
    nodes: Annotated[
        dict[Node, Node],
        Field(max_length=200, description="For each node of the old version, the corresponding node of the new one."),
    ]
    runs: Annotated[list[Annotated[UUID, Field(strict=False)]], Field(min_length=1, max_length=MOST)] | None = Field(
        default=None, description="Ids of the runs, instead of `node`, `state` and `limit`."
    )
    node: Node | None = Field(default=None, description="Only runs at this node.")
    state: Literal["pending", "running", "waiting_tool", "waiting_human", "waiting_event", "paused"] | None = Field(
        default=None, description="Only runs in this state."
    )
    limit: Annotated[int, Field(ge=1, le=MOST)] = Field(default=20, description="Maximum number of runs, oldest first.")
    retry: Annotated[bool, Field(description="Migrate failed runs and retry them in the same operation.")] = False


class LookBody(Moved):
    """Runs whose migration to preview. Nothing is changed."""


class MigrateBody(Moved, SteerBody):
    """Runs to migrate. Each is migrated on its own; a refused run stays as it is."""


_NONE = "nothing"


def moving_of(agent: str, body: Moved) -> Moving:
    """Return the checked request. Raises NotFound for an unknown agent, InvalidInput by field."""
    if not registry.versions(agent):
        raise NotFound("agent", agent)
    of, to = f"{agent}@{body.from_version}", f"{agent}@{body.to_version}"
    wrong = [*_about_versions(agent, body, of, to)]
    if body.retry and body.state is not None:
        problem = "is said of runs that have not ended, and with `retry` those that failed are taken"
        wrong.append({"field": "state", "problem": problem, "fix": "leave it out"})
    if not wrong:
        wrong = _about_nodes(old_nodes(of), registry.find(to), of, body.nodes)
    if wrong:
        first = wrong[0]
        raise InvalidInput(f"Invalid migration: {first['field']} {first['problem']}.", errors=wrong)
    new = registry.find(to)
    function = new.migration_of(body.from_version).state
    return Moving(of, new, dict(body.nodes), function, body.retry, is_numbered=number_of(of, "") > 1)


def _about_versions(agent: str, body: Moved, of: str, to: str) -> list[dict[str, str]]:
    here = [a.version for a in registry.versions(agent) if a.graph_id in registry.graph_ids()]
    fix = f"one of {', '.join(here) or _NONE}"
    if body.from_version == body.to_version:
        return [{"field": "to_version", "problem": "is the version that they are on", "fix": "another version"}]
    wrong = []
    if not old_nodes(of):
        wrong.append({"field": "from_version", "problem": "is unknown", "fix": "a known version"})
    if body.to_version not in here:
        problem = (
            "has other code here than it was first used with"
            if any(each.graph_id == to for each in registry.agents())
            else "is unknown here"
        )
        wrong.append({"field": "to_version", "problem": problem, "fix": fix})
    elif VersionGate.objects.filter(agent=agent, version=body.to_version, is_closed=True).exists():
        wrong.append({"field": "to_version", "problem": "is closed to new starts", "fix": "open it first"})
    return wrong


def old_nodes(graph_id: str) -> list[str]:
    """Return a version's nodes; if its code is gone, as recorded when it was first used."""
    name, _, version = graph_id.partition("@")
    here = next((a for a in registry.versions(name) if a.version == version), None)
    if here is not None:
        return list(here.nodes)
    parts = AgentVersion.objects.filter(graph_id=graph_id).values_list("parts", flat=True).first()
    nodes = parts.get("nodes") if isinstance(parts, dict) else None
    return list(nodes) if isinstance(nodes, dict) else []


def number_of(graph_id: str, fingerprint: str) -> int:
    """Return the state format number of code with this fingerprint, or else of the version; 0 if unknown."""
    name, _, version = graph_id.partition("@")
    here = [a for a in registry.versions(name) if (a.is_own(fingerprint) if fingerprint else a.version == version)]
    if here:
        return here[0].schema_version
    if not fingerprint:
        parts = AgentVersion.objects.filter(graph_id=graph_id).values_list("parts", flat=True).first()
        return number_in(parts or {})
    wrote = {"graph_id__startswith": f"{name}@", "fingerprint": fingerprint}
    parts = AgentCode.objects.filter(**wrote).values_list("parts", flat=True).first()
    return number_by(fingerprint, parts or AgentVersion.objects.filter(**wrote).values_list("parts", flat=True).first())


def _about_nodes(old: list[str], to: Agent, of: str, nodes: dict[str, str]) -> list[dict[str, str]]:
    new = ", ".join(to.nodes)
    wrong = [
        {"field": f"nodes.{name}", "problem": f"is left out: {of} has this node", "fix": f"one of {new}"}
        for name in old
        if name not in nodes
    ]
    for name, target in nodes.items():
        if name not in old:
            wrong.append({"field": f"nodes.{name}", "problem": f"is no node of {of}", "fix": f"of {', '.join(old)}"})
        elif target not in to.nodes:
            problem = f"leads to {target!r}, which is no node of {to.graph_id}"
            wrong.append({"field": f"nodes.{name}", "problem": problem, "fix": f"one of {new}"})
    return wrong


def proposed(old: list[str], to: Agent, from_version: str) -> dict[str, str]:
    """Return the declared mapping of nodes, else by equal names; "" where there is none."""
    declared = to.migration_of(from_version).nodes
    return {name: declared.get(name, name if name in to.nodes else "") for name in old}


def chosen(of: str, body: Moved) -> list[UUID]:
    """Return the named runs, or the oldest that match and have not ended (with `retry`: that failed)."""
    if body.runs is not None:
        return list(dict.fromkeys(body.runs))
    agent, _, version = of.partition("@")
    found = Run.objects.filter(agent=agent, version=version)
    found = found.filter(state=State.FAILED) if body.retry else found.filter(ended_at__isnull=True)
    found = found.filter(node=body.node) if body.node is not None else found
    found = found.filter(state=body.state) if body.state is not None else found
    return list(found.order_by("created_at", "id").values_list("id", flat=True)[: body.limit])
