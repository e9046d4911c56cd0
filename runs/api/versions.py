"""API of one agent version: its parts, its manifest, and whether this process has the same code."""

from __future__ import annotations

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.errors import NotFound
from ledger.web.api_base import READ, ApiView, Query, described
from ledger.web.shapes import Shape
from runs import features
from runs.api.present import agent_row
from runs.api.schemas import AgentRow
from runs.engine.agents import registry
from runs.engine.errors import UnknownAgent, UnknownVersion
from runs.fleet import version_changes
from runs.queries.manifest import ManifestRow, manifest_of


class ChangeRow(Shape):
    """A difference between the code in this process and the recorded version."""

    differences: list[str] = Field(description="Descriptions of the differences.")
    proposed: str = Field(description="Suggested version number for the changed code.")


class OneAgentRow(AgentRow):
    """One version of an agent, with its fingerprint, manifest and code differences."""

    fingerprint: str = Field(description="Digest of the code of this version.")
    changed: ChangeRow | None = Field(description="Differences from the code with which the version was first used.")
    manifest: ManifestRow = Field(description="Where each part of a run's data is stored.")


class OneAgent(ApiView):
    """One agent version, by `name@version`, or the newest one by its name."""

    roles = READ

    @described("Get an agent version", OneAgentRow)
    def get(self, request: Request, reference: str) -> Response:
        Query(request)
        try:
            agent = registry.find(reference)
        except (UnknownAgent, UnknownVersion):
            raise NotFound("agent", reference) from None
        changes = version_changes.changed_here([agent])
        row = OneAgentRow.of(
            agent_row(agent, features.certificate_reader()),
            fingerprint=agent.fingerprint(),
            changed=ChangeRow.of(changes[0], differences=list(changes[0].said)) if changes else None,
            manifest=manifest_of(agent),
        )
        return Response(row)
