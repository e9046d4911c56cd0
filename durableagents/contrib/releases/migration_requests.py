"""Requests to migrate runs, and the selection of the runs.

The bodies are checked field by field before any run is read."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from durableagents.contrib.releases.models import VersionGate
from durableagents.contrib.releases.services import Version
from ledger.errors import InvalidInput, NotFound
from ledger.web.bodies import Strict
from runs.engine.agents import Agent, registry
from runs.engine.migrating import Moving
from runs.fleet.agent_versions import state_format
from runs.models import AgentVersion, Run, State
from runs.services.bodies import SteerBody

MAX_RUNS = 100
Node = Annotated[str, Field(min_length=1, max_length=64)]


class MigrationPreviewBody(Strict):
    """The runs whose migration is previewed; nothing is changed.

    These are either the given `runs`, or the oldest active runs of `from_version` (with `retry`, the oldest failed
    ones) that are at `node` and in `state`, up to `limit`."""

    from_version: Version
    to_version: Version
    nodes: Annotated[
        dict[Node, Node],
        Field(max_length=200, description="For each node of the old version, the corresponding node of the new one."),
    ]
    runs: Annotated[list[Annotated[UUID, Field(strict=False)]], Field(min_length=1, max_length=MAX_RUNS)] | None = (
        Field(default=None, description="Ids of the runs, instead of `node`, `state` and `limit`.")
    )
    node: Node | None = Field(default=None, description="Only runs at this node.")
    state: Literal["pending", "running", "waiting_tool", "waiting_human", "waiting_event", "paused"] | None = Field(
        default=None, description="Only runs in this state."
    )
    limit: Annotated[int, Field(ge=1, le=MAX_RUNS)] = Field(
        default=20, description="Maximum number of runs, oldest first."
    )
    retry: Annotated[bool, Field(description="Migrate failed runs and retry them in the same operation.")] = False


class MigrateBody(MigrationPreviewBody, SteerBody):
    """The runs to migrate, selected as in a preview. Each is migrated on its own; a refused run is not changed."""


def check_request(agent: str, body: MigrationPreviewBody) -> Moving:
    """Check a request, and return the migration that it describes.

    Raises NotFound for an unknown agent, and InvalidInput by field."""
    if not registry.versions(agent):
        raise NotFound("agent", agent)
    old, new = f"{agent}@{body.from_version}", f"{agent}@{body.to_version}"
    problems = _version_problems(agent, body, old, new)
    if body.retry and body.state is not None:
        problem = "can't be chosen with `retry`, which takes failed runs"
        problems.append({"field": "state", "problem": problem, "fix": "leave it out"})
    problems = problems or _node_problems(nodes_of(old), registry.find(new), old, body.nodes)
    if problems:
        first = problems[0]
        raise InvalidInput(f"Invalid migration: {first['field']} {first['problem']}.", errors=problems)
    target = registry.find(new)
    function = target.migration_of(body.from_version).state
    return Moving(old, target, dict(body.nodes), function, body.retry, is_numbered=state_format(old, "") > 1)


def _version_problems(agent: str, body: MigrationPreviewBody, old: str, new: str) -> list[dict[str, str]]:
    here = [a.version for a in registry.versions(agent) if a.graph_id in registry.graph_ids()]
    if body.from_version == body.to_version:
        return [{"field": "to_version", "problem": "is already their version", "fix": "another version"}]
    problems = []
    if not nodes_of(old):
        problems.append({"field": "from_version", "problem": "is unknown", "fix": "a known version"})
    if body.to_version not in here:
        is_other_code = any(each.graph_id == new for each in registry.agents())
        problem = "has different code here than when it was first used" if is_other_code else "is unknown here"
        fix = f"one of {', '.join(here) or 'nothing'}"
        problems.append({"field": "to_version", "problem": problem, "fix": fix})
    elif VersionGate.objects.filter(agent=agent, version=body.to_version, is_closed=True).exists():
        problems.append({"field": "to_version", "problem": "is closed to new starts", "fix": "open it first"})
    return problems


def _node_problems(old: list[str], to: Agent, of: str, nodes: dict[str, str]) -> list[dict[str, str]]:
    new = ", ".join(to.nodes)
    problems = [
        {"field": f"nodes.{name}", "problem": f"is missing: {of} has this node", "fix": f"one of {new}"}
        for name in old
        if name not in nodes
    ]
    for name, target in nodes.items():
        if name not in old:
            problem, fix = f"is not a node of {of}", f"of {', '.join(old)}"
            problems.append({"field": f"nodes.{name}", "problem": problem, "fix": fix})
        elif target not in to.nodes:
            problem = f"leads to {target!r}, which is not a node of {to.graph_id}"
            problems.append({"field": f"nodes.{name}", "problem": problem, "fix": f"one of {new}"})
    return problems


def nodes_of(graph_id: str) -> list[str]:
    """Return a version's nodes.

    If the version's code is no longer installed, its nodes are read from the record of its first use.
    """
    name, _, version = graph_id.partition("@")
    here = next((a for a in registry.versions(name) if a.version == version), None)
    if here is not None:
        return list(here.nodes)
    parts = AgentVersion.objects.filter(graph_id=graph_id).values_list("parts", flat=True).first()
    nodes = parts.get("nodes") if isinstance(parts, dict) else None
    return list(nodes) if isinstance(nodes, dict) else []


def suggested_nodes(old: list[str], to: Agent, from_version: str) -> dict[str, str]:
    """Return the declared mapping of nodes.

    Undeclared nodes are mapped to the node of the same name, or "" if there is none."""
    declared = to.migration_of(from_version).nodes
    return {name: declared.get(name, name if name in to.nodes else "") for name in old}


def chosen_runs(of: str, body: MigrationPreviewBody) -> list[UUID]:
    """Return the named runs, or the oldest matching runs that have not ended (with `retry`: that have failed)."""
    if body.runs is not None:
        return list(dict.fromkeys(body.runs))
    agent, _, version = of.partition("@")
    found = Run.objects.filter(agent=agent, version=version)
    found = found.filter(state=State.FAILED) if body.retry else found.filter(ended_at__isnull=True)
    found = found.filter(node=body.node) if body.node is not None else found
    found = found.filter(state=body.state) if body.state is not None else found
    return list(found.order_by("created_at", "id").values_list("id", flat=True)[: body.limit])
