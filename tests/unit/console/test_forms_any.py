"""Forms of any schema and document: untouched fields keep their values."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runs.console.forms.form import ExtraField, SchemaForm
from runs.console.forms.maker import Maker
from tests.integration.console.conftest import filled_in
from tests.tiers import many
from tests.unit.console.test_forms import drawn

NAMES = ["a", "b", "a.b", "c d", "é", "x-y", "step", "input", "csrfmiddlewaretoken", "a_", "0"]
BESIDE = {"step": ExtraField("Step", "step"), "token": ExtraField()}
DEFINITIONS = {
    "Ring": {
        "type": "object",
        "properties": {"ring": {"$ref": "#/$defs/Ring"}, "t": {"type": "string", "default": "z"}},
    },
    "Maybe": {"anyOf": [{"$ref": "#/$defs/Inner"}, {"type": "null"}]},
    "Inner": {"type": "object", "properties": {"t": {"type": "string"}, "f": {"type": "boolean", "default": True}}},
}
TEXTS = st.one_of(
    st.sampled_from(
        [
            "",
            " ",
            "x",
            "1",
            "true",
            "null",
            "007",
            "a\nb",
            "\n",
            "\r\n",
            "a\r\nb\nc\rd",
            "\n\nlead",
            "\t tab",
            "  ",
            "</textarea>",
            '"q"',
            "[1]",
            "1e5",
            "-0",
            " 12 ",
            " a@b.c\t",
            "1 ",
            "Infinity",
        ]
    ),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=6),
)
NUMBERS = st.one_of(
    st.sampled_from([0, 1, 12, 10**15, 2**53 - 1, -5, 0.0, -0.0, 1e22, 0.1, 1.0, 1e-7]),
    st.integers(-(2**53), 2**53),
    st.floats(allow_nan=False, allow_infinity=False),
)
JUNK = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)),
    max_leaves=4,
)
PLAIN = st.one_of(
    st.sampled_from(
        [
            {"type": "string"},
            {"type": "string", "maxLength": 3},
            {"type": "string", "maxLength": 2000},
            {"type": "string", "format": "email"},
            {"type": "string", "format": "date"},
            {"type": "integer"},
            {"type": "number"},
            {"type": "boolean"},
            {},
            {"type": "array"},
            {"type": "object"},
            {"type": ["string", "null"]},
            {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            {"type": 5},
            {"enum": 5},
            {"title": 7, "type": "string"},
            {"$ref": "#/$defs/Ring"},
            {"$ref": "#/$defs/Maybe"},
            {"$ref": "#/$defs/Inner"},
            {"$ref": "#/$defs/gone"},
            {"$ref": 5},
            {"anyOf": [True, {"type": "string"}]},
            {"allOf": [True]},
            {"anyOf": "x"},
            {"oneOf": [{"const": 1}, {"const": "1"}]},
            {"maxLength": None, "type": "string"},
            {"type": ["string", "integer"]},
            {"type": {"a": 1}},
            {"type": "object", "properties": []},
            {"type": "string", "format": ["x"]},
            {"const": None},
            {"description": {}},
        ]
    ),
    st.lists(st.sampled_from(["1", 1, True, "true", None, "a", "a\nb", "", 2.5]), min_size=1, max_size=4).map(
        lambda several: {"enum": several}
    ),
)


def objects(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    def whole(properties: dict[str, Any], required: set[str]) -> dict[str, Any]:
        return {"type": "object", "properties": properties, "required": sorted(required & properties.keys())}

    named = st.sampled_from(NAMES)
    return st.builds(whole, st.dictionaries(named, parts, min_size=1, max_size=4), st.sets(named, max_size=3))


def with_defaults(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(lambda part, default: part if default is None else {**part, "default": default}, parts, JUNK)


PARTS = st.recursive(
    with_defaults(PLAIN),
    lambda inner: with_defaults(
        st.one_of(
            objects(inner),
            inner.map(lambda part: {"anyOf": [part, {"type": "null"}]}),
            st.builds(
                lambda word, several: {word: several},
                st.sampled_from(["anyOf", "oneOf", "allOf"]),
                st.lists(inner, min_size=1, max_size=2),
            ),
        )
    ),
    max_leaves=8,
)
SCHEMAS = objects(PARTS).map(lambda schema: {**schema, "$defs": DEFINITIONS})


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    schema = draw(SCHEMAS)
    return schema, _filled(draw, schema, schema)


def _filled(draw: st.DrawFn, schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    maker = Maker(root, typed=lambda _: None, keeps=False)
    document = {}
    for name, part in schema["properties"].items():
        if draw(st.integers(0, 4)) == 0:
            continue
        whole = maker.resolved(part)
        is_group = isinstance(whole.get("properties"), dict) and bool(whole["properties"]) and draw(st.booleans())
        document[name] = _filled(draw, whole, root) if is_group and whole.get("title") != "Ring" else draw(JUNK)
    return document


def sent_of(form: SchemaForm) -> dict[str, Any]:
    return filled_in(drawn(form))


@settings(max_examples=many(2000, 40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_what_nobody_touched_of_anything_stays(case: tuple[dict[str, Any], dict[str, Any]]) -> None:
    schema, document = case
    sent = sent_of(SchemaForm(schema, document=document, extra_fields=BESIDE, keeps=True))
    found = SchemaForm(schema, data=sent, document=document, extra_fields=BESIDE, keeps=True).document()
    assert repr(found) == repr(document | found) and found.keys() == document.keys() & found.keys()
    assert {key: repr(document[key]) for key in schema["properties"] if key in document} == {
        key: repr(value) for key, value in found.items()
    }


@settings(max_examples=many(2000, 40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases(), st.data())
def test_a_field_that_is_changed_changes_itself_alone(
    case: tuple[dict[str, Any], dict[str, Any]], data: st.DataObject
) -> None:
    schema, document = case
    form = SchemaForm(schema, document=document, extra_fields=BESIDE, keeps=True)
    sent = sent_of(form)
    name = data.draw(st.sampled_from([name for name in form.values if not form.values[name].children]))
    sent[form.add_prefix(name)] = data.draw(TEXTS)
    found = SchemaForm(schema, data=sent, document=document, extra_fields=BESIDE, keeps=True).document()
    at = (
        name
        if name in schema["properties"]
        else next(
            key
            for key in sorted(schema["properties"], key=len, reverse=True)
            if name.startswith((f"{key}.", f"{key}_"))
        )
    )
    others = {key: repr(document[key]) for key in schema["properties"] if key in document and key != at}
    assert {key: repr(value) for key, value in found.items() if key != at} == others


@settings(max_examples=many(2000, 40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_what_a_form_was_filled_with_is_what_it_stands_for(case: tuple[dict[str, Any], dict[str, Any]]) -> None:
    schema, document = case
    sent = sent_of(SchemaForm(schema, document=document, extra_fields=BESIDE))
    found = SchemaForm(schema, data=sent, document=document, extra_fields=BESIDE).document()
    _stands_for(document, found, schema["properties"])


def _stands_for(document: dict[str, Any], found: dict[str, Any], shown: Any) -> None:
    """Assert that all shown values are kept; objects may also contain their defaults."""
    for key, value in document.items():
        if key not in shown:
            continue
        assert key in found
        if isinstance(value, dict) and isinstance(found[key], dict):
            _stands_for(value, found[key], value)
        else:
            assert repr(found[key]) == repr(value)
