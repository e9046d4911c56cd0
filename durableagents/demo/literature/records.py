"""The models of a literature review: its input, the assistants' answers, the state and the output."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from ..fields import Line, MultiLine, ShortLine

MAX_DOCUMENTS = 200
MAX_LIST = 500
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class ReviewRequest(BaseModel):
    """A question to the literature, and how much of it is to be read, and how fast."""

    model_config = ConfigDict(extra="forbid", frozen=True, title="Review to write")

    topic: MultiLine = Field(
        title="Question",
        description="What the report is to answer, in your words.",
        examples=["How do transactions and locks behave when a connection is lost?"],
    )
    documents: int = Field(
        default=48,
        ge=1,
        le=MAX_DOCUMENTS,
        title="Documents to read",
        description="A person may change it before they are read.",
    )
    at_once: int = Field(default=8, ge=1, le=20, title="Readers at once")
    pace_seconds: float = Field(
        default=0,
        ge=0,
        le=86_400,
        title="Pause between batches, in seconds",
        description="0: as fast as it can. A pause holds no worker.",
    )


class ReviewPlan(BaseModel):
    """Plan of the literature search."""

    searches: Annotated[list[ShortLine], Field(min_length=1, max_length=8)] = Field(
        description="Some words each, without operators; different sides of the question."
    )
    approach: MultiLine = Field(description="One or two sentences: what is looked for.")


class Scope(BaseModel):
    """A person's answer about the reading list."""

    documents: int = Field(ge=1, le=MAX_DOCUMENTS, title="Documents to read, from the top of the list")
    packages: Annotated[str, Field(max_length=MAX_LIST)] = Field(
        title="Packages to read from", description="Names separated by commas: remove those to skip."
    )


class Found(BaseModel):
    """A document that a search gave."""

    id: str
    source: str
    sha256: Sha256
    score: int


class Errand(BaseModel):
    """One document, and the question it is read for."""

    model_config = ConfigDict(extra="forbid", frozen=True, title="Document to read")

    title: Line = Field(title="Document", description="As the library names it.", examples=["django.db.transaction"])
    topic: MultiLine = Field(title="Question")
    edition: ShortLine = Field(title="Edition of the library")
    sha256: Sha256 = Field(title="Its digest", description="SHA-256 of its text: another text is not read.")


class Reading(BaseModel):
    """Findings of one document about the question."""

    summary: MultiLine = Field(description="Two or three sentences, from the text alone.")
    quote: MultiLine = Field(description="One sentence of the text, word for word, that bears on the question.")
    relevance: int = Field(ge=0, le=3, description="0: nothing about the question, 3: answers it.")


class Note(BaseModel):
    """A document that was read. `quote` is None where what the model gave as one doesn't stand in the text."""

    document_id: str
    source: str
    sha256: Sha256
    embedding_id: str
    summary: str
    quote: str | None
    relevance: int


class Section(BaseModel):
    """A part of the report."""

    heading: Line
    text: Annotated[str, Field(min_length=1, max_length=6000)] = Field(
        description="Each claim ends with the number of the note it comes from, like [3]."
    )


class Draft(BaseModel):
    """The report, without its list of references, which is added."""

    title: Line
    sections: Annotated[list[Section], Field(min_length=1, max_length=12)]


class Unread(BaseModel):
    """A document that could not be read, and why."""

    document_id: str
    why: str


class Review(BaseModel):
    """State of the run at each boundary between two nodes."""

    request: ReviewRequest
    edition: str = ""
    library_sha256: str = ""
    plan: ReviewPlan | None = None
    found: list[Found] = []
    to_read: list[Found] = []
    notes: list[Note] = []
    unread: list[Unread] = []
    title: str = ""
    report: str = ""


class Report(BaseModel):
    """The report as it was published, and what it rests on: each document that it cites, with the digest of the text that
    was read."""

    report: str
    report_id: str
    report_sha256: Sha256
    documents_read: int
    unread: list[Unread]
    edition: str
    library_sha256: str
    cited: dict[str, Sha256]
