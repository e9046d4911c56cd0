"""Protocol by which features take part in decisions; services.py runs all guards at fixed points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ledger.actors import Actor
from ledger.errors import DurableAgentsError
from runs import features
from runs.engine.canonical import parsed
from runs.engine.gating.documents import DOCUMENTS, NO_APP
from runs.engine.gating.proof import Threshold
from runs.models import Run, Wait

if TYPE_CHECKING:
    from approvals.models import Approval, Decision


UNREADABLE_LIST = "the list of its documents can't be read"


class NotShown(DurableAgentsError):
    """A document is not stored under the name in the plan, or can't be rendered: only rejecting is possible."""

    status, code, title = 409, "document-not-shown", "A document can't be shown"

    def __init__(self, problem: str, name: str = "") -> None:
        super().__init__(
            f"{name or 'Its documents'} can't be shown: {problem}. It can't be approved, only rejected.",
            document=name,
        )


@dataclass(frozen=True, slots=True)
class ApprovalPanel:
    """A part of an approval's page: its template, and the value that the template sees as `p`.

    `place` is top, content, talk (after what the agent wrote), history, decision, or advance (below, in the decision's
    form). `obstacle` is shown next to the decision and says why nobody can approve now.
    """

    template: str
    value: Any
    obstacle: str = ""
    place: str = "content"


@dataclass(frozen=True, slots=True)
class ApprovalFilter:
    """A filter of the list of open approvals.

    It has a text, and a function that returns the SQL condition for an account and its values.
    """

    text: str
    condition: Callable[[int | None], tuple[str, list[Any]]]


def feature_annotations(*, is_whole: bool) -> dict[str, Any]:
    """Return the annotations that features need on the approvals of a page or a list."""
    made = [make(is_whole) for make in features.parts_of_all(lambda each: each.approval_annotations)]
    return {name: value for values in made for name, value in values.items()}


@dataclass(frozen=True, slots=True)
class PendingDecision:
    """A decision that is about to be made, with everything locked.

    `thresholds` are the proof thresholds that apply to the decision, `typed` is the text typed as proof, and `evidence`
    is what the feature that checks proofs derived from it.
    """

    approval: Approval
    run: Run
    verdict: str
    by: Actor
    now: datetime
    thresholds: Sequence[Threshold]
    typed: Mapping[str, str]
    evidence: Any


class DecisionGuard:
    """A feature's part in decisions.

    It refuses by raising an error, after which nothing has changed. It holds no state.
    """

    def before_locks(self, plan: bytes) -> None:
        """Check a plan before it is approved. No lock is held yet, so this may take long."""

    def is_late(self, approval: Approval, wait: Wait, now: datetime) -> bool:
        """Return whether the deadline has passed although the question is still open."""
        return False

    def proof(self, pending: PendingDecision) -> dict[str, Any]:
        """Return the proof that is recorded with the decision. May raise DefinitionError for an unreadable plan."""
        return {}

    def store(self, pending: PendingDecision, decision: Decision) -> None:
        """Store the feature's data about the decision, after the decision and in its transaction."""


class DocumentsNeedApp(DecisionGuard):
    """Refuses to approve a plan with documents that no installed app shows."""

    def before_locks(self, plan: bytes) -> None:
        """Check that an installed app shows the plan's documents, if it has any. Raises NotShown."""
        with suppress(ValueError):  # an unreadable plan is refused elsewhere
            if documents_lack_app(parsed(plan)):
                raise NotShown(NO_APP)


def documents_lack_app(plan: Any) -> bool:
    """Return whether this plan has documents that no installed app shows."""
    has_some = isinstance(plan, Mapping) and bool(plan.get(DOCUMENTS))
    return has_some and features.only(lambda each: each.store_documents) is None
