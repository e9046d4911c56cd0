"""Documents shown to approvers. Pure.

A plan contains the documents' digests, so the decision covers them. Plans without documents have the same bytes as
plans from before documents were supported.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runs.engine.errors import describe_error

DOCUMENTS = "documents"  # key of a plan's documents
NO_APP = "no installed app shows documents (durableagents.contrib.documents does)"
TEXT, MARKDOWN, PDF, PNG, JPEG = "text/plain", "text/markdown", "application/pdf", "image/png", "image/jpeg"
TEXTS = frozenset({TEXT, MARKDOWN})
MEDIA_TYPES = (TEXT, MARKDOWN, PDF, PNG, JPEG)
MAX_NAME_LENGTH = 120  # characters
MAX_BYTES = 10 * 1024 * 1024  # per document
MAX_TEXT_BYTES = 200 * 1024  # per text, which is displayed in full
MAX_DOCUMENTS = 10  # per question
MAX_BYTES_IN_ALL = 20 * 1024 * 1024  # per question
MAX_TEXT_IN_ALL = 400 * 1024
_BEGINS = {PNG: b"\x89PNG\r\n\x1a\n", JPEG: b"\xff\xd8\xff"}
_PDF_HEAD = 1024  # a PDF's header must begin within this many bytes


@dataclass(frozen=True, slots=True)
class Document:
    """A document that people see before they decide, and that the decision covers.

    `name` is its title, also used to compare revisions. `media_type` is one of text/plain, text/markdown,
    application/pdf, image/png and image/jpeg. `content` is its bytes, or its text. Raises ValueError for anything that
    can't be shown: no name, another media type, empty or too large content, or bytes that don't begin like content of
    that type.
    """

    name: str
    media_type: str
    content: bytes | str = field(repr=False)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _is_name(self.name):
            most = f"one line of 1 to {MAX_NAME_LENGTH} visible characters, without slashes"
            raise ValueError(f"Document(name={self.name!r}): give {most}")
        if self.media_type not in MEDIA_TYPES:
            raise ValueError(
                f"Document {self.name!r}: media_type={self.media_type!r}: give one of {', '.join(MEDIA_TYPES)}"
            )
        object.__setattr__(self, "content", self._as_bytes())
        if problem := self._problem():
            raise ValueError(f"Document {self.name!r}: its content {problem}")
        object.__setattr__(self, "digest", digest_of(self.bytes))

    def _as_bytes(self) -> bytes:
        try:
            if isinstance(self.content, str) and self.media_type in TEXTS:
                return self.content.encode()
            return bytes(memoryview(self.content))  # type: ignore[arg-type]
        except UnicodeEncodeError:
            raise ValueError(f"Document {self.name!r}: its content contains half a surrogate pair") from None
        except TypeError:
            what = "bytes, or a text" if self.media_type in TEXTS else "bytes"
            raise ValueError(
                f"Document {self.name!r}: its content is of type {type(self.content).__name__}: give {what}"
            ) from None

    def _problem(self) -> str:
        most = MAX_TEXT_BYTES if self.media_type in TEXTS else MAX_BYTES
        if not self.bytes:
            return "is empty"
        if len(self.bytes) > most:
            hint = ": give a longer one as a PDF" if self.media_type in TEXTS else ""
            return f"has {len(self.bytes)} bytes; the limit is {most}{hint}"
        if self.media_type in TEXTS:
            return "" if is_text(self.bytes) else "is not UTF-8 text"
        is_one = (
            b"%PDF-" in self.bytes[:_PDF_HEAD]
            if self.media_type == PDF
            else self.bytes.startswith(_BEGINS[self.media_type])
        )
        return "" if is_one else f"does not look like {self.media_type}"

    @property
    def bytes(self) -> bytes:
        """The content as bytes; a text is in UTF-8."""
        assert isinstance(self.content, bytes)
        return self.content

    def as_json(self) -> dict[str, Any]:
        """Return the plan's entry: the document's name, type and size, and the digest of its bytes."""
        return {"name": self.name, "media_type": self.media_type, "size": len(self.bytes), "sha256": self.digest}


# The declaration in a gate: a plain function from the tool's input to the documents.
Declared = Callable[[Any], Sequence[Document]]


def digest_of(content: bytes) -> str:
    """Return the SHA-256 of a document as 64 hex digits.

    The digest isn't keyed, because the same people see the content.
    """
    return hashlib.sha256(content).hexdigest()


def is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_name(name: str) -> bool:
    return (
        0 < len(name) <= MAX_NAME_LENGTH and name == name.strip() and name.isprintable() and not set(name) & set("/\\")
    )


def checked(documents: Any) -> tuple[Document, ...]:
    """Return the documents of one question. Raises ValueError for wrong types, too many, or duplicate names."""
    if isinstance(documents, (str, bytes, Mapping, Document)) or not isinstance(documents, Sequence):
        raise ValueError(f"documents={type(documents).__name__}: give a list of Document(name, media_type, content)")
    if strangers := [type(each).__name__ for each in documents if not isinstance(each, Document)]:
        raise ValueError(f"documents: {strangers[0]} is not a Document(name, media_type, content)")
    if len(documents) > MAX_DOCUMENTS:
        raise ValueError(f"documents: {len(documents)} are given, but a request may have at most {MAX_DOCUMENTS}")
    names = [each.name for each in documents]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"documents: two are called {twice!r}: revisions are compared by name, so give each its own")
    if (size := sum(len(each.bytes) for each in documents)) > MAX_BYTES_IN_ALL:
        raise ValueError(f"documents: together they have {size} bytes; the limit is {MAX_BYTES_IN_ALL}")
    texts = sum(len(each.bytes) for each in documents if each.media_type in TEXTS)
    if texts > MAX_TEXT_IN_ALL:
        raise ValueError(f"documents: the texts together have {texts} bytes; the limit is {MAX_TEXT_IN_ALL}")
    return tuple(documents)


def build_documents(declared: Declared | None, args: Any, whose: str) -> tuple[Document, ...]:
    """Return the documents that a gate creates for a call's input.

    Raises ValueError, naming the gate's tool (`whose`), if its code fails.
    """
    if declared is None:
        return ()
    try:
        return checked(declared(args))
    except Exception as error:
        raise ValueError(
            f"the documents of the gate of {whose} can't be created: {describe_error(error, 300)}"
        ) from error


def wrong(declared: Any) -> str:
    """Return why a declaration is invalid; empty if it is valid."""
    is_plain = callable(declared) and not isinstance(declared, type) and not inspect.iscoroutinefunction(declared)
    return "" if declared is None or is_plain else "give a plain function of the tool's input"


def in_plan(documents: Sequence[Document]) -> dict[str, Any]:
    """Return a plan's entries for the documents; empty if there are none."""
    return {DOCUMENTS: [each.as_json() for each in documents]} if documents else {}


@dataclass(frozen=True, slots=True)
class Named:
    """A document's entry in a plan. `digest` is the digest of its bytes."""

    name: str
    media_type: str
    size: int
    digest: str

    @property
    def is_text(self) -> bool:
        return self.media_type in TEXTS


def named_in(plan: Any) -> list[Named]:
    """Return the documents named in a plan, in order. Raises ValueError if they can't be read."""
    named = plan.get(DOCUMENTS, []) if isinstance(plan, Mapping) else []
    try:
        found = [Named(each["name"], each["media_type"], each["size"], each["sha256"]) for each in named]
    except (KeyError, TypeError) as error:
        raise ValueError("the documents of the plan can't be read") from error
    for each in found:
        is_right = all(isinstance(text, str) for text in (each.name, each.media_type, each.digest))
        if not is_right or type(each.size) is not int or each.media_type not in MEDIA_TYPES:
            raise ValueError("the documents of the plan can't be read")
    return found
