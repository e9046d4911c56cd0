"""Whether what a plan shows could be shown: nobody says yes to what nobody can have seen."""

from __future__ import annotations

from time import monotonic

from approvals.documents import drawn
from approvals.documents.shown import NO_LIST, NO_TEXT
from approvals.documents.stored import contents_of, unsound
from ledger.errors import DurableAgentsError
from runs.engine.canonical import parsed
from runs.engine.gate.documents import Named, is_text, named_in


class NotShown(DurableAgentsError):
    status, code, title = 409, "document-not-shown", "A document can't be shown"

    def __init__(self, problem: str, name: str = "") -> None:
        super().__init__(
            f"{name or 'Its documents'} can't be shown: {problem}. So nobody can approve it; it may be rejected.",
            document=name,
        )


def must_be_shown(plan: bytes) -> None:
    """Raises NotShown where a document that a plan names isn't stored, is not what it names, or can't be drawn whole;
    Busy where that isn't known of all within ACT_SECONDS: what was drawn by then is known the next time. A plan that
    can't be read at all is somebody else's to refuse."""
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


def _problem(named: Named, content: bytes | None, until: float) -> str:
    if content is None or unsound(named, content):
        return unsound(named, content)
    if named.is_text:
        return "" if is_text(content) else NO_TEXT
    return drawn.problem_of(named, lambda: content, until)
