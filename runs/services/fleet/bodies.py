"""What somebody says of a host: the API's body, and the console's form."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from runs.services.bodies import SteerBody


class DeadBody(SteerBody):
    """Say that nothing runs on a host any more, and how you know."""

    host: Annotated[str, Field(min_length=1, max_length=255, description="As the fleet page names it.")]
