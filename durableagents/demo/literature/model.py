"""The scripted models of the review: they plan, read and write by counting words, so that everything works offline.

Like a real model, each answers only from the facts in its prompt. The same prompt always gets the same answer.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from .. import model

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models.function import AgentInfo

_COMMON = frozenset(
    "a about after all an and any are as at be been before behave but by can could do does for from had has have how i if "
    "in into is it its make may more most much must no not of on one only or other our over same should so some than that "
    "the their them then there these they this those to two under up use used we what when where which while who why will "
    "with without would you your".split()
)
_MAX_QUOTE_LENGTH, _MAX_SUMMARY_LENGTH = 400, 600


def plan(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Plan a search for the whole question, and one for each pair of adjacent words."""
    return model.answer(info, planned(model.facts(messages)))


def read(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Note the beginning of the text, and quote the sentence that has the most words of the question."""
    return model.answer(info, noted(model.facts(messages)))


def write(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Write up to three sections, by how relevant the documents are to the question."""
    return model.answer(info, written(model.facts(messages)))


def planned(facts: dict[str, Any]) -> dict[str, Any]:
    words = _words(facts["question"]) or ["documentation"]
    pairs = [f"{one} {two}" for one, two in pairwise(words)]
    searches = list(dict.fromkeys([" ".join(words)[:60].strip(), *(pair[:60].strip() for pair in pairs)]))
    return {"searches": searches[:6], "approach": f"Looking for {', '.join(words[:8])} in what is installed."}


def noted(facts: dict[str, Any]) -> dict[str, Any]:
    wanted = set(_words(facts["question"]))
    sentences = _sentences(facts["document"]["text"]) or ["(nothing)"]
    best = max(sentences, key=lambda sentence: (len(wanted & set(_words(sentence))), -sentences.index(sentence)))
    has = wanted & set(_words(facts["document"]["text"]))
    return {
        "summary": " ".join(sentences[:2])[:_MAX_SUMMARY_LENGTH],
        "quote": best[:_MAX_QUOTE_LENGTH],
        "relevance": min(3, round(3 * len(has) / max(1, len(wanted)))),
    }


def written(facts: dict[str, Any]) -> dict[str, Any]:
    notes = facts["notes"]
    groups = (("What answers the question", 2, 4), ("What bears on it", 1, 2), ("Also read", 0, 1))
    sections = [
        {"heading": heading, "text": _paragraph([note for note in notes if low <= note["relevance"] < high])}
        for heading, low, high in groups
        if any(low <= note["relevance"] < high for note in notes)
    ]
    common = Counter(word for note in notes for word in set(_words(note["summary"])))
    themes = ", ".join(word for word, _ in sorted(common.items(), key=lambda item: (-item[1], item[0]))[:3])
    return {"title": f"{facts['question'].strip()[:140]} ({len(notes)} documents: {themes[:40]})", "sections": sections}


def _paragraph(notes: list[dict[str, Any]]) -> str:
    """Return as many notes as fit into a section; the remaining ones are cited by number only."""
    said: list[str] = []
    more: list[str] = []
    for note in notes:
        line = f"{note['document_id']}: {_sentence_of(note['quote'] or note['summary'])} [{note['n']}]"
        if sum(len(each) for each in said) + len(line) < 5000:
            said.append(line)
        else:
            more.append(f"[{note['n']}]")
    return "\n".join([*said, *([f"See also {' '.join(more)}"] if more else [])])


def _sentence_of(text: str) -> str:
    # A text may hold what looks like a citation: only ours may be one.
    return re.sub(r"\[(\d+)\]", r"(\1)", " ".join(text.split()))[:220]


def _sentences(text: str) -> list[str]:
    parts = (" ".join(part.split()) for part in re.split(r"(?<=[.!?])\s+|\n\n+", text))
    return [part for part in parts if len(part) > 20]


def _words(text: str) -> list[str]:
    found = re.findall(r"[a-z][a-z0-9]{2,}", text.lower())
    return list(dict.fromkeys(word for word in found if word not in _COMMON))
