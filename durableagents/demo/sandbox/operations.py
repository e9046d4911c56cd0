"""Every operation the sandbox offers: its system, name, path, and the two or three functions that make it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .effects import Receipt
from .systems import erp, portal, registry, sanctions
from .web.fields import Fields

MAIL = "email"
SEND_WELCOME = "send_welcome"
SEND_ANNOUNCEMENT = "send_announcement"


@dataclass(frozen=True)
class Read:
    """A read operation: it answers from the query alone and changes nothing."""

    system: str
    name: str
    path: str
    answer: Callable[[Mapping[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Effect:
    """A keyed operation that changes the state.

    ``asks`` is the model of the body. ``perform`` changes the state in the transaction that stores its answer.
    ``found_by`` names the read with which a client can find out what a key did.
    """

    system: str
    name: str
    path: str
    status: int
    asks: type[Fields]
    perform: Callable[[sqlite3.Connection, Any, Receipt], dict[str, Any]]
    found_by: str


READS = (
    Read("registry", "lookup", "/api/registry/companies", registry.lookup),
    Read("sanctions", "screen", "/api/sanctions/screen", sanctions.screen),
    Read("shop", "order", "/api/shop/orders", registry.order),
)

REQUEST_W9 = Effect(
    "portal",
    "request_w9",
    "/api/portal/w9-requests",
    202,
    portal.W9Request,
    portal.request_w9,
    "find_w9_request",
)

EFFECTS = (
    REQUEST_W9,
    Effect(
        "erp",
        "create_vendor",
        "/api/erp/vendors",
        201,
        erp.Vendor,
        erp.create_vendor,
        "find_vendor",
    ),
    Effect(
        "erp",
        "file_purchase_order",
        "/api/erp/purchase-orders",
        201,
        erp.PurchaseOrder,
        erp.file_purchase_order,
        "find_purchase_order",
    ),
    Effect(
        "credentials",
        "provision",
        "/api/credentials",
        201,
        registry.Credential,
        registry.provision,
        "find",
    ),
    Effect(
        "library",
        "embed",
        "/api/library/embeddings",
        201,
        registry.Embedding,
        registry.embed,
        "find_embedding",
    ),
    Effect(
        "library",
        "publish",
        "/api/library/reports",
        201,
        registry.Report,
        registry.publish,
        "find_report",
    ),
    Effect(
        "shop",
        "refund",
        "/api/shop/refunds",
        201,
        registry.Refund,
        registry.refund,
        "find_refund",
    ),
)


def known() -> dict[str, set[str]]:
    """Return the operations of each system, by the names that a fault may use."""
    names: dict[str, set[str]] = {MAIL: {SEND_WELCOME, SEND_ANNOUNCEMENT}}
    for read in READS:
        names.setdefault(read.system, set()).add(read.name)
    for effect in EFFECTS:
        names.setdefault(effect.system, set()).update({effect.name, effect.found_by})
    return names
