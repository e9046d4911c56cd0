"""What is said of a wrong field: which one of several, and in which words."""

from __future__ import annotations

from typing import Any, cast

import pytest

from durableagents.demo.sandbox.faults import FaultBook
from durableagents.demo.sandbox.operations import EFFECTS, known
from durableagents.demo.sandbox.store import Store
from durableagents.demo.sandbox.systems.erp import PurchaseOrder, Vendor
from durableagents.demo.sandbox.systems.portal import W9Request
from durableagents.demo.sandbox.web.fields import Fields
from durableagents.demo.sandbox.web.problems import Problem

from .harness import VENDOR

ORDER = {"vendor_id": "VND-000001", "description": "x", "amount_usd": "7"}
W9 = {name: VENDOR[name] for name in ("legal_name", "tax_id", "contact_email")} | {"callback_url": "http://a/"}


def told(model: type[Fields], given: dict[str, Any]) -> str:
    with pytest.raises(Problem) as caught:
        model.read(given)
    assert caught.value.status == 422
    assert caught.value.detail.startswith(f"{caught.value.field}: ")
    return caught.value.detail


@pytest.mark.parametrize(
    ("model", "good", "wrong", "said"),
    [
        (Vendor, VENDOR, {"legal_name": None}, "legal_name: is required"),
        (Vendor, VENDOR, {"legal_name": 7}, "legal_name: must be text"),
        (Vendor, VENDOR, {"legal_name": "\x1c "}, "legal_name: must not be blank"),
        (Vendor, VENDOR, {"legal_name": " " * 301}, "legal_name: must not be blank"),
        (Vendor, VENDOR, {"legal_name": "x" * 301}, "legal_name: has 301 characters; at most 300 are allowed"),
        (Vendor, VENDOR, {"legal_name": "a\x00"}, "legal_name: a NUL character can't be stored"),
        (Vendor, VENDOR, {"legal_name": "\ud800"}, "legal_name: a lone surrogate is not text"),
        (Vendor, VENDOR, {"country": "DEU"}, "country: must be an ISO 3166 code of two letters"),
        (Vendor, VENDOR, {"tax_id": "12_34"}, "tax_id: must be 4 to 20 letters, digits and hyphens"),
        (Vendor, VENDOR, {"contact_email": "nobody"}, "contact_email: must be an e-mail address"),
        (PurchaseOrder, ORDER, {"amount_usd": True}, "amount_usd: must be a decimal string or an integer"),
        (PurchaseOrder, ORDER, {"amount_usd": None}, "amount_usd: is required"),
        (
            PurchaseOrder,
            ORDER,
            {"amount_usd": 10**5000},
            "amount_usd: must have at most 12 digits and 2 decimal places, and no sign",
        ),
        (PurchaseOrder, ORDER, {"amount_usd": "0.00"}, "amount_usd: must be above zero"),
        (W9Request, W9, {"callback_url": "http://a:0/"}, "callback_url: must be an http or https URL"),
    ],
)
def test_a_wrong_field_is_told_in_these_words(
    model: type[Fields], good: dict[str, Any], wrong: dict[str, Any], said: str
) -> None:
    model.read(good)
    assert told(model, good | wrong) == said


def test_of_several_wrong_fields_the_first_is_told_however_they_are_sent() -> None:
    wrong = VENDOR | {"tax_id": None, "category": 7, "country": "?"}
    for given in (wrong, dict(reversed(wrong.items()))):
        assert told(Vendor, given).startswith("country: ")


@pytest.mark.parametrize("effect", EFFECTS, ids=lambda effect: effect.name)
def test_every_field_is_required(effect: Any) -> None:
    assert told(effect.asks, {}) == f"{next(iter(effect.asks.model_fields))}: is required"
    assert all(field.is_required() for field in effect.asks.model_fields.values())


def test_money_is_kept_in_cents_and_a_country_in_capitals() -> None:
    assert PurchaseOrder.read(ORDER | {"amount_usd": 7}).amount_usd == "7.00"
    assert Vendor.read(VENDOR | {"country": "de", "more": "is ignored"}).model_dump() == VENDOR


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"b": 1, "a": 2, "error_rate": 7, "system": "nope"}, "a"),
        ({"error_rate": 7, "system": "nope", "operation": 1}, "operation"),
        ({"error_rate": 7, "operation": "nope", "system": "nope"}, "system"),
        ({"error_rate": 7, "operation": "nope"}, "operation"),
        ({"error_rate": 7, "latency_ms": True, "system": "erp"}, "latency_ms"),
    ],
)
def test_of_several_wrong_things_in_a_fault_the_name_comes_first_and_the_number_last(
    given: dict[str, Any], field: str
) -> None:
    book = FaultBook(cast(Store, None), known())  # parsing needs no store
    with pytest.raises(Problem) as caught:
        book.parse(given)
    assert caught.value.field == field
