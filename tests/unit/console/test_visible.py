"""Outside text on a page hides nothing, imitates nothing and pushes nothing away."""

from __future__ import annotations

import unicodedata

from django.template import Context, Template
from hypothesis import given
from hypothesis import strategies as st

from ledger.web.text_safety import compare, is_hidden, leaves, pieces
from tests.cases import each_case


def shown(text: str) -> str:
    return "".join(f"[{piece.text}]" if piece.is_mark else piece.text for piece in pieces(text))


@each_case(
    ("text", "expected"),
    [
        ("plain words, 84,000.00 €", "plain words, 84,000.00 €"),
        ("pay\u200bee", "pay[U+200B]ee"),
        ("\u202egnp.exe", "[U+202E]gnp.exe"),
        ("a\u2066b\u2069", "a[U+2066]b[U+2069]"),
        ("tag\U000e0041\U000e007f", "tag[U+E0041][U+E007F]"),
        ("soft\u00adhyphen", "soft[U+00AD]hyphen"),
        ("nul\x00 bell\x07 esc\x1b", "nul[U+0000] bell[U+0007] esc[U+001B]"),
        ("no\u00a0break", "no[U+00A0]break"),
        ("tab\tstop", "tab[U+0009]stop"),
        ("filler\u3164\u2800", "filler[U+3164][U+2800]"),
        ("emoji\ufe0f", "emoji[U+FE0F]"),
        ("line\u2028sep", "line[U+2028]sep"),
        ("lone \ud800 half", "lone [U+D800] half"),
        ("two\n\nlines", "two\n\nlines"),
    ],
)
def test_what_cannot_be_seen_is_named(text: str, expected: str) -> None:
    assert shown(text) == expected


def test_letters_that_look_latin_inside_a_latin_word_are_named() -> None:
    assert shown("N\u043erdlicht") == "N[\u043e U+043E]rdlicht"
    assert shown("\uff30ayPal") == "[\uff30 U+FF30]ayPal"


def test_words_of_one_script_are_left_alone() -> None:
    for name in ("Газпром", "Ελλάδα", "日本電気株式会社", "Łódź Przędzalnia", "OÜ Külmkett"):
        assert shown(name) == name


def test_ten_thousand_line_breaks_take_three_lines() -> None:
    assert shown("a" + "\n" * 10_000 + "b") == "a\n[line break × 10,000]\nb"
    assert shown("a" + " " * 5_000 + "b") == "a[space × 5,000]b"


def test_heaps_of_combining_marks_do_not_cover_their_neighbours() -> None:
    assert shown("e" + "\u0301" * 4) == "e\u0301\u0301[U+0301][U+0301]"


def test_a_traceback_keeps_its_indentation() -> None:
    code = "def f():\n            return 1\u200b"
    assert "".join(piece.text for piece in pieces(code, is_code=True)) == code.replace("\u200b", "U+200B")


@given(st.text())
def test_no_text_draws_a_hidden_character_as_itself(text: str) -> None:
    drawn = [piece for piece in pieces(text) if not piece.is_mark]
    assert not any(is_hidden(character) for piece in drawn for character in piece.text)


@given(st.text(alphabet=st.characters(categories=["L", "N", "P"])))
def test_ordinary_text_loses_no_letter(text: str) -> None:
    kept = "".join(
        piece.text[0] if piece.is_mark else piece.text for piece in pieces(text) if not piece.text.startswith("U+")
    )
    hidden = sum(is_hidden(character) for character in text)
    assert len(kept) + hidden == len(text)


@given(st.text())
def test_markup_in_text_stays_text(text: str) -> None:
    page = Template("{% load console %}{{ text|visible }}").render(Context({"text": f"<script>{text}</script>"}))
    assert "<script" not in page and "&lt;script&gt;" in page


def test_marks_are_ours_and_their_titles_too() -> None:
    page = Template("{% load console %}{{ text|visible }}").render(Context({"text": "a\u202e"}))
    assert (
        page == f'a<span class="u" title="Invisible character: {unicodedata.name(chr(0x202E)).lower()}">U+202E</span>'
    )


def test_every_leaf_of_a_document_is_listed_with_its_way() -> None:
    document = {"a": {"b": [1, {"c": None}], "d": {}}, "e": [], "f": True, "g": "", "h": 2.5}
    assert [(leaf.path, leaf.text, leaf.kind) for leaf in leaves(document)] == [
        ("a.b[0]", "1", "number"),
        ("a.b[1].c", "null", "null"),
        ("a.d", "{}", "empty"),
        ("e", "[]", "empty"),
        ("f", "true", "boolean"),
        ("g", "", "string"),
        ("h", "2.5", "number"),
    ]


def test_depth_is_no_way_to_hide_a_leaf_or_to_break_the_page() -> None:
    deep: object = "bottom"
    for _ in range(20_000):
        deep = [deep]
    (leaf,) = leaves(deep)
    assert leaf.text == "bottom"


def test_two_versions_are_compared_leaf_by_leaf() -> None:
    old, new = {"amount": 91_500, "gone": "x", "same": 1}, {"amount": 84_000, "same": 1, "extra": [1]}
    changes = {change.path: change.what for change in compare(leaves(new), leaves(old))}
    assert changes == {"amount": "changed", "same": "same", "extra[0]": "added", "gone": "removed"}


def test_a_number_is_not_the_same_as_its_text() -> None:
    (change,) = compare(leaves({"n": "1"}), leaves({"n": 1}))
    assert change.what == "changed"
