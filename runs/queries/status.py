"""A run's status: its state, the reason, since when, who must act, and the allowed actions.
Lists, pages, the API and commands all use this module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args
from uuid import UUID

from pydantic import Field

from ledger.web.roles import OPERATOR
from ledger.web.shapes import Shape
from runs import features
from runs.engine.errors import UnknownAgent, UnknownVersion
from runs.fleet.agent_versions import is_only_drained
from runs.journal.asked.queues import QUEUES
from runs.models import ENDED, WAITING, Run, State, Wait
from runs.queries import progress
from runs.queries.display import detail_text, name_of
from runs.queries.halts import halt_of
from runs.queries.run_facts import RunFacts, read_facts
from runs.queries.sentences import SENTENCES, Sentence, unserved
from runs.services import authority, questions
from runs.services.allowed import why_not
from runs.services.messages.sending import agent_of

Group = Literal["running", "waiting", "paused", "completed", "failed", "cancelled"]
# A closed set, which includes the reasons that features give.
Reason = Literal[
    "completed",
    "renewed",
    "handed_off",
    "failed",
    "cancelled",
    "damaged",
    "halted",
    "paused",
    "pausing",
    "cancelling",
    "budget",
    "unknown_outcome",
    "stopped",
    "approval",
    "question",
    "callback",
    "signal",
    "message",
    "child",
    "pool",
    "limit",
    "breaker",
    "retry_timer",
    "timer",
    "not_due",
    "behind_key",
    "no_worker",
    "no_version",
    "draining",
    "no_key",
    "queued",
    "driven",
    "undoing",
]
REASONS: tuple[str, ...] = get_args(Reason)
# Actions, in the order in which they are offered.
ACTIONS = ("pause", "resume", "cancel", "retry", "reconcile", "budget", "models", "priority", "requeue")
# Actions on open waits, which follow these.
_OF_OPEN: Mapping[str, str] = {Wait.Kind.INPUT: "answer", Wait.Kind.SIGNAL: "signal", Wait.Kind.MESSAGE: "message"}
DAMAGED_JOURNAL = "damaged_journal"


class Who(Shape):
    """The people or systems that must act before the run continues."""

    kind: Literal["nobody", "system", "outside", "people"] = Field(
        description="nobody: it continues by itself, or has ended. outside: an external system must call back "
        "or send something."
    )
    roles: list[str] = Field(description="Roles, one of which the people must have.")
    queue: str = Field(description="Queue that the run waits at; empty if there is none.")
    name: str = Field(description="The question. Untrusted text if an agent wrote it.")
    but: str = Field(
        description="Person who gave the first of two verdicts, so that another must give the second; empty if none.",
    )


def people(*roles: str, queue: str = "", name: str = "", but: str = "") -> Who:
    return Who(kind="people", roles=list(roles), queue=queue, name=name, but=but)


NOBODY, SYSTEM, OUTSIDE = (
    Who(kind="nobody", roles=[], queue="", name="", but=""),
    Who(kind="system", roles=[], queue="", name="", but=""),
    Who(kind="outside", roles=[], queue="", name="", but=""),
)
OPERATORS = people(OPERATOR)


class RunStatus(Shape):
    """The activity of a run, or the reason why it does not continue."""

    state: State = Field(description="State of the run.")
    reason: Reason = Field(description="Stable code of the reason.")
    sentence: str = Field(description="The reason in one sentence.")
    since: datetime | None = Field(description="Time since which it applies; null if unknown.")
    until: datetime | None = Field(description="Time when it ends by itself; null if never or unknown.")
    who: Who = Field(description="Who must act.")
    actions: list[str] = Field(
        description="Actions that this state allows to those with the permission: see `GET /api/v1/runs/{id}/why`."
    )


@dataclass(frozen=True, kw_only=True)
class FeatureReason:
    """A reason given by a feature, which replaces the core's own reason."""

    reason: Reason
    sentence: Sentence
    who: Who
    since: datetime | None = None
    until: datetime | None = None


def status_of(facts: RunFacts) -> RunStatus:
    """Return the status of a run."""
    found = _by_feature(facts)
    if found is None:
        reason = own_reason(facts)
        since, until = _times(reason, facts)
        sentence = SENTENCES[reason](facts)
        found = FeatureReason(reason=reason, sentence=sentence, who=_who(reason, facts), since=since, until=until)
    is_halted = halt_of(facts.head) is not None and facts.run.state not in ENDED  # because a halt defers deadlines
    return RunStatus.of(
        None,
        state=facts.run.state,
        reason=found.reason,
        sentence=str(found.sentence),
        since=found.since,
        until=None if is_halted else found.until,
        who=found.who,
        actions=[
            *(each for each in ACTIONS if _is_possible(each, facts)),
            *dict.fromkeys(_OF_OPEN[each.kind] for each in facts.waits if each.kind in _OF_OPEN),
        ],
    )


def reason_of(facts: RunFacts) -> Reason:
    """Return only the reason of the status, which costs no query."""
    found = _by_feature(facts)
    return own_reason(facts) if found is None else found.reason


def sentence_of(facts: RunFacts) -> Sentence:
    """Return only the sentence of the status."""
    found = _by_feature(facts)
    return SENTENCES[own_reason(facts)](facts) if found is None else found.sentence


def notes_of(facts: RunFacts) -> list[Sentence]:
    """Return further sentences about the status."""
    notes = (unserved, *features.parts_of_all(lambda f: f.status_notes))
    return [] if facts.run.state in ENDED else [sentence for note in notes if (sentence := note(facts)) is not None]


def group_of(state: str) -> Group:
    """Return the group of a state."""
    if state in WAITING:
        return "waiting"
    if state in (State.PENDING, State.RUNNING, State.COMPENSATING):
        return "running"
    return str(state)  # type: ignore[return-value]  # the others are named as the state


def has_action(action: str, run: Run) -> bool:
    """Return whether the action exists for the run.
    An agent without models has none to choose; an unknown agent may have some."""
    if action != authority.MODELS:
        return True
    try:
        return bool(agent_of(run).assistants)
    except (UnknownAgent, UnknownVersion):
        return True


def _is_possible(action: str, facts: RunFacts) -> bool:
    is_whole = facts.head is not None and facts.run.state in State.values
    return is_whole and has_action(action, facts.run) and why_not(action, facts.stand) is None


def _by_feature(facts: RunFacts) -> FeatureReason | None:
    if facts.run.state in ENDED:
        return None
    return next((one for each in features.parts_of_all(lambda f: f.status_reasons) if (one := each(facts))), None)


# --- the reason -------------------------------------------------------------------------------------------------------

_OF_ENDED: Mapping[str, Reason] = {
    State.COMPLETED: "completed",
    State.FAILED: "failed",
    State.CANCELLED: "cancelled",
}
_OF_WAIT: Mapping[str, Reason] = {
    Wait.Kind.APPROVAL: "approval",
    Wait.Kind.INPUT: "question",
    Wait.Kind.WEBHOOK: "callback",
    Wait.Kind.SIGNAL: "signal",
    Wait.Kind.MESSAGE: "message",
    Wait.Kind.CHILD: "child",
    Wait.Kind.POOL: "pool",
    Wait.Kind.RECONCILE: "unknown_outcome",
    Wait.Kind.OPERATOR: "stopped",
    Wait.Kind.BUDGET: "budget",
}


def own_reason(facts: RunFacts) -> Reason:
    """Return the reason that follows from the run's own rows and its workers, without features."""
    run = facts.run
    if run.state not in State.values or (facts.head is None and run.state not in ENDED):
        return "damaged"
    return _blocked(facts) if facts.blocked else reason_by_state(facts)


def reason_by_state(facts: RunFacts) -> Reason:
    """Return the reason that follows from state and waits, even for a run that no worker drives now."""
    run, wait, head = facts.run, facts.wait, facts.head
    if run.state in ENDED:
        return _of_ended(run)
    if run.state == State.WAITING_HUMAN and wait is not None and wait.kind in (Wait.Kind.RECONCILE, Wait.Kind.OPERATOR):
        return reason_of_wait(wait)
    if run.state == State.PAUSED:
        is_at_cap = not run.is_undoing and any(each.kind == Wait.Kind.BUDGET for each in facts.waits)
        return "budget" if is_at_cap else "paused"
    if head is not None and run.state != State.PENDING and (head.is_cancel_requested or head.is_pause_requested):
        return "cancelling" if head.is_cancel_requested else "pausing"
    if run.state == State.PENDING and progress.is_behind(run):
        return "behind_key"
    if progress.is_early(run):
        return "not_due"
    if run.state == State.COMPENSATING:
        return "undoing"
    if run.state in WAITING:
        # A run that waits for nothing. The sweeper stops such a run for an operator.
        return "damaged" if wait is None else reason_of_wait(wait)
    return "driven" if run.owner is not None and run.state == State.RUNNING else "queued"


def _of_ended(run: Run) -> Reason:
    if run.state == State.COMPLETED and run.goes_on_as is not None:
        return "renewed" if run.goes_on_by == "renewal" else "handed_off"
    return _OF_ENDED[run.state]


def reason_of_wait(wait: Wait) -> Reason:
    """Return the reason that a wait gives its run."""
    if wait.kind == Wait.Kind.OPERATOR and detail_text(wait, "reason") == DAMAGED_JOURNAL:
        return "damaged"
    if wait.kind == Wait.Kind.TIMER:
        return "retry_timer" if isinstance(wait.detail, dict) and wait.detail.get("retry") else "timer"
    return _OF_WAIT.get(str(wait.kind), "damaged")


def _blocked(facts: RunFacts) -> Reason:
    if facts.blocked == facts.missing_key:
        return "no_key"
    if is_only_drained(facts.run, facts.served or frozenset()):
        return "draining"
    return "no_version" if facts.served else "no_worker"


def _times(reason: str, facts: RunFacts) -> tuple[datetime | None, datetime | None]:
    run, wait = facts.run, facts.wait
    if run.state in ENDED:
        return run.ended_at, None
    if reason == "not_due":
        return run.created_at, run.ready_at
    if reason in ("queued", "no_worker", "no_version", "draining", "no_key"):
        return run.ready_at, None
    if wait is None or reason in ("paused", "pausing", "cancelling", "undoing", "driven"):
        return run.updated_at, None
    return wait.opened_at, None if detail_text(wait, "on_timeout") == "remind" else wait.deadline


# --- who must act -----------------------------------------------------------------------------------------------------

# For all other reasons the run continues by itself.
_WHO: Mapping[str, Who] = {
    **dict.fromkeys(("completed", "renewed", "handed_off", "cancelled", "driven"), NOBODY),
    **dict.fromkeys(("callback", "signal", "message"), OUTSIDE),
    **dict.fromkeys(("failed", "damaged", "halted", "unknown_outcome", "stopped", "paused"), OPERATORS),
    **dict.fromkeys(("breaker", "no_worker", "no_version", "draining", "no_key"), OPERATORS),
}


def _who(reason: str, facts: RunFacts) -> Who:
    wait = facts.wait
    if reason == "approval" and wait is not None:
        named = dict.fromkeys(role for queue in facts.asked if (role := QUEUES.get(queue)))
        return people(*named, queue=", ".join(facts.asked), name=name_of(wait))
    if reason == "question" and wait is not None:
        return people(*questions.roles_for(wait), name=name_of(wait))
    if reason == "failed" and why_not("retry", facts.stand) is not None:
        return NOBODY
    if reason == "budget":
        role = authority.raises_budgets()
        return people(OPERATOR, *([role] if role else []), queue=detail_text(facts.wait, "queue"))
    if reason == "unknown_outcome" and facts.proposal is not None:
        return people(OPERATOR, but=facts.proposal.by)
    return _WHO.get(reason, SYSTEM)


# --- what follows an action -------------------------------------------------------------------------------------------

_NEEDS: Mapping[str, str] = {
    "paused": "The run is paused. Resume it to continue.",
    "pausing": "The run is being paused. Resume it to continue.",
    "budget": "The run has used up its budget. Raise it to continue.",
    "stopped": "The run is stopped. An operator must examine it.",
    "damaged": "The run is stopped. An operator must examine it.",
    "cancelling": "The run is being cancelled.",
}
_HALTED = "The run is halted. The run continues when the halt is lifted."


def what_stops(run_id: UUID) -> str:
    """Return what a stopped run needs in order to continue; "" if it isn't stopped."""
    facts = read_facts(run_id)
    is_halted = facts.run.state not in ENDED and halt_of(facts.head) is not None
    return _NEEDS.get(reason_by_state(facts), _HALTED if is_halted else "")


def what_follows(run_id: UUID) -> str:
    return what_stops(run_id) or "The run continues."
