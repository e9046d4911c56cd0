"""Images and other files in prompts and tool results: converted to data for the record, and back for the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, TypeAdapter

from runs.engine.canonical import plain

Prompt = str | Sequence[Any]  # A text, or a list of texts and Pydantic AI's files (BinaryContent, ImageUrl, …).
# The approximate size of a file in a model's window, in characters of text, regardless of its size in bytes.
CHARACTERS_OF_A_FILE = 6000


def is_file(value: Any) -> bool:
    """Return whether a value is one of Pydantic AI's files or file references."""
    return getattr(value, "kind", None) in _KINDS and type(value).__module__ == "pydantic_ai.messages"


def has_files(value: Any) -> bool:
    """Return whether a tool's result holds files or bytes at any depth."""
    match value:
        case Mapping():
            return any(map(has_files, value.values()))
        case list() | tuple():
            return any(map(has_files, value))
        case _:
            return isinstance(value, bytes) or is_file(value)


def as_data(content: Any) -> Any:
    """Return a prompt or a tool's result in recordable form. Raises ValueError if it can't be recorded."""
    from pydantic_core import to_jsonable_python

    return plain(content if isinstance(content, str) else to_jsonable_python(content, bytes_mode="base64"))


def as_content(data: Any, *, is_prompt: bool) -> Any:
    """Return content recorded by `as_data`, with its files restored."""
    from pydantic_ai.messages import ToolReturnPart, UserPromptPart

    if is_prompt:
        return TypeAdapter(UserPromptPart).validate_python({"content": data}).content
    return TypeAdapter(ToolReturnPart).validate_python({"tool_name": "", "content": data}).content


def in_words(content: Any) -> str:
    """Return a prompt or a result, raw or recorded, as text. Files are described by kind and size."""
    if isinstance(content, str):
        return content
    if isinstance(content, (list, tuple)) and any(is_file(each) or _is_recorded_file(each) for each in content):
        return "\n".join(in_words(each) for each in content)
    data = as_data(content)
    if not _is_recorded_file(data):
        return str(data)
    size = f", {len(data['data']) * 3 // 4} bytes" if "data" in data else ""
    return f"[{data.get('media_type') or data['kind']}{size}{' ' + str(data['url']) if 'url' in data else ''}]"


def characters(content: Any) -> int:
    """Return the approximate number of characters that some content uses in a model's window."""
    if isinstance(content, (list, tuple)):
        return sum(map(characters, content))
    return CHARACTERS_OF_A_FILE if is_file(content) else len(str(content or ""))


def with_files(outcome: BaseModel, answer: Any) -> Any:
    """Return a tool's result for the model: its data, followed by the files in its fields."""
    files = list(_files_of(outcome))
    return [_named(answer), *files] if files else answer


_KINDS = frozenset({"binary", "image-url", "audio-url", "video-url", "document-url", "uploaded-file"})


def _is_recorded_file(value: Any) -> bool:
    return isinstance(value, dict) and value.get("kind") in _KINDS and "identifier" in value


def _files_of(value: Any) -> Iterator[Any]:
    match value:
        case BaseModel():
            yield from _files_of([each for _, each in value])
        case Mapping():
            yield from _files_of(list(value.values()))
        case list() | tuple():
            for each in value:
                yield from _files_of(each)
        case _ if is_file(value):
            yield value


def _named(data: Any) -> Any:
    match data:
        case dict() if _is_recorded_file(data):
            return {"file": data["identifier"]}
        case dict():
            return {name: _named(each) for name, each in data.items()}
        case list():
            return [_named(each) for each in data]
        case _:
            return data
