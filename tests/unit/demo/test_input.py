from __future__ import annotations

import copy
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from durableagents.demo.countries import COUNTRIES
from durableagents.demo.vendor_onboard import agent
from durableagents.demo.vendor_records import VendorRequest
from tests.cases import each_case

GOOD: dict[str, Any] = agent.samples[0].input

storable = st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp"))
lines = st.text(storable, min_size=1, max_size=200).filter(lambda text: text.strip() and text.isprintable())
cents = st.integers(min_value=1, max_value=99_999_999_999)


def changed(path: str, value: Any) -> dict[str, Any]:
    whole = copy.deepcopy(GOOD)
    *parents, last = path.split(".")
    target = whole
    for name in parents:
        target = target[name]
    target[last] = value
    return whole


def problem_with(path: str, value: Any) -> str:
    with pytest.raises(ValidationError) as refused:
        VendorRequest.model_validate(changed(path, value))
    (error,) = refused.value.errors()
    assert ".".join(map(str, error["loc"])) == path
    return error["msg"]


@given(name=lines, category=lines, by=lines, country=st.sampled_from([*COUNTRIES]), amount=cents)
def test_every_ordinary_request_is_taken_and_survives_its_own_json(
    name: str, category: str, by: str, country: str, amount: int
) -> None:
    dollars = f"{amount // 100}.{amount % 100:02d}"
    request = VendorRequest.model_validate(
        GOOD
        | {"legal_name": name, "category": category, "requested_by": by, "country": country}
        | {"first_order": {"description": name, "amount_usd": dollars}}
    )
    assert request.first_order.amount_usd == Decimal(amount) / 100
    assert VendorRequest.model_validate_json(request.model_dump_json()) == request
    assert request.model_dump(mode="json")["first_order"]["amount_usd"] == dollars


@each_case(
    "amount",
    [
        84000.0,
        0.1,
        True,
        False,
        None,
        [],
        {},
        float("nan"),
        float("inf"),
        0,
        -1,
        "0",
        "0.00",
        "-5",
        "",
        " 84000",
        "84000 ",
        "84,000",
        "$84000",
        "84000.001",
        "1e3",
        "NaN",
        "Infinity",
        "٣",
        "+5",
        ".5",
        "5.",
        "007",
        10**9,
        2**63,
    ],
)
def test_what_is_no_exact_positive_amount_is_refused(amount: Any) -> None:
    assert ";" in problem_with("first_order.amount_usd", amount)


@given(st.text(max_size=40))
def test_no_accepted_address_can_carry_a_header_or_a_second_recipient(text: str) -> None:
    try:
        request = VendorRequest.model_validate(changed("contact_email", text))
    except ValidationError:
        return
    assert request.contact_email.isascii() and request.contact_email.isprintable()
    assert not set(request.contact_email) & set(' <>,;:"()[]\\') and request.contact_email.count("@") == 1


@each_case("path", [*GOOD, "first_order.description", "first_order.amount_usd"])
def test_every_field_is_required(path: str) -> None:
    whole = copy.deepcopy(GOOD)
    *parents, last = path.split(".")
    del (whole[parents[0]] if parents else whole)[last]
    with pytest.raises(ValidationError) as refused:
        VendorRequest.model_validate(whole)
    assert [".".join(map(str, error["loc"])) for error in refused.value.errors()] == [path]


def test_the_samples_fit_their_own_form() -> None:
    nordlicht, volga = (VendorRequest.model_validate(sample.input) for sample in agent.samples)
    assert (nordlicht.legal_name, nordlicht.first_order.amount_usd) == ("Nordlicht Antriebe GmbH", 84000)
    assert volga.legal_name == "Volga Heavy Industries"
