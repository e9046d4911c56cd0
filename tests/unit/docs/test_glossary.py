"""The glossary is short, and the code uses each of its words."""

from __future__ import annotations

import re

from tests.conftest import CHECKOUT

ROWS = re.findall(r"^\| ([a-z ]+) \| (.+) \|$", (CHECKOUT / "docs" / "glossary.md").read_text(), re.M)[1:]
MAX_WORDS = 40


def test_the_glossary_can_be_held_in_the_head() -> None:
    words = [word for word, _ in ROWS]
    assert 30 < len(words) <= MAX_WORDS and len(set(words)) == len(words)
    assert all(meaning.strip() for _, meaning in ROWS)


def test_each_word_is_one_of_the_code_s_own() -> None:
    rooms = ("runs", "ledger", "approvals")
    code = "\n".join(path.read_text() for room in rooms for path in (CHECKOUT / room).rglob("*.py")).lower()
    assert [word for word, _ in ROWS if not re.search(word.replace(" ", "[ _]?"), code)] == []
