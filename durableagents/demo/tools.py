"""Tools of the onboarding agent, each with its declared behaviour on a repeat.

Pure: `lookup_company`, `screen_sanctions`. Keyed: `request_w9` (answers later), `create_vendor`,
`file_purchase_order`, `provision_credentials`. Unsafe: `send_welcome`, since mail knows no keys.
"""

from __future__ import annotations

import asyncio
import email.utils
import hashlib
from datetime import timedelta
from decimal import Decimal
from email.message import EmailMessage
from typing import Any, Literal, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, JsonValue, SecretStr

from durableagents import Gate, Happened, Pending, ReplayClass, ToolCall, TransportError, env, tool

from . import smtp, upstream
from .fields import Country, Email, Line, MultiLine, ShortLine, TaxId, Usd
from .vault import Vault

FINANCE_FROM = Decimal(10_000)
_SENDER = "Vendor onboarding <onboarding@durableagents.example>"

Result = TypeVar("Result", bound=BaseModel)


class Arguments(BaseModel):
    """Arguments of a call, checked again here since a model may have worded them."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Answer(BaseModel):
    """Answer of the upstream system. Unknown fields are ignored; its values stay out of error messages."""

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)


# --- reads --------------------------------------------------------------------------------------


class CompanyQuery(Arguments):
    legal_name: Line = Field(description="The company's name as registered.")
    country: Country = Field(description="ISO 3166 alpha-2 code.")
    tax_id: TaxId = Field(description="As on the request.")


class RegistryEntry(Answer):
    legal_name: str
    country: str
    tax_id: str
    registration_number: str
    status: Literal["active", "dissolved", "sanctioned"]
    legal_form: str
    incorporated_on: str
    dissolved_on: str | None
    notes: list[str] = []


@tool(
    replay_class=ReplayClass.PURE,
    title="Look a company up",
    system="registry",
    effect="Reads the company register.",
)
async def lookup_company(args: CompanyQuery, call: ToolCall) -> RegistryEntry:
    """Look a company up in the register: status (active, dissolved, sanctioned), number, notes."""
    query = args.model_dump()
    query["name"] = query.pop("legal_name")
    return await upstream.get("/api/registry/companies", query, call, RegistryEntry)


class SanctionsQuery(Arguments):
    legal_name: Line
    country: Country


class SanctionsMatch(Answer):
    name: str
    score: int
    list_name: str = Field(validation_alias=AliasChoices("list_name", "list"))
    reason: str
    country: str | None = None
    aliases: list[str] = []
    matched_on: str | None = None


class Screening(Answer):
    matches: list[SanctionsMatch]
    best: int
    threshold: int
    is_hit: bool


@tool(
    replay_class=ReplayClass.PURE,
    title="Screen against the sanctions list",
    system="sanctions",
    effect="Reads the sanctions list.",
)
async def screen_sanctions(args: SanctionsQuery, call: ToolCall) -> Screening:
    """Compare a name with the sanctions list, allowing for other spellings."""
    query = {"name": args.legal_name, "country": args.country}
    return await upstream.get("/api/sanctions/screen", query, call, Screening)


# --- the vendor portal --------------------------------------------------------------------------


class W9Request(Arguments):
    legal_name: Line
    tax_id: TaxId
    contact_email: Email


class W9Form(Answer):
    legal_name: str
    tax_id: str
    classification: str
    signed_by: str
    signed_at: str
    document_sha256: str


class W9(Answer):
    """The portal's callback: the signed form."""

    request_id: str
    status: Literal["received"]
    form: W9Form


class _W9Requested(Answer):
    request_id: str
    status: str


def _same_request(receipt: dict[str, str], w9: W9) -> str | None:
    """Return the problem if the form, although sent to this call's address, belongs to another request."""
    given = receipt["request_id"]
    return (
        None if w9.request_id == given else f"request_id is {w9.request_id!r}, and this request was taken as {given!r}"
    )


@tool(
    replay_class=ReplayClass.IDEMPOTENT_WITH_KEY,
    title="Request the W-9",
    system="portal",
    effect="Asks the vendor for a signed W-9; the portal calls back when it is there.",
    answers_later=True,
    output=W9,
    external_id="request_id",
    check_answer=_same_request,
)
async def request_w9(args: W9Request, call: ToolCall) -> Pending:
    """Ask the vendor portal for a signed W-9. The callback URL is part of the bytes the key is bound to."""
    body = {**args.model_dump(mode="json"), "callback_url": call.callback_url}
    accepted = await upstream.post("/api/portal/w9-requests", body, call, _W9Requested)
    return Pending(receipt=accepted.model_dump(), within=timedelta(days=14))


# --- the ERP ------------------------------------------------------------------------------------


class VendorRecord(Arguments):
    legal_name: Line
    country: Country
    tax_id: TaxId
    contact_email: Email
    category: Line


class Vendor(Answer):
    vendor_id: str
    status: str


async def _vendor_made(args: VendorRecord, call: ToolCall) -> Happened | None:
    return await _done_under_key("/api/erp/vendors", call, Vendor)


@tool(
    replay_class=ReplayClass.IDEMPOTENT_WITH_KEY,
    title="Create the vendor",
    system="erp",
    effect="Adds a vendor to the ERP that orders can be placed with.",
    external_id="vendor_id",
    reconcile=_vendor_made,
)
async def create_vendor(args: VendorRecord, call: ToolCall) -> Vendor:
    """Create the vendor's record in the ERP."""
    return await upstream.post("/api/erp/vendors", args.model_dump(mode="json"), call, Vendor)


class PurchaseOrder(Arguments):
    """Everything a finance approver binds the decision to, and exactly what the ERP gets."""

    vendor_id: ShortLine
    vendor_name: Line
    description: MultiLine
    amount_usd: Usd
    currency: Literal["USD"] = "USD"
    cost_centre: ShortLine
    payment_terms: ShortLine
    revision: int = Field(default=1, ge=1, le=3)


class Filed(Answer):
    po_number: str
    status: str
    amount_usd: str


async def _order_filed(args: PurchaseOrder, call: ToolCall) -> Happened | None:
    return await _done_under_key("/api/erp/purchase-orders", call, Filed)


def _needs_finance(order: PurchaseOrder) -> bool:
    # An order that finance has rejected once must not slip past it by becoming small.
    return order.amount_usd >= FINANCE_FROM or order.revision > 1


@tool(
    replay_class=ReplayClass.IDEMPOTENT_WITH_KEY,
    title="File a purchase order",
    system="erp",
    effect="Creates a binding order in the ERP. It can be cancelled until it is invoiced.",
    gate=Gate(
        queue="finance_po",
        rule="PO at or above $10,000, or revised after a rejection",
        when=_needs_finance,
        headline=lambda order: f"${order.amount_usd:,.2f}",
        amount="amount_usd currency",
    ),
    external_id="po_number",
    reconcile=_order_filed,
)
async def file_purchase_order(args: PurchaseOrder, call: ToolCall) -> Filed:
    """File one purchase order with a vendor."""
    body = args.model_dump(mode="json")
    return await upstream.post("/api/erp/purchase-orders", body, call, Filed)


class _Stored(Answer):
    results: list[dict[str, Any]]


async def _done_under_key(path: str, call: ToolCall, result: type[Result]) -> Happened | None:
    """Return what the ERP did under this call's key.

    Return None if it did nothing so far. The call is then repeated, which is safe because of the key. The first
    request may still arrive, so an empty answer isn't proof.
    """
    stored = await upstream.get(path, {"idempotency_key": str(call.key)}, call, _Stored)
    return Happened(result.model_validate(stored.results[0])) if stored.results else None


# --- credentials --------------------------------------------------------------------------------


class CredentialRequest(Arguments):
    vendor_id: ShortLine
    scope: ShortLine


class Credential(Answer):
    """Location of the secret, never the secret itself."""

    credential_id: str
    scope: str
    reference: str


class _Provisioned(Answer):
    credential_id: str
    scope: str
    secret: SecretStr


@tool(
    replay_class=ReplayClass.IDEMPOTENT_WITH_KEY,
    title="Provision API credentials",
    system="credentials",
    effect="Issues an API key to the vendor; its value goes to the secret store only.",
    external_id="credential_id",
)
async def provision_credentials(args: CredentialRequest, call: ToolCall) -> Credential:
    """Issue an API key. The value is in the vault, durably, before anything can be recorded about it."""
    body = args.model_dump(mode="json")
    issued = await upstream.post("/api/credentials", body, call, _Provisioned)
    reference = f"secret://runs/{call.run_id}/{issued.credential_id}"
    value = issued.secret.get_secret_value()
    try:
        await asyncio.to_thread(Vault.from_environment().put, reference, value)
    except (OSError, env.EnvironmentProblem) as error:
        # A full disk heals; a repeat under the same key gets the same secret to store.
        raise TransportError(f"the secret store can't be written: {error}") from error
    return Credential(credential_id=issued.credential_id, scope=issued.scope, reference=reference)


# --- mail ---------------------------------------------------------------------------------------


class WelcomeMail(Arguments):
    to: Email
    legal_name: Line
    vendor_id: ShortLine
    po_number: ShortLine
    credential_id: ShortLine


class Sent(Answer):
    """`receipt` is the mail server's reply, or whatever a person knew of when settling the outcome."""

    message_id: str | None = None
    receipt: JsonValue = None


def _sent_says_a_person(args: WelcomeMail, receipt: JsonValue) -> Sent:
    if isinstance(receipt, dict) and not receipt.keys() & Sent.model_fields.keys():
        raise ValueError("has none of the result's fields")
    found = receipt.get("message_id") if isinstance(receipt, dict) else None
    return Sent(message_id=found if isinstance(found, str) else None, receipt=receipt)


@tool(
    replay_class=ReplayClass.UNSAFE_ON_REPLAY,
    title="Send the welcome e-mail",
    system="email",
    effect="Sends one e-mail to the vendor's contact. It can't be called back.",
    on_receipt=_sent_says_a_person,
)
def send_welcome(args: WelcomeMail, call: ToolCall) -> Sent:
    """Welcome the vendor by e-mail, once."""
    message = welcome_message(args, call)
    port = env.load().sandbox_smtp_port
    # A little less than the engine allows, so that this tool reports the outcome before the engine's timeout.
    seconds = call.timeout * 0.9
    receipt = smtp.deliver(message, to=args.to, host="127.0.0.1", port=port, timeout=seconds)
    return Sent(message_id=str(message["Message-ID"]), receipt=receipt)


def welcome_message(args: WelcomeMail, call: ToolCall) -> EmailMessage:
    # EmailMessage refuses line breaks in headers and encodes what isn't ASCII; nothing is glued by hand.
    message = EmailMessage()
    message["From"] = _SENDER
    message["To"] = args.to
    message["Subject"] = f"Welcome as a vendor, {args.legal_name}"
    message["Date"] = email.utils.format_datetime(email.utils.localtime())
    message["Message-ID"] = _message_id(call)
    message["X-Run-Id"] = call.run_id
    message["X-Operation"] = "send_welcome"
    message.set_content(
        f"Hello,\n\n{args.legal_name} is now our vendor {args.vendor_id}, and your first order is "
        f"{args.po_number}.\n\nYour API credentials ({args.credential_id}) are ready in the vendor "
        "portal. We never send them by e-mail.\n\nKind regards\nVendor onboarding\n",
        cte="quoted-printable",
    )
    return message


def _message_id(call: ToolCall) -> str:
    """Return the Message-ID. It depends on run and slot only, so a repeated mail has the same one."""
    slot = hashlib.sha256(f"{call.run_id}|{call.slot}".encode()).hexdigest()[:32]
    return f"<{slot}@durableagents.example>"
