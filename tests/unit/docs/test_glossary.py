"""The glossary is short."""

from __future__ import annotations

import re

from tests.conftest import CHECKOUT

ROWS = re.findall(r"^\| ([a-z -]+) \| (.+) \|$", (CHECKOUT / "docs/reference/glossary.md").read_text(), re.M)[1:]
MAX_WORDS = 30


def test_glossary_has_at_most_thirty_words() -> None:
    words = [word for word, _ in ROWS]
    assert 20 < len(words) <= MAX_WORDS and len(set(words)) == len(words)
    assert all(meaning.strip() for _, meaning in ROWS)
