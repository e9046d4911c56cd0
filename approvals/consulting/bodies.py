"""What somebody sends about a case before it is decided, and how much of it is taken: API bodies and forms."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from approvals.queues.bodies import Name
from ledger.append import MAX_JUSTIFICATION
from ledger.web.bodies import Strict
from runs.services.bodies import SteerBody

Words = Annotated[str, Field(max_length=MAX_JUSTIFICATION)]


class InquiryBody(Strict):
    """Whom somebody asks about a case, and what."""

    to: Annotated[Name, Field(description="The name of the account that is asked.")]
    question: Words


class AnswerBody(Strict):
    """What whoever was asked answers."""

    answer: Words


class DelegationBody(SteerBody):
    """To whom a question is handed, who may then decide it in the caller's place."""

    to: Annotated[Name, Field(description="The name of the account that may decide it.")]
