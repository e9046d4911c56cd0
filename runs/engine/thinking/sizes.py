"""Estimates of the size of conversations, and the truncation of large tool answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from runs.engine.assistants import Assistant
from runs.engine.content import files

# This is a low value, so that reservations are too large rather than too small.
CHARACTERS_A_TOKEN = 3
# A model sees only the beginning and the end of tool answers longer than this.
MAX_OBSERVATION = 60_000
_TOOLS: dict[int, tuple[Assistant, int]] = {}


def tokens_of(messages: Sequence[Any]) -> int:
    """Estimate the tokens of a conversation."""
    return sum(characters_of(message) for message in messages) // CHARACTERS_A_TOKEN + 1


def characters_of(message: Any) -> int:
    characters = len(getattr(message, "instructions", None) or "")
    for part in message.parts:
        characters += files.characters(getattr(part, "content", "") or getattr(part, "args", "") or "")
    return characters


def tokens_of_tools(assistant: Assistant) -> int:
    """Estimate the tokens of an assistant's tool and answer schemas, which are part of each request."""
    if assistant.request is not None:
        return assistant.request.tokens
    known = _TOOLS.get(id(assistant))
    if known is None or known[0] is not assistant:
        models = [assistant.output, *(tool.input for tool in assistant.tools)]
        texts = [json.dumps(model.model_json_schema()) for model in models]
        texts += [tool.description or tool.title for tool in assistant.tools]
        known = _TOOLS[id(assistant)] = assistant, sum(map(len, texts)) // CHARACTERS_A_TOKEN
    return known[1]


def fit_answer(answer: Any, window: int | None) -> Any:
    """Return a tool's answer in the form that a model sees.

    If it needs more than a quarter of `window` (in tokens), only its two ends and its SHA-256 are returned.
    """
    text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, sort_keys=True)
    most = MAX_OBSERVATION if window is None else min(MAX_OBSERVATION, window * CHARACTERS_A_TOKEN // 4)
    if len(text) <= most:
        return answer
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
    head, tail = most * 3 // 4, most // 8
    return {"too_large": True, "characters": len(text), "sha256": digest, "beginning": text[:head], "end": text[-tail:]}
