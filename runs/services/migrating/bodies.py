"""What somebody says who moves runs: the API's body, and the console's form."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from ledger.web.bodies import Strict
from runs.services.bodies import SteerBody
from runs.services.releases.bodies import Version

MOST = 100
Node = Annotated[str, Field(min_length=1, max_length=64)]


class Moved(Strict):
    """Which runs, and where to. `runs` names them, or else those of `from_version` that have not ended are taken (with
    `retry` those that have failed), the oldest first: at `node`, in `state`, at most `limit`."""

    from_version: Version
    to_version: Version
    nodes: Annotated[
        dict[Node, Node],
        Field(max_length=200, description="Each node of the version that they come from, to one of the new version."),
    ]
    runs: (
        Annotated[
            list[Annotated[UUID, Field(strict=False)]],
            Field(min_length=1, max_length=MOST, description="Instead of `node`, `state` and `limit`."),
        ]
        | None
    ) = None
    node: Node | None = None
    state: Literal["pending", "running", "waiting_tool", "waiting_human", "waiting_event", "paused"] | None = None
    limit: Annotated[int, Field(ge=1, le=MOST)] = 20
    retry: Annotated[bool, Field(description="A run that has failed is retried with the move, in one act.")] = False


class LookBody(Moved):
    """What would become of these runs? Nothing is changed."""


class MigrateBody(Moved, SteerBody):
    """Move these runs, each by itself: what is refused stays where it is."""
