"""Show an approval's documents on its page, and refuse to approve it unless they can be shown.

Texts are compared word by word with the previous revision; other documents are shown as pictures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from approvals.brief import ApprovalDetail, plan_of
from approvals.guards import UNREADABLE_LIST, ApprovalPanel, DecisionGuard, NotShown
from durableagents.contrib.documents import rendering
from durableagents.contrib.documents.redline import ADDED, REMOVED, Budget, Part, redline
from durableagents.contrib.documents.rendering import Facts
from durableagents.contrib.documents.storage import mismatch, read_contents
from runs.engine.canonical import parsed
from runs.engine.gating.documents import Named, is_text, named_in

NOT_TEXT = "it is not UTF-8 text"


class ShownInFull(DecisionGuard):
    """Refuses the approval of a plan whose documents can't be shown.

    The check runs before the locks, because rendering takes long; content stored by digest can't change meanwhile.
    """

    def before_locks(self, plan: bytes) -> None:
        """Check that all documents of a plan can be shown in full. An unreadable plan is refused elsewhere.

        Raises NotShown for a document that is missing, changed or can't be rendered; Busy if not all results are known
        within APPROVAL_SECONDS.
        """
        try:
            read = parsed(plan)
        except ValueError:
            return
        try:
            documents = named_in(read)
        except ValueError:
            raise NotShown(UNREADABLE_LIST) from None
        contents, until = read_contents(documents), monotonic() + rendering.APPROVAL_SECONDS
        for document in documents:
            if problem := _problem(document, contents.get(document.digest), until):
                raise NotShown(problem, document.name)


def _problem(document: Named, content: bytes | None, until: float) -> str:
    if content is None or mismatch(document, content):
        return mismatch(document, content)
    if document.is_text:
        return "" if is_text(content) else NOT_TEXT
    return rendering.problem_of(document, lambda: content, until)


@dataclass(frozen=True, slots=True)
class PageView:
    """A rendered page, with its size in pixels."""

    n: int
    width: int
    height: int


@dataclass(frozen=True)
class DocumentView:
    """The `n`-th document of an approval; removed documents have number 0.

    `problem` says why the document can't be shown. `is_loading` means that this isn't known yet. `against` compares it
    with the document of the same name in the previous revision.
    """

    n: int
    named: Named
    problem: str = ""
    against: str = ""
    parts: Sequence[Part] = ()
    pages: Sequence[PageView] = ()
    note: str = ""
    is_loading: bool = False

    @property
    def is_compared(self) -> bool:
        return any(part.what in (ADDED, REMOVED) for part in self.parts)

    @property
    def words(self) -> dict[str, int]:
        return {what: sum(part.words for part in self.parts if part.what == what) for what in (ADDED, REMOVED)}


@dataclass(frozen=True, slots=True)
class Documents:
    """All documents of an approval.

    `problem` says why one of them can't be shown. It is empty if all can be shown, or if some are still loading.
    """

    views: Sequence[DocumentView]
    problem: str = ""

    @property
    def is_loading(self) -> bool:
        """Return whether a document is still being rendered, so that the page will show it soon."""
        return any(each.is_loading for each in self.views)

    @property
    def obstacle(self) -> str:
        """Return the reason why nobody can approve the plan now; empty if it can be approved."""
        if self.problem:
            return f"It can't be approved: a document can't be shown ({self.problem})."
        return "The documents are loading. You can approve once they are shown." if self.is_loading else ""


def documents_panel(opened: ApprovalDetail) -> list[ApprovalPanel]:
    """Return the panel with an approval's documents, for readers who may read them."""
    if not opened.is_read:
        return []
    found = documents_of(opened.plan, opened.earlier[0].approval if opened.earlier else None)
    return [ApprovalPanel("documents/panel.html", found, found.obstacle)] if found.views or found.problem else []


def documents_of(plan: Mapping[str, Any], previous: Any = None) -> Documents:
    """Return a plan's documents, compared with those of the previous revision. Waits a short time for renderings."""
    try:
        listed = named_in(plan)
    except ValueError:
        return Documents([], UNREADABLE_LIST)
    former = {} if previous is None else {each.name: each for each in _documents_before(previous)}
    contents = _contents_to_show(listed, former)
    compared = [
        _Comparison(document, contents, former.pop(document.name, None), previous and previous.revision)
        for document in listed
    ]
    pictures = [each for each in compared if not each.document.is_text]
    facts = iter(rendering.facts_within(rendering.PAGE_SECONDS, [(each.document, each.content) for each in pictures]))
    budget = Budget()
    views = [
        each.as_text(n, budget) if each.document.is_text else each.as_pages(n, next(facts))
        for n, each in enumerate(compared, 1)
    ]
    problem = next((f"{each.named.name}: {each.problem}" for each in views if each.problem), "")
    views += [
        DocumentView(0, document, against=f"revision {previous.revision} had it, but this one does not")
        for document in former.values()
    ]
    return Documents(views, problem)


def _documents_before(previous: Any) -> list[Named]:
    """Return the previous revision's documents; empty if they can't be read, which must not block a decision."""
    try:
        return named_in(plan_of(previous))
    except ValueError:
        return []


def _contents_to_show(listed: Sequence[Named], former: Mapping[str, Named]) -> dict[str, bytes]:
    """Read the texts of both revisions in one query, together with documents that haven't been rendered."""
    wanted = [each for each in listed if each.is_text or rendering.cache.facts(each) is None]
    replaced = [former[each.name] for each in listed if each.is_text and each.name in former]
    return read_contents([*wanted, *(each for each in replaced if each.is_text)])


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A document with its content, and the document of the same name in revision `before`."""

    document: Named
    contents: Mapping[str, bytes]
    predecessor: Named | None
    before: int | None

    @property
    def against(self) -> str:
        if self.before is None:
            return ""
        if self.predecessor is None:
            return f"new: revision {self.before} did not have it"
        old, new = self.predecessor, self.document
        is_same = (old.digest, old.media_type) == (new.digest, new.media_type)
        return f"{'the same as in' if is_same else 'not the same as in'} revision {self.before}"

    def as_text(self, n: int, budget: Budget) -> DocumentView:
        """Return the document as text, including removed words. All texts of a page share the `budget`."""
        content = self.contents.get(self.document.digest)
        if content is None or mismatch(self.document, content):
            return DocumentView(n, self.document, mismatch(self.document, content), self.against)
        if not is_text(content):
            return DocumentView(n, self.document, NOT_TEXT, self.against)
        old = self._old_text()
        parts = [Part("same", content.decode())] if old is None else redline(content.decode(), old, budget)
        lost = (
            ". The earlier document can't be read, so no differences are marked"
            if old is None and self._is_other_text
            else ""
        )
        return DocumentView(n, self.document, "", self.against + lost, parts)

    @property
    def _is_other_text(self) -> bool:
        old = self.predecessor
        return old is not None and old.is_text and old.digest != self.document.digest

    def _old_text(self) -> str | None:
        if self.predecessor is None or not self._is_other_text:
            return None
        content = self.contents.get(self.predecessor.digest)
        is_sound = content is not None and not mismatch(self.predecessor, content) and is_text(content)
        return content.decode() if is_sound and content is not None else None

    def content(self) -> bytes | None:
        """Return the bytes. The text is read here if the cache has dropped the document since."""
        read = self.contents.get(self.document.digest)
        return read_contents([self.document]).get(self.document.digest) if read is None else read

    def as_pages(self, n: int, facts: Facts | None) -> DocumentView:
        """Return the document as pages; none if they aren't known yet."""
        if facts is None:
            return DocumentView(n, self.document, "", self.against, is_loading=True)
        pages = [PageView(page, *size) for page, size in enumerate(facts.pages, 1)]
        return DocumentView(n, self.document, facts.problem, self.against, (), pages, facts.note)
