"""Payloads that the reader may not read: placeholders and refusals.

`reads` decides who may read a payload. Lists and pages replace a hidden payload with a note; a URL that returns only
payloads refuses the request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from ledger.erasure import erased
from ledger.errors import DurableAgentsError
from ledger.web.seeing.viewers import is_erased, reads


class Hidden:
    """Placeholder for a payload that the reader may not read, or that nobody can."""

    def __init__(self, text: str = "not shown to you") -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text


HIDDEN, ERASED = Hidden(), Hidden("erased")
WHO_GIVES = "Ask an administrator for access to run data (People)."
WORDS = f"You may not see this run's content. {WHO_GIVES}"
# Events whose payload is what people wrote about their own acts: everybody who sees the run may read it.
SAID_OF_ACTS = frozenset(
    {
        "ApprovalDecided",
        "PauseRequested",
        "RunPaused",
        "RunResumed",
        "CancelRequested",
        "RunCancelled",
        "RunRetried",
        "RunRequeued",
        "BudgetSet",
        "OutcomeWithdrawn",
        "UpstreamAsked",
    }
)
# Members of a wait's detail that tell what the run waits for, without any of the run's content.
_STATUS = frozenset(
    "title queue tool approval_id of name names kind attempt retry reason resource most used reserved wanted needs "
    "enough began held_by pool scope period refills_at child agent run until class system".split()
)


class PayloadsHidden(DurableAgentsError):
    """The request asks only for payloads that the reader may not read; `run_id` is None if they are of many runs."""

    status, code, title = 403, "payloads-hidden", "Not shown to you"

    def __init__(self, run_id: UUID | None, words: str = WORDS) -> None:
        super().__init__(words, **({} if run_id is None else {"run_id": str(run_id)}))


def must_read(run_id: UUID) -> None:
    """Check that the reader may read the run's payloads.

    Raises PayloadsHidden, or Erased if nobody can read them any more.
    """
    if not reads(run_id):
        raise erased(run_id) if is_erased(run_id) else PayloadsHidden(run_id)


def status_of(detail: Mapping[str, Any], *excluding: str) -> dict[str, Any]:
    return {name: value for name, value in detail.items() if name in _STATUS or name in excluding}


def is_open(kind: str) -> bool:
    """Return whether everybody who sees the run may read an event's payload."""
    return kind in SAID_OF_ACTS


__all__ = ["ERASED", "HIDDEN", "WHO_GIVES", "WORDS", "PayloadsHidden", "is_open", "must_read", "reads", "status_of"]
