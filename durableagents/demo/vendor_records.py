"""The models of vendor onboarding: its input, the assistants' answers, the state and the output."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from .fields import Country, Email, Line, MultiLine, ShortLine, TaxId, Usd
from .tools import W9, Credential, Filed, PurchaseOrder, RegistryEntry, Screening


class FirstOrder(BaseModel):
    """The first purchase: goods and price."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    description: MultiLine = Field(
        title="What to order",
        description="What the vendor is to deliver. Finance reads it as you write it.",
        examples=["Dock sensors, lot 7"],
    )
    amount_usd: Usd = Field(
        title="Amount in US dollars",
        description="Digits with at most two decimal places. Finance approves orders of $10,000 or more.",
        examples=["84000.00"],
    )


class VendorRequest(BaseModel):
    """A company that should become a vendor, and its first order."""

    model_config = ConfigDict(extra="forbid", frozen=True, title="Vendor to onboard")

    legal_name: Line = Field(
        title="Legal name",
        description="As in the company register of its country.",
        examples=["Nordlicht Antriebe GmbH"],
    )
    country: Country = Field(
        title="Country",
        description="Where it is registered: two capital letters (ISO 3166 alpha-2).",
        examples=["DE"],
    )
    tax_id: TaxId = Field(
        title="Tax ID",
        description="4 to 20 letters, digits and hyphens, no spaces.",
        examples=["DE811907980"],
    )
    contact_email: Email = Field(
        title="Contact e-mail",
        description="Gets the W-9 request and the welcome. Domains ending in .example are fine.",
        examples=["vendors@nordlicht.example"],
    )
    category: Line = Field(
        title="Category",
        description="What the company supplies, in your words.",
        examples=["Warehouse automation"],
    )
    first_order: FirstOrder = Field(title="First order")
    requested_by: Line = Field(
        title="Requested by",
        description="Who asks for this vendor: a name, a team or an address.",
        examples=["ops@harbor"],
    )


class IntakePlan(BaseModel):
    """The intake assistant's plan for a request."""

    verdict: Literal["proceed", "refuse"] = Field(description="Whether to take the vendor on.")
    summary: MultiLine = Field(
        description="Two or three sentences for the approvers: what the register says and what "
        "will be done; on refusal, the reason."
    )
    risks: Annotated[list[MultiLine], Field(max_length=10)] = Field(
        default=[], description="What an approver should weigh, one point each. Often empty."
    )
    cost_centre: ShortLine = Field(description='Where the order is booked, like "LOG-220".')
    payment_terms: ShortLine = Field(description='Like "net 30".')


class OrderRevision(BaseModel):
    """The purchasing assistant's answer to a rejection."""

    amount_usd: Usd = Field(description="As a string with two decimals; never above the request.")
    description: MultiLine = Field(description="What is ordered, as finance will read it.")
    cost_centre: ShortLine = Field(description="Where the order is booked.")
    payment_terms: ShortLine = Field(description='Like "net 30" or "50% on delivery, 50% net 30".')
    explanation: MultiLine = Field(description="What was changed, and how it answers the reason.")


class Rejection(BaseModel):
    """One no from finance."""

    by: str
    reason: str


class State(BaseModel):
    """State of the run at each boundary between two nodes."""

    request: VendorRequest
    plan: IntakePlan | None = None
    registry: RegistryEntry | None = None
    w9: W9 | None = None
    screening: Screening | None = None
    cleared_by: str | None = None
    vendor_id: str | None = None
    draft: PurchaseOrder | None = None
    why: str = ""
    rejections: list[Rejection] = []
    filed: Filed | None = None
    credential: Credential | None = None


class Output(BaseModel):
    """Facts in the outside world once the run has completed."""

    vendor_id: str
    po_number: str
    amount_usd: Usd
    revision: int
    credential_id: str
    credential_ref: str
    w9_document_sha256: str
    cleared_by_legal: str | None
    welcome_message_id: str | None
