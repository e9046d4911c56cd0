"""About how large a conversation is, before the provider has counted; and what is shown of an answer that is too large
for one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from runs.engine.assistants import Assistant
from runs.engine.content import files

# Fewer than there mostly are, so that what is set aside is rather too much.
CHARACTERS_A_TOKEN = 3
# Of a tool's answer that has more characters, a model is shown the beginning and the end.
LONGEST_OBSERVATION = 60_000
_TOOLS: dict[int, tuple[Assistant, int]] = {}


def tokens_of(messages: Sequence[Any]) -> int:
    """About how many tokens a conversation has."""
    return sum(characters_of(message) for message in messages) // CHARACTERS_A_TOKEN + 1


def characters_of(message: Any) -> int:
    characters = len(getattr(message, "instructions", None) or "")
    for part in message.parts:
        characters += files.characters(getattr(part, "content", "") or getattr(part, "args", "") or "")
    return characters


def tokens_of_tools(assistant: Assistant) -> int:
    """About how many tokens its tools and its answer's type take in each request: their schemas go with it."""
    if assistant.request is not None:
        return assistant.request.tokens
    known = _TOOLS.get(id(assistant))
    if known is None or known[0] is not assistant:
        models = [assistant.output, *(tool.input for tool in assistant.tools)]
        texts = [json.dumps(model.model_json_schema()) for model in models]
        texts += [tool.description or tool.title for tool in assistant.tools]
        known = _TOOLS[id(assistant)] = assistant, sum(map(len, texts)) // CHARACTERS_A_TOKEN
    return known[1]


def shown(answer: Any, window: int | None) -> Any:
    """A tool's answer as a model gets it: as it is, or where it is too large its beginning, its end, its size in
    characters and the SHA-256 of the whole, which is on the journal. `window` is the model's, in tokens: no answer
    takes more than a quarter of it."""
    text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, sort_keys=True)
    most = LONGEST_OBSERVATION if window is None else min(LONGEST_OBSERVATION, window * CHARACTERS_A_TOKEN // 4)
    if len(text) <= most:
        return answer
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
    head, tail = most * 3 // 4, most // 8
    return {"too_large": True, "characters": len(text), "sha256": digest, "beginning": text[:head], "end": text[-tail:]}
