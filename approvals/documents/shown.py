"""A question's documents on its page: texts compared word by word with the previous revision, others as pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from approvals.documents import drawn
from approvals.documents.drawn import Facts
from approvals.documents.redline import ADDED, REMOVED, Part, Patience, redline
from approvals.documents.stored import contents_of, unsound
from approvals.guards import DecisionGuard
from ledger.errors import DurableAgentsError
from runs.engine.canonical import parsed
from runs.engine.gating.documents import Named, is_text, named_in


class NotShown(DurableAgentsError):
    status, code, title = 409, "document-not-shown", "A document can't be shown"

    def __init__(self, problem: str, name: str = "") -> None:
        super().__init__(
            f"{name or 'Its documents'} can't be shown: {problem}. It can't be approved, only rejected.",
            document=name,
        )


class ShownInFull(DecisionGuard):
    """Nothing is approved whose documents can't be shown. Drawing takes time; content stored by digest doesn't change,
    so no lock is needed."""

    def before_locks(self, plan: bytes) -> None:
        """Check that all documents of a plan can be shown in full. An unparsable plan is refused elsewhere. Raises
        NotShown for a missing, changed or undrawable one; Busy if not all are known within ACT_SECONDS."""
        try:
            told = parsed(plan)
        except ValueError:
            return
        try:
            listed = named_in(told)
        except ValueError:
            raise NotShown(NO_LIST) from None
        if not listed:
            return
        contents, until = contents_of(listed), monotonic() + drawn.ACT_SECONDS
        for named in listed:
            if problem := _problem(named, contents.get(named.digest), until):
                raise NotShown(problem, named.name)


DOCUMENTS = ShownInFull()


def _problem(named: Named, content: bytes | None, until: float) -> str:
    if content is None or unsound(named, content):
        return unsound(named, content)
    if named.is_text:
        return "" if is_text(content) else NO_TEXT
    return drawn.problem_of(named, lambda: content, until)


NO_TEXT = "it is no text in UTF-8"
NO_LIST = "the list of its documents can't be read"
DRAWING = "it is being drawn"


@dataclass(frozen=True, slots=True)
class PageShown:
    """A drawn page, in pixels."""

    n: int
    width: int
    height: int


@dataclass(frozen=True)
class DocumentShown:
    """The `n`-th document of a question; removed ones have number 0. `problem` keeps it from being shown, `is_drawing`
    means not yet known, `against` compares it with the document of that name in the previous revision."""

    n: int
    named: Named
    problem: str = ""
    against: str = ""
    parts: Sequence[Part] = ()
    pages: Sequence[PageShown] = ()
    note: str = ""
    is_drawing: bool = False

    @property
    def is_compared(self) -> bool:
        return any(part.what in (ADDED, REMOVED) for part in self.parts)

    @property
    def words(self) -> dict[str, int]:
        return {what: sum(part.words for part in self.parts if part.what == what) for what in (ADDED, REMOVED)}


@dataclass(frozen=True)
class Before:
    """The previous revision: its number, its plan, and its texts by digest."""

    revision: int
    plan: Mapping[str, Any]
    contents: Mapping[str, bytes]


def documents_of(
    plan: Mapping[str, Any], contents: Mapping[str, bytes], before: Before | None
) -> tuple[list[DocumentShown], str]:
    """Return a plan's documents, and why it can't be shown in full (empty if it can). Waits briefly for drawings.
    `contents` are the bytes already read, by digest."""
    try:
        listed = named_in(plan)
    except ValueError:
        return [], NO_LIST
    earlier, shown, patience = {each.name: each for each in _earlier(before)}, [], Patience()
    told = [_Told(named, contents.get(named.digest), earlier.pop(named.name, None), before) for named in listed]
    pictures = [each for each in told if not each.named.is_text]
    facts = iter(drawn.facts_within(drawn.PAGE_SECONDS, [(each.named, each.bytes_of) for each in pictures]))
    for n, one in enumerate(told, 1):
        shown.append(one.as_text(n, patience) if one.named.is_text else one.as_pages(n, next(facts)))
    gone = [
        DocumentShown(0, named, against=f"revision {before.revision} had it, and this one has it no more")
        for named in earlier.values()
        if before is not None
    ]
    problems = [f"{each.named.name}: {each.problem}" for each in shown if each.problem]
    problems += [f"{each.named.name}: {DRAWING}" for each in shown if each.is_drawing]
    return shown + gone, problems[0] if problems else ""


def _earlier(before: Before | None) -> list[Named]:
    """Return the previous revision's documents; empty if unreadable, which blocks no decision."""
    try:
        return [] if before is None else named_in(before.plan)
    except ValueError:
        return []


@dataclass(frozen=True, slots=True)
class _Told:
    """One document with its known bytes, and its predecessor of the same name."""

    named: Named
    content: bytes | None
    was: Named | None
    before: Before | None

    @property
    def against(self) -> str:
        if self.before is None:
            return ""
        if self.was is None:
            return f"new: revision {self.before.revision} did not have it"
        is_same = (self.was.digest, self.was.media_type) == (self.named.digest, self.named.media_type)
        return f"{'the same as in' if is_same else 'another than in'} revision {self.before.revision}"

    def as_text(self, n: int, patience: Patience) -> DocumentShown:
        """Return it as text with the removed words; texts of a page share the `patience`."""
        content = self.content
        if content is None or unsound(self.named, content):
            return DocumentShown(n, self.named, unsound(self.named, content), self.against)
        if not is_text(content):
            return DocumentShown(n, self.named, NO_TEXT, self.against)
        old = self._old_text()
        parts = [Part("same", content.decode())] if old is None else redline(content.decode(), old, patience)
        lost = ". What it was then can't be read, so nothing is marked" if old is None and self._is_other_text else ""
        return DocumentShown(n, self.named, "", self.against + lost, parts)

    @property
    def _is_other_text(self) -> bool:
        return self.was is not None and self.was.is_text and self.was.digest != self.named.digest

    def _old_text(self) -> str | None:
        if self.was is None or self.before is None or not self._is_other_text:
            return None
        content = self.before.contents.get(self.was.digest)
        is_sound = content is not None and not unsound(self.was, content) and is_text(content)
        return content.decode() if is_sound and content is not None else None

    def bytes_of(self) -> bytes | None:
        """Return the bytes; read now if the cache dropped their facts since the question was read."""
        return contents_of([self.named]).get(self.named.digest) if self.content is None else self.content

    def as_pages(self, n: int, facts: Facts | None) -> DocumentShown:
        """Return it as pages; none if not yet known."""
        if facts is None:
            return DocumentShown(n, self.named, "", self.against, is_drawing=True)
        pages = [PageShown(page, *size) for page, size in enumerate(facts.pages, 1)]
        return DocumentShown(n, self.named, facts.problem, self.against, (), pages, facts.note)
