"""What somebody sends to say how far standing grants may go, and how much of it is taken."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from approvals.grants import MOST_DAYS, MOST_TIMES
from approvals.queues.acts import Most
from ledger.web.bodies import NoFlag
from runs.services.bodies import SteerBody


class BoundsBody(SteerBody):
    """How far standing grants may go at a queue: at most so many `times`, so many `days`, and of so much in all (`sum`,
    in the queue's currency; empty: as much as whoever gives one may approve at once). No times: none may be given."""

    times: Annotated[int, Field(strict=False, ge=0, le=MOST_TIMES), NoFlag] = 0
    days: Annotated[int, Field(strict=False, ge=0, le=MOST_DAYS), NoFlag] = 0
    sum: Most | None = None
