"""What version 2 can do besides: deactivate a vendor, cancel an order. Each is how an effect of version 1's tools is
undone.

Keyed, as what they undo: a repeat is answered like the first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from durableagents import Happened, ReplayClass, ToolCall, Undo, tool
from durableagents.demo import tools, upstream
from durableagents.demo.fields import ShortLine
from durableagents.demo.tools import Answer, Arguments


class VendorReference(Arguments):
    vendor_id: ShortLine


class Deactivated(Answer):
    vendor_id: str
    status: Literal["inactive"]


class _Deactivations(Answer):
    results: list[Deactivated]


class OrderReference(Arguments):
    po_number: ShortLine


class Cancelled(Answer):
    po_number: str
    status: Literal["cancelled"]


class _Cancellations(Answer):
    results: list[Cancelled]


async def _deactivated(args: VendorReference, call: ToolCall) -> Happened | None:
    """None leaves it to a repeat, which the key makes safe: the first request may still be on its way."""
    query = {"idempotency_key": str(call.key)}
    stored = await upstream.get("/api/erp/vendor-deactivations", query, call, _Deactivations)
    return Happened(stored.results[0]) if stored.results else None


@tool(
    replay_class=ReplayClass.IDEMPOTENT_WITH_KEY,
    title="Deactivate the vendor",
    system="erp",
    effect="No order can be placed with the vendor any more. Its record stays.",
    external_id="vendor_id",
    reconcile=_deactivated,
)
async def deactivate_vendor(args: VendorReference, call: ToolCall) -> Deactivated:
    """Deactivate one vendor in the ERP."""
    return await upstream.post("/api/erp/vendor-deactivations", args.model_dump(mode="json"), call, Deactivated)


async def _cancelled(args: OrderReference, call: ToolCall) -> Happened | None:
    query = {"idempotency_key": str(call.key)}
    stored = await upstream.get("/api/erp/order-cancellations", query, call, _Cancellations)
    return Happened(stored.results[0]) if stored.results else None


@tool(
    replay_class=ReplayClass.IDEMPOTENT_WITH_KEY,
    title="Cancel the purchase order",
    system="erp",
    effect="Cancels an order that hasn't been invoiced.",
    external_id="po_number",
    reconcile=_cancelled,
)
async def cancel_order(args: OrderReference, call: ToolCall) -> Cancelled:
    """Cancel one purchase order in the ERP."""
    return await upstream.post("/api/erp/order-cancellations", args.model_dump(mode="json"), call, Cancelled)


create_vendor = replace(
    tools.create_vendor,
    undo=Undo(deactivate_vendor, lambda asked, made: VendorReference(vendor_id=made.vendor_id)),
)
file_purchase_order = replace(
    tools.file_purchase_order,
    undo=Undo(cancel_order, lambda asked, filed: OrderReference(po_number=filed.po_number)),
)
