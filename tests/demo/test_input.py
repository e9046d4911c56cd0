"""What the onboarding form takes and refuses, and that a refusal names the field and the fix."""

from __future__ import annotations

import copy
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from durableagents import Sample
from durableagents.demo.countries import COUNTRIES
from durableagents.demo.vendor_onboard import agent
from durableagents.demo.vendor_records import VendorRequest
from runs.console.forms import fields as forms
from runs.console.forms.form import SchemaForm

GOOD: dict[str, Any] = agent.samples[0].input
LINES = ("legal_name", "category", "requested_by")

storable = st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp"))
lines = st.text(storable, min_size=1, max_size=200).filter(lambda text: text.strip() and text.isprintable())
cents = st.integers(min_value=1, max_value=99_999_999_999)


def changed(path: str, value: Any) -> dict[str, Any]:
    """The $84,000 sample with one field replaced."""
    whole = copy.deepcopy(GOOD)
    *parents, last = path.split(".")
    target = whole
    for name in parents:
        target = target[name]
    target[last] = value
    return whole


def problem_with(path: str, value: Any) -> str:
    """What is said about `path`, and that nothing else is blamed."""
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


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (84000, "84000.00"),
        ("84000", "84000.00"),
        ("84000.5", "84000.50"),
        ("0.01", "0.01"),
        ("999999999.99", "999999999.99"),
    ],
)
def test_an_amount_is_an_integer_or_a_decimal_string(written: Any, meant: str) -> None:
    request = VendorRequest.model_validate(changed("first_order.amount_usd", written))
    assert request.model_dump(mode="json")["first_order"]["amount_usd"] == meant


@pytest.mark.parametrize(
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


def test_an_amount_of_thousands_of_digits_is_refused_like_any_other() -> None:
    for amount in (10**5000, "9" * 5000):
        assert "too large" in problem_with("first_order.amount_usd", amount)
    assert "below zero" in problem_with("first_order.amount_usd", -(10**5000))


@given(st.floats() | st.booleans() | st.none() | st.binary() | st.lists(st.integers()))
def test_no_float_and_no_other_type_becomes_money(value: Any) -> None:
    problem_with("first_order.amount_usd", value)


@given(st.text(max_size=12))
def test_any_text_is_either_exact_money_or_refused(text: str) -> None:
    try:
        request = VendorRequest.model_validate(changed("first_order.amount_usd", text))
    except ValidationError:
        assert problem_with("first_order.amount_usd", text)
    else:
        assert request.first_order.amount_usd == Decimal(text) > 0


@pytest.mark.parametrize("path", [*LINES, "first_order.description"])
@pytest.mark.parametrize(
    "value",
    ["", " ", "\u200b", "\u3000\t ", "a\x00b", "a\ud800b", "a\x1bb", "x" * 2001, None, 5, True, [], {}],
)
def test_text_that_is_empty_unstorable_too_long_or_no_text_is_refused(path: str, value: Any) -> None:
    assert ";" in problem_with(path, value)


@pytest.mark.parametrize("path", LINES)
@pytest.mark.parametrize("sign", ["\n", "\r", "\r\nBcc: all@corp.example", "\u2028", "\u2029", "\x85"])
def test_a_line_takes_no_line_break(path: str, sign: str) -> None:
    assert "control character" in problem_with(path, f"Acme{sign}Ltd")


def test_a_description_may_have_several_lines() -> None:
    request = VendorRequest.model_validate(changed("first_order.description", "one\r\ntwo\n\tthree "))
    assert request.first_order.description == "one\ntwo\n\tthree"


@pytest.mark.parametrize(
    "address",
    [
        "a@b.example",
        "first.last+tag@sub.company.example",
        "x_y@1st.co",
        f"{'l' * 64}@d.example",
        "o'neil@a-b.org",
    ],
)
def test_ordinary_addresses_are_taken(address: str) -> None:
    assert VendorRequest.model_validate(changed("contact_email", address)).contact_email == address


@pytest.mark.parametrize(
    "address",
    [
        "",
        "a",
        "a@",
        "@b.example",
        "a@b",
        "a b@c.example",
        "a@b.example\n",
        "a@b.example\r\nBcc: x@y.example",
        "a@b@c.example",
        "a@-b.example",
        "a@b-.example",
        "a@b..example",
        ".a@b.example",
        "a.@b.example",
        "a..b@c.example",
        "<a@b.example>",
        "a@b.example,c@d.example",
        "a@127.0.0.1",
        "ä@b.example",
        "a@ü.example",
        "a\x00@b.example",
        f"{'l' * 65}@d.example",
        f"a@{'d' * 64}.example",
        f"a@{'d.' * 130}example",
        None,
        7,
    ],
)
def test_other_addresses_are_refused(address: Any) -> None:
    assert ";" in problem_with("contact_email", address)


@given(st.text(max_size=40))
def test_no_accepted_address_can_carry_a_header_or_a_second_recipient(text: str) -> None:
    try:
        request = VendorRequest.model_validate(changed("contact_email", text))
    except ValidationError:
        return
    assert request.contact_email.isascii() and request.contact_email.isprintable()
    assert not set(request.contact_email) & set(' <>,;:"()[]\\') and request.contact_email.count("@") == 1


@given(st.text(max_size=4))
def test_only_assigned_country_codes_are_countries(text: str) -> None:
    assume(text not in COUNTRIES)
    problem_with("country", text)


def test_a_country_in_small_letters_is_told_the_fix() -> None:
    assert problem_with("country", "de") == "is in small letters; write DE"
    assert "XX is not a country code" in problem_with("country", "XX")
    assert len(COUNTRIES) == 249


@pytest.mark.parametrize("value", ["ABCD", "12-34", "a" * 20, "----"])
def test_a_tax_id_has_no_check_digit(value: str) -> None:
    assert VendorRequest.model_validate(changed("tax_id", value)).tax_id == value


@pytest.mark.parametrize(
    "value",
    ["", "abc", "a" * 21, "DE 123", "DE_123", "ÄÖÜ1", "1234\n", " 1234", 1234, None, "١٢٣٤"],
)
def test_other_tax_ids_are_refused(value: Any) -> None:
    assert ";" in problem_with("tax_id", value)


@pytest.mark.parametrize("path", [*GOOD, "first_order.description", "first_order.amount_usd"])
def test_every_field_is_required(path: str) -> None:
    whole = copy.deepcopy(GOOD)
    *parents, last = path.split(".")
    del (whole[parents[0]] if parents else whole)[last]
    with pytest.raises(ValidationError) as refused:
        VendorRequest.model_validate(whole)
    assert [".".join(map(str, error["loc"])) for error in refused.value.errors()] == [path]


def test_unknown_fields_are_refused_by_name() -> None:
    assert "Extra" in problem_with("is_admin", True)
    assert "Extra" in problem_with("first_order.currency", "EUR")


def test_a_brace_in_a_value_is_no_placeholder() -> None:
    assert problem_with("country", "{x}") == "is not a country code; give the two letters of ISO 3166, like DE"


def test_the_schema_is_enough_for_a_form() -> None:
    schema = VendorRequest.model_json_schema()
    order = schema["$defs"]["FirstOrder"]
    assert [*schema["properties"]] == [
        "legal_name",
        "country",
        "tax_id",
        "contact_email",
        "category",
        "first_order",
        "requested_by",
    ]
    for field in [*schema["properties"].values(), *order["properties"].values()]:
        assert field["title"]
        if "$ref" not in field:
            assert field["description"] and field["examples"] and field.keys() & {"type", "anyOf"}
    kinds = {name: type(field) for name, field in SchemaForm(schema).fields.items()}
    assert kinds["first_order.amount_usd"] is forms.Integer
    assert kinds["first_order.description"] is forms.Long
    assert kinds["country"] is forms.Choice
    assert forms.Document not in kinds.values()


@pytest.mark.parametrize("sample", agent.samples, ids=lambda sample: sample.label)
def test_a_sample_comes_back_from_its_own_form(sample: Sample) -> None:
    schema = VendorRequest.model_json_schema()
    shown = SchemaForm(schema, document=sample.input)
    typed = {field.html_name: field.value() for field in shown if not field.field.children}
    assert SchemaForm(schema, data=typed).document() == sample.input


def test_the_samples_fit_their_own_form() -> None:
    nordlicht, volga = (VendorRequest.model_validate(sample.input) for sample in agent.samples)
    assert (nordlicht.legal_name, nordlicht.first_order.amount_usd) == (
        "Nordlicht Antriebe GmbH",
        84000,
    )
    assert volga.legal_name == "Volga Heavy Industries"
