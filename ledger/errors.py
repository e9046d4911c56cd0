"""The base class of every domain error, and the errors that any app may raise.

An error owns its message; callers pass data. `status` is the HTTP status, `code` the last part of the problem type URI.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID


class DurableAgentsError(Exception):
    """Base of all errors that a user can cause or see. `extra` is added to the problem document."""

    status = 500
    code = "error"
    title = "Error"

    def __init__(self, detail: str, **extra: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.extra = extra


class NotFound(DurableAgentsError):
    """No such object, or the caller may not see it; an invalid id gets the same response."""

    status, code, title = 404, "not-found", "Not found"

    def __init__(self, what: str, which: object) -> None:
        super().__init__(f"No {what} {str(which)[:80]!r} exists, or you don't have access to it.")


class RecordDamaged(DurableAgentsError):
    """Rows of a run's record that the operation needs are missing, or forged rows block it."""

    status, code, title = 409, "record-damaged", "Damaged record"

    def __init__(self, run_id: object, what: str, *, is_forged: bool = False) -> None:
        has, mended = ("has", "removed it") if is_forged else ("lacks", "restored it")
        super().__init__(
            f"The record of run {run_id} {has} {what}: "
            f"it can't be changed until the database's owner has {mended}. "
            f"`manage.py ledger verify {run_id}` lists the problems."
        )


class NewerRun(DurableAgentsError):
    """The run was started by newer code than this process has; only a process with that code may change it."""

    status, code, title = 503, "newer-run", "Upgrade under way"

    def __init__(self, run_id: UUID) -> None:
        super().__init__(
            f"Run {run_id} was started by a newer release than this process has. "
            "Try again in a moment, when this process has been upgraded; nothing was changed."
        )


class Forbidden(DurableAgentsError):
    """None of the caller's roles allows this, or the caller would decide their own request."""

    status, code, title = 403, "forbidden", "Not allowed"


# Display names of acts whose recorded name isn't self-explanatory.
_IN_WORDS = {
    "absence": "Recording an absence",
    "absence_end": "Ending an absence",
    "calendar": "Setting a calendar",
    "calendar_remove": "Removing a calendar",
    "channel": "Adding a channel",
    "channel_change": "Changing a channel",
    "channel_end": "Ending a channel",
    "declare_dead": "Declaring a process dead",
    "delegate": "Delegating a case",
    "delegate_end": "Ending a delegation",
    "deputy": "Naming a deputy",
    "deputy_revoke": "Ending a deputyship",
    "answer": "Answering a question",
    "erase": "Erasing the content of a run",
    "inquiry": "Asking about a case",
    "inquiry_withdraw": "Withdrawing a question",
    "notice_replay": "Sending a notification again",
    "limit": "Setting a limit",
    "policy": "Creating a policy",
    "policy_change": "Changing a policy",
    "policy_restore": "Confirming the policies in force",
    "policy_retire": "Retiring a policy",
    "pool": "Creating a shared budget",
    "pool_change": "Changing a shared budget",
    "pool_off": "Switching off a shared budget",
    "queue": "Adding a queue",
    "queue_change": "Changing a queue",
    "queue_close": "Closing a queue",
    "queue_grants": "Setting limits of standing approvals",
    "queue_limit": "Setting a limit",
    "queue_limit_lift": "Lifting a limit",
    "queue_open": "Opening a queue",
    "queue_proof": "Setting the proof that approvals require",
    "queue_reasons": "Setting the reasons to choose from",
    "queue_remove": "Removing a queue",
    "queue_timing": "Setting deadlines",
    "standing_grant": "Giving a standing approval",
    "standing_revoke": "Revoking a standing approval",
    "start_again": "Starting a run again",
    "webhook": "Creating a webhook",
    "webhook_change": "Changing a webhook",
    "webhook_end": "Ending a webhook",
    "webhook_pause": "Pausing a webhook",
    "webhook_replay": "Sending messages again",
    "webhook_resume": "Resuming a webhook",
    "webhook_secret": "Replacing a webhook's secret",
}


class JustificationRequired(DurableAgentsError):
    """The operation needs a reason."""

    status, code, title = 422, "justification-required", "Reason required"

    def __init__(self, action: str, problem: str = "is missing or blank", *, field: str = "justification") -> None:
        what, how = ("a reason", "Say why in") if field == "justification" else (f"your {field}", "Write")
        super().__init__(
            f"{_IN_WORDS.get(action) or action.replace('_', ' ').capitalize()} needs {what}. "
            f"{how} a sentence; it is recorded.",
            errors=[{"field": field, "problem": problem, "fix": f"give {what} of at least a few words"}],
        )


class IllegalTransition(DurableAgentsError):
    """The object's state does not allow this; for a run, `state` names it."""

    status, code, title = 409, "illegal-state", "The run's state does not allow this"

    def __init__(self, action: str, state: str, hint: str = "") -> None:
        super().__init__(f"The run is {state}: can't {action}.{' ' + hint if hint else ''}", state=state)


class StaleLease(DurableAgentsError):
    """A worker wrote with an epoch or lease that is no longer the run's. Nothing was written."""

    status, code, title = 409, "stale-lease", "Another worker has claimed this run"


class InvalidInput(DurableAgentsError):
    """The input is invalid: `errors` names each field, the problem and the fix."""

    status, code, title = 422, "invalid-input", "Invalid input"


class TooLarge(DurableAgentsError):
    """The request is larger than the limit."""

    status, code, title = 413, "too-large", "Too large"

    def __init__(self, what: str, most: int, **extra: Any) -> None:
        super().__init__(f"The {what} is larger than {most} bytes.", **extra)


class Busy(DurableAgentsError):
    """The server is at capacity. Nothing was done."""

    status, code, title = 503, "busy", "Busy"

    def __init__(self, what: str = "The server is at capacity") -> None:
        super().__init__(f"{what}. Nothing was done. Try again in a moment.")


def first_line(error: BaseException) -> str:
    """Return an error's message on one line, or its class if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


class Proposed(Exception):
    """Raised, though not an error, when a change waits for a second person (change_control.py).

    Each interface reports it in its own way.
    """

    def __init__(self, change: UUID) -> None:
        super().__init__(f"proposed as change {change}")
        self.change = change


class Moved(DurableAgentsError):
    """Someone else has changed the value since it was read; saving would overwrite their change unnoticed."""

    status, code, title = 409, "moved", "It was changed meanwhile"

    def __init__(self, what: str, whose: str = "") -> None:
        by = f" by {whose}" if whose else ""
        super().__init__(
            f"{what} was changed{by} meanwhile, so your change was not saved. Read the current value, then "
            "send your change again."
        )
