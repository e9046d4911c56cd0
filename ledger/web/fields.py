"""Documented fields that many responses and request bodies share."""

from __future__ import annotations

from typing import Annotated, TypeVar
from uuid import UUID

from pydantic import Field

Row = TypeVar("Row")

Rows = Annotated[list[Row], Field(description="Entries of this list.")]
RunId = Annotated[UUID, Field(description="Id of the run.")]
ApprovalId = Annotated[UUID, Field(description="Id of the approval.")]
ActorName = Annotated[
    str, Field(description="Actor who did this: a name with the prefix user:, key:, os:, system: or database:.")
]
RoleName = Annotated[str, Field(description="Role in which the actor did this.")]
Reason = Annotated[str, Field(description="Justification that was given.")]
IsAuthentic = Annotated[
    bool, Field(description="False if it was not written by this installation, so that it has no effect.")
]
AgentName = Annotated[str, Field(description="Name of the agent.")]
AgentVersion = Annotated[str, Field(description="Version of the agent.")]
ToolName = Annotated[str, Field(description="Name of the tool.")]
ReplayClass = Annotated[str, Field(description="Rule for repeating a call of the tool: its replay class.")]
Slot = Annotated[str, Field(description="Name of the step in the run's journal.")]
Attempt = Annotated[
    int, Field(description="Number of the step's attempt: 0 for the first, which the console calls attempt 1.")
]
Seq = Annotated[int, Field(description="Number of the journal event.")]
RunTags = Annotated[list[str] | dict[str, str], Field(description="Tags of the run: an array of texts or an object.")]
Zone = Annotated[str, Field(description="IANA time zone, such as Europe/Berlin.")]
