"""Vendor onboarding 2.0.0: where it fails or somebody cancels it, the order is cancelled and the vendor deactivated.

The way is that of version 1, which never changes, so what it has is used as it is; the two nodes with effects that can
be undone call tools that say how.
"""

from __future__ import annotations

from dataclasses import replace

from durableagents import Agent, Context, Failure, Rejected
from durableagents.demo import vendor_onboard as before
from durableagents.demo.tools import (
    PurchaseOrder,
    VendorRecord,
    provision_credentials,
    request_w9,
    screen_sanctions,
    send_welcome,
)
from durableagents.demo.vendor_onboard_2.tools import (
    cancel_order,
    create_vendor,
    deactivate_vendor,
    file_purchase_order,
)
from durableagents.demo.vendor_records import Output, Rejection, State, VendorRequest

agent = Agent(
    "vendor-onboard",
    "2.0.0",
    input=VendorRequest,
    state=State,
    output=Output,
    initial=lambda request: State(request=request),
    title="Vendor onboarding",
    description=(
        "Checks a company, collects its W-9, screens it against the sanctions list, creates it in the ERP, files its "
        "first order, provisions API credentials and sends a welcome. Where it can't come to its end, the order is "
        "cancelled and the vendor deactivated."
    ),
    samples=[replace(sample) for sample in before.agent.samples],
    tools=[
        screen_sanctions,
        request_w9,
        create_vendor,
        deactivate_vendor,
        file_purchase_order,
        cancel_order,
        provision_credentials,
        send_welcome,
    ],
    assistants=[before.intake_assistant, before.purchasing_assistant],
)

_as_before = before.agent.nodes
agent.node(start=True, to=["collect_w9"], title="Intake")(_as_before["intake"].function)
agent.node(to=["screen"], title="Collect W-9")(_as_before["collect_w9"].function)
agent.node(to=["register"], title="Screen sanctions")(_as_before["screen"].function)


@agent.node(to=["order"], title="Create vendor")
async def register(state: State, ctx: Context) -> str:
    """Create the vendor's record in the ERP and draw up its first order."""
    request, plan = state.request, before._known(state.plan)
    record = request.model_dump(include={"legal_name", "country", "tax_id", "contact_email", "category"})
    vendor = await ctx.call(create_vendor, VendorRecord(**record))
    state.vendor_id, state.why = vendor.vendor_id, plan.summary
    state.draft = PurchaseOrder(
        vendor_id=vendor.vendor_id,
        vendor_name=request.legal_name,
        description=request.first_order.description,
        amount_usd=request.first_order.amount_usd,
        cost_centre=plan.cost_centre,
        payment_terms=plan.payment_terms,
    )
    return "order"


@agent.node(to=["order", "provision"], title="File purchase order")
async def order(state: State, ctx: Context) -> str:
    """File the order, after finance where the rule says so; a rejection is revised and asked again."""
    draft = before._known(state.draft)
    evidence = [before._screening_evidence(before._known(state.screening)), *before._vendor_evidence(state)]
    try:
        state.filed = await ctx.call(file_purchase_order, draft, evidence=evidence, why=state.why)
    except Rejected as rejected:
        if rejected.verdict == "expired":
            raise Failure("Finance did not decide in time.", code="not_decided") from rejected
        state.rejections.append(Rejection(by=rejected.by, reason=rejected.reason))
        if len(state.rejections) > before.REVISIONS:
            message = f"Finance rejected the order after {before.REVISIONS} revisions: {rejected.reason}"
            raise Failure(message, code="rejected_by_finance") from rejected
        revision = await ctx.think(before.purchasing_assistant, before._revision_brief(state, draft))
        state.draft, state.why = before._revised(state, draft, revision), revision.explanation
        return "order"
    return "provision"


agent.node(to=["welcome"], title="Provision credentials")(_as_before["provision"].function)
agent.node(title="Welcome")(_as_before["welcome"].function)
