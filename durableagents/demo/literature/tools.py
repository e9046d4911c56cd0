"""Tools of the review's agents: open, search and read the library, and two tools that cost money or publish.

Pure: `search_library`, `fetch_document`. Keyed: `open_library` (its key is the edition, so that the documents are
not added again), `embed_document` (costs money), `publish_report`.
"""

from __future__ import annotations

from pydantic import BaseModel, Field

from durableagents import Happened, ReplayClass, ToolCall, tool
from durableagents.demo.literature import corpus

from .. import upstream
from ..fields import Line, ShortLine
from ..tools import Answer, Arguments
from .records import Found, Sha256


class NoArguments(Arguments):
    """Nothing to say: the edition is the one that is installed."""


class Opened(Answer):
    edition: str
    documents: int
    sha256: Sha256


@tool(
    replay_class=ReplayClass.IDEMPOTENT_WITH_KEY,
    title="Open the library",
    system="library",
    effect="Adds the documentation of what is installed to the library, where it isn't there yet.",
    external_id="edition",
    timeout=120.0,
)
async def open_library(args: NoArguments, call: ToolCall) -> Opened:
    """The library's newest edition. The first time, it is filled, which takes seconds."""
    shelf = await corpus.fill()
    return Opened(edition=shelf.edition, documents=shelf.documents, sha256=shelf.sha256)


class Search(Arguments):
    edition: ShortLine
    words: ShortLine = Field(description="Words to look for, without operators.")
    most: int = Field(ge=1, le=400)


class Results(Answer):
    found: list[Found]


@tool(replay_class=ReplayClass.PURE, title="Search the library", system="library", effect="Reads the library's index.")
async def search_library(args: Search, call: ToolCall) -> Results:
    """The best documents for some words."""
    rows = await corpus.search(args.edition, args.words, args.most)
    return Results(found=[Found.model_validate(row) for row in rows])


class Fetch(Arguments):
    edition: ShortLine
    document_id: Line


class Text(Answer):
    document_id: str
    source: str
    sha256: Sha256
    body: str


@tool(replay_class=ReplayClass.PURE, title="Fetch a document", system="library", effect="Reads a document.")
async def fetch_document(args: Fetch, call: ToolCall) -> Text:
    """A document's whole text."""
    found = await corpus.fetch(args.edition, args.document_id)
    return Text(document_id=found.id, source=found.source, sha256=found.sha256, body=found.body)


class Embed(Arguments):
    document_id: Line
    sha256: Sha256
    text: str = Field(min_length=1, max_length=20_000)


class Embedded(Answer):
    embedding_id: str
    vector: list[int]


@tool(
    replay_class=ReplayClass.IDEMPOTENT_WITH_KEY,
    title="Embed a document",
    system="library",
    effect="Turns a text into a vector. Each costs.",
    external_id="embedding_id",
)
async def embed_document(args: Embed, call: ToolCall) -> Embedded:
    """A vector of a document's text, paid for once."""
    return await upstream.post("/api/library/embeddings", args.model_dump(mode="json"), call, Embedded)


class Publish(Arguments):
    title: Line
    sha256: Sha256
    text: str = Field(min_length=1, max_length=150_000)


class Published(Answer):
    report_id: str
    sha256: Sha256


class _Stored(BaseModel):
    results: list[Published]


async def _was_published(args: Publish, call: ToolCall) -> Happened | None:
    stored = await upstream.get("/api/library/reports", {"idempotency_key": str(call.key)}, call, _Stored)
    return Happened(stored.results[0]) if stored.results else None


@tool(
    replay_class=ReplayClass.IDEMPOTENT_WITH_KEY,
    title="Publish the report",
    system="library",
    effect="Puts the finished report into the library, under its digest.",
    external_id="report_id",
    reconcile=_was_published,
)
async def publish_report(args: Publish, call: ToolCall) -> Published:
    """Publish a report, once."""
    return await upstream.post("/api/library/reports", args.model_dump(mode="json"), call, Published)
