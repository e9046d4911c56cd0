"""Names and prose of code, templates and tests use plain English and standard terms."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
ROOTS = ("approvals", "durableagents", "ledger", "runs", "tests")
# Agents of the demo keep their names: the fingerprints of their versions cover them. This file quotes the words.
OUTSIDE = ("/migrations/", "durableagents/demo/", "tests/unit/architecture/test_words.py")

# Wrong in any name, as one of its parts: each has a standard term.
PARTS = {
    "belied": "contradicted",
    "births": "child runs",
    "estate": "continuation",
    "genuine": "authentic",
    "heir": "continuation",
    "heirs": "continuations",
    "overheard": "live model output",
    "plugged": "registered",
    "whoever": "a person who",
    "anew": "again",
}
PHRASES_IN_NAMES = ("hand_in", "take_late", "plug_in", "for_ever")
# Vague as a whole name: they don't say what they hold or do.
VAGUE = {
    "ahead", "along", "asked", "brief", "doubt", "doubts", "ears", "folded", "kin", "looks", "offered", "said",
    "shown", "sight", "stand", "standing", "stands", "telling", "told",
}  # fmt: skip
CONSTANT = re.compile(r"_?(MOST|LONGEST)(_|$)")
PROSE = re.compile(
    r"\b(whoever|whomever|anew|for ever|so as to|that there (?:are|is)\b|beside)(?![\w*])", re.IGNORECASE
)
OPENING = re.compile(r"(What|Who|Whom|Whose|Whether|Where|Which|How|Until|When|Why)\b")
MAX_OPENINGS = 0.03
