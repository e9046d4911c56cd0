"""Errors of the engine: what tools raise, what nodes see, and what stops a run."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

from ledger.errors import DurableAgentsError
from ledger.redacted import masked_text
from ledger.scrubbing import scrubbed_error
from runs.engine.canonical import printable


def describe_error(error: BaseException, most: int = 500) -> str:
    """Return an error's type and text, without the values of secrets and keys."""
    return str(printable(masked_text(scrubbed_error(f"{type(error).__name__}: {error}"))[:most]))


def traceback_of(error: BaseException) -> str:
    """Return an error's traceback, without the values of secrets and keys."""
    return str(printable(masked_text(scrubbed_error("".join(traceback.format_exception(error))))[-8000:]))


# --- raised by tools --------------------------------------------------------------------------------------------------


class ToolError(Exception):
    """Base of the exceptions with which a tool reports what happened to its call."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Passing(ToolError):
    """A transient error. The call is retried if the replay class allows it, after `retry_after` seconds if given."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class NotSent(Passing):
    """Raised by a tool: no byte of the call reached the upstream system. The call is retried whatever its replay class
    is. `message` tells what happened; `retry_after` is the delay in seconds that the upstream system requested, if
    any."""


class NotBegun(NotSent):
    """Nothing was sent, for a reason within this process. The upstream system may be healthy."""


class TransportError(Passing):
    """Raised by a tool: no answer arrived, or none that settles the outcome.

    Keyed and pure calls are repeated; an unsafe call's outcome is unknown. `message` tells what happened; `retry_after`
    is the delay in seconds that the upstream system requested, if any.
    """


class NotServed(Passing):
    """The model's provider did not serve the request. It costs nothing and is retried as in any outage."""


class BusinessFailure(ToolError):
    """Raised by a tool: the upstream system definitely refused. A node gets `ToolFailure`, a model gets the text.

    `message` is for people, `code` for programs (default: *refused*), `details` any plain data that the node may need.
    """

    def __init__(self, message: str, *, code: str = "refused", details: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.details = details


class KeyRejected(ToolError):
    """Raised by a tool: the upstream system rejected the call's key.

    The key was used with another body, has expired or is unknown there, so an earlier try may have had an effect. This
    is not a refusal: the outcome is unknown, and a person settles it. `message` is the upstream system's message,
    `details` any plain data that helps to settle it.
    """

    def __init__(self, message: str, *, details: Any = None) -> None:
        super().__init__(message)
        self.details = details


class BadAnswer(Exception):
    """A tool returned something that it didn't declare, or that can't be recorded."""


class Refused(Exception):
    """Raised by an agent's message, or by its `check`: the request is refused and changes nothing.

    `message` tells the sender why; `code` is for programs (default: *refused*).
    """

    def __init__(self, message: str, *, code: str = "refused") -> None:
        super().__init__(message)
        self.message, self.code = message, code


POLICY_DENIED = "policy_denied"  # error code of a call that a policy forbids

# --- seen by nodes ----------------------------------------------------------------------------------------------------


class ToolFailure(Exception):
    """Raised in a node: a call of `tool` definitely failed. `code`, `message` and `details` are from the tool."""

    def __init__(self, tool: str, code: str, message: str, details: Any = None) -> None:
        super().__init__(f"{tool}: {message}")
        self.tool, self.code, self.message, self.details = tool, code, message, details


class PolicyDenied(ToolFailure):
    """Raised in a node: a policy forbids the call of `tool`, so nothing was sent.

    `policy` and `version` identify the policy, and `rule` is its text (the error's `message`); the `code` is
    *policy_denied*.
    """

    def __init__(self, tool: str, policy: str, version: int, rule: str) -> None:
        super().__init__(tool, POLICY_DENIED, rule)
        self.policy, self.version = policy, version


class ModelFailure(Exception):
    """Raised in a node: the provider refused the request permanently, or the model kept giving unusable answers.

    `code` is for programs, `message` for people.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class ContentRefused(Exception):
    """Raised in a node: a hook withheld content.

    `source` tells where the content came from, `to` is its destination, `hook` the hook (name@version), and `reason`
    its reason.
    """

    def __init__(self, source: str, to: str, hook: str, reason: str) -> None:
        super().__init__(f"{hook} withheld content ({source} to {to}): {reason}")
        self.source, self.to, self.hook, self.reason = source, to, hook, reason


class Rejected(Exception):
    """Raised in a node: an approval was denied, by a person or by its deadline.

    `queue` is the queue that was asked, `reason` the recorded justification, `by` the person who decided, and `verdict`
    is *rejected* or *expired*.
    """

    def __init__(self, queue: str, reason: str, by: str, verdict: str) -> None:
        super().__init__(f"{queue}: {verdict} by {by}: {reason}")
        self.queue, self.reason, self.by, self.verdict = queue, reason, by, verdict


class Expired(Rejected):
    """Raised in a node: nobody decided about an approval before its deadline.

    `queue`, `reason`, `by` and `verdict` are as in `Rejected`.
    """


class TimedOut(Exception):
    """Raised in a node: a signal, message or person's answer (`what`) did not arrive before the deadline."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} did not arrive before the deadline")
        self.what = what


class BadSignal(Exception):
    """Raised in a node: the `payload` of the signal `name` doesn't fit; `problem` tells why.

    The signal is consumed; the node may wait for the next one.
    """

    def __init__(self, name: str, problem: str, payload: Any) -> None:
        super().__init__(f"signal {name}: {problem}")
        self.name, self.problem, self.payload = name, problem, payload


class Failure(Exception):
    """Raised by a node to end the run as failed: `message` is for people, `code` for programs (default: *failed*)."""

    def __init__(self, message: str, *, code: str = "failed") -> None:
        super().__init__(message)
        self.message, self.code = message, code


class ChildFailure(Exception):
    """Raised in a node: a child run that it started was not successful.

    `agent` and `child` identify it, `state` is its end state (*failed*, *cancelled*; *completed* if its output doesn't
    fit), `code` and `message` tell why.
    """

    def __init__(self, agent: str, child: str, state: str, code: str, message: str) -> None:
        super().__init__(f"{agent} {state}: {message or code}")
        self.agent, self.child, self.state, self.code, self.message = agent, child, state, code, message


class MisusedContext(RuntimeError):
    """A journaled call was made from another task, after the visit's end, or for an undeclared tool.

    Nothing was sent.
    """


# --- raised when a run is started or an agent defined -----------------------------------------------------------------


class DefinitionError(DurableAgentsError):
    """A declaration of an agent or tool is invalid.

    It is raised when the agent or tool is registered, not when a run executes.
    """

    status, code, title = 500, "definition-error", "Invalid agent or tool definition"


class UnknownAgent(DurableAgentsError):
    """There is no agent of this name."""

    status, code, title = 422, "unknown-agent", "No such agent"

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(
            f"There is no agent {name[:80]!r}. Known agents: {', '.join(known) or 'none'}.",
            errors=[{"field": "agent", "problem": "unknown agent", "fix": f"one of {', '.join(known)}"}],
        )


class UnknownVersion(DurableAgentsError):
    """The agent has no such version."""

    status, code, title = 422, "unknown-version", "No such agent version"

    def __init__(self, name: str, version: str, known: list[str]) -> None:
        super().__init__(
            f"Agent {name!r} has no version {version[:40]!r}. Known versions: {', '.join(known)}.",
            errors=[{"field": "agent", "problem": "unknown version", "fix": f"one of {', '.join(known)}"}],
        )


# --- raised by a journal ----------------------------------------------------------------------------------------------


class ApprovalMissing(Exception):
    """The grant that the intent named doesn't exist, was already used, has expired, or is for other bytes.

    Nothing was written.
    """


class ApprovalExpired(ApprovalMissing):
    """The grant expired, or its approval was revoked. Nothing was written.

    If it was revoked, `told` contains the ids of the `approval` and of its standing `grant`.
    """

    def __init__(self, problem: str, fields: Mapping[str, Any] | None = None) -> None:
        super().__init__(problem)
        self.told = fields or {}


class NotAsked(Exception):
    """The queue of a question was closed or removed. Nothing was written. `told` contains the queue and its state."""

    def __init__(self, problem: str, fields: Mapping[str, Any]) -> None:
        super().__init__(problem)
        self.told = dict(fields)


class PoliciesChanged(ApprovalMissing):
    """The intent was checked against outdated policies. Nothing was written, and the call must be checked again."""


class BudgetShort(Exception):
    """The intent needs more than the run's budget allows. Nothing was written."""


class SharedBudgetShort(Exception):
    """A shared budget has no room, or other calls are waiting for it. Nothing was written.

    `detail` has its key (`pool`), its name, the resource, the amount wanted, and when the budget refills.
    """

    def __init__(self, problem: str, detail: Mapping[str, Any]) -> None:
        super().__init__(problem)
        self.detail = dict(detail)


class RunHalted(Exception):
    """A halt covers the intent. Nothing was written.

    `key` names what is halted, such as tool:charge; empty for the whole run.
    """

    def __init__(self, problem: str, key: str) -> None:
        super().__init__(problem)
        self.key = key


class SharedBudgetUnpriced(Exception):
    """A shared budget counts dollars, but the model has no price. Nothing was written."""

    def __init__(self, problem: str, model: str) -> None:
        super().__init__(problem)
        self.model = model


class JournalBroken(Exception):
    """The stored journal can't be trusted or doesn't fit this code. Nothing executes until an operator has acted."""

    def __init__(self, problem: str, reason: str = "broken_journal") -> None:
        super().__init__(problem)
        self.reason = reason


# Errors of a refused intent: nothing was written.
INTENT_REFUSED = (ApprovalMissing, BudgetShort, NotAsked, SharedBudgetShort, SharedBudgetUnpriced, RunHalted)
