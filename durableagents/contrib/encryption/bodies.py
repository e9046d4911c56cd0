"""The body of an erasure, for the API and the console."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from pydantic import Field

from runs.services.bodies import SteerBody


class EraseBody(SteerBody):
    """The reason for an erasure. It stays readable forever, so it must not quote the content."""

    with_children: bool = Field(
        default=False,
        description="Also erase the runs that hold copies of its content: children, continuations, forks and starts "
        "made from it. Otherwise those runs must be erased first.",
    )


class EraseAllBody(EraseBody):
    """The runs to erase, and the reason."""

    runs: list[Annotated[UUID, Field(strict=False)]] = Field(
        max_length=200, description="Ids of runs, in the database or archived."
    )
