"""The budget of a new run: requested caps, else the defaults, within the limit of the API key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from pydantic import ValidationError

from ledger import events as e
from ledger.actors import Actor
from ledger.clock import database_now
from ledger.errors import Forbidden, InvalidInput
from ledger.models import Head
from ledger.protected import ChangedOutside, wrong_in
from ledger.web import misfit
from runs.engine.agents import Agent
from runs.engine.budget import NO_BUDGET, Budget, Caps
from runs.models import BudgetDefault, Run
from runs.protected import BUDGET_DEFAULT
from runs.services.budgets import prices

# The default budgets that apply, and proof of rows that were deleted outside the application.
_DEFAULTS = f"""
    SELECT t.id, t.agent, t.tag, t.budget, {BUDGET_DEFAULT.proof_sql("t")}::text AS proof
    FROM runs_budgetdefault t WHERE t.agent = ANY(%s) OR t.tag = ANY(%s)
    UNION ALL SELECT 0, '', '', '{{}}', gone.proof::text FROM ({BUDGET_DEFAULT.gone_sql()}) gone"""


def budget_for(agent: Agent, requested: Budget | None, *, tags: Iterable[str], most: Budget | None = None) -> Budget:
    """Return a new run's budget.
    Raises InvalidInput for one above the key's limit or a dollar cap without a price, and the errors of
    `defaults_for`."""
    wanted, most = requested or NO_BUDGET, most or NO_BUDGET
    check_limit(wanted, most)
    budget = wanted.filled_from(defaults_for(agent, tags)).tightest(most)
    if budget.usd is not None:
        prices.check_priced(agent, "" if wanted.usd is not None else ", as the defaults give it,")
    return budget


def most_of(key: object) -> Budget | None:
    """Return an API key's limit; None for sessions and unlimited keys. Raises KeyBudgetUnreadable."""
    given = getattr(key, "budget", None)
    if given is None:
        return None
    try:
        return Budget.model_validate(given)
    except ValidationError:
        raise KeyBudgetUnreadable() from None


class KeyBudgetUnreadable(Forbidden):
    """The stored limit of an API key is damaged."""

    def __init__(self) -> None:
        super().__init__(
            "This key's budget limit can't be read, so it can't start runs. Ask an administrator for another key."
        )


def defaults_for(agent: Agent, tags: Iterable[str] = ()) -> Budget:
    """Return the smallest caps among the agent's code and the default budgets for the agent and the tags.
    Raises InvalidInput for an unreadable row, ChangedOutside for one added, changed or deleted outside the application.
    """
    found = agent.budget or NO_BUDGET
    rows: Iterable[Any] = BudgetDefault.objects.raw(_DEFAULTS, [[agent.name, agent.graph_id], list(_names(tags))])
    for row in rows:
        if wrong := wrong_in(row.proof):
            raise ChangedOutside(*wrong)
        found = found.tightest(_checked(row))
    return found


@dataclass(frozen=True, slots=True)
class Outlook:
    """An agent's default budget for a run without tags, and why a start is refused ("" if it isn't)."""

    defaults: Budget
    hindrance: str = ""


def outlook(agent: Agent) -> Outlook:
    """Return the default budget of an agent, and why a start of it would be refused, for pages."""
    try:
        defaults = defaults_for(agent)
    except (InvalidInput, ChangedOutside) as error:
        return Outlook(agent.budget or NO_BUDGET, error.detail)
    try:
        if defaults.usd is not None:
            prices.check_priced(agent, ", as the defaults give it,")
    except InvalidInput as error:
        return Outlook(defaults, f"{error.detail} No run starts until an administrator sets it under Prices.")
    return Outlook(defaults)


def _names(tags: Iterable[str]) -> list[str]:
    """Return the names with which defaults may refer to these tags.
    The names are list entries, or an object's names and name:value pairs."""
    if isinstance(tags, dict):
        return [*tags, *(f"{name}:{value}" for name, value in tags.items())]
    return list(tags)


def _checked(row: BudgetDefault) -> Budget:
    try:
        return Budget.model_validate(row.budget)
    except ValidationError as error:
        raise InvalidInput(
            f"The default budget for {row} can't be read, so no run can start with it.",
            errors=[
                {
                    "field": misfit.path(["default", *problem["loc"]]),
                    "problem": misfit.problem(problem),
                    "fix": "an administrator corrects it under Budget defaults",
                }
                for problem in error.errors(include_url=False, include_input=False)
            ],
        ) from error


def check_limit(wanted: Budget, most: Budget) -> None:
    """Check that a budget is within the key's limit. Raises InvalidInput."""
    errors = [
        {
            "field": f"budget.{name}",
            "problem": f"{given} is more than this key may grant ({getattr(most, name)})",
            "fix": "ask for less, or use a key that may give more",
        }
        for name, given in wanted.stated().items()
        if getattr(most, name) is not None and given > getattr(most, name)
    ]
    if errors:
        raise InvalidInput(f"The budget is more than this key may grant: {errors[0]['field']}.", errors=errors)


@dataclass(frozen=True, slots=True)
class Limits:
    """A new run's caps and time limit, and the event that records these limits, if there are any."""

    caps: Caps
    time_up_at: datetime | None
    events: list[e.Event]

    @classmethod
    def of(cls, budget: Budget, by: Actor, *, not_before: datetime | None = None) -> Self:
        """Return the limits of a budget. Its time counts from now, or from `not_before` if that is later."""
        caps, until = budget.caps(), None
        if budget.time is not None:
            now = database_now()
            until = max(now, not_before or now) + budget.time
        event = e.BudgetSet(by=by.ref, caps=caps.stated(), until="" if until is None else until.isoformat())
        return cls(caps, until, [event] if caps.stated() or until else [])

    def store(self, run: Run, head: Head) -> None:
        """Store the limits in the run's rows, in the transaction that creates it."""
        if self.time_up_at is not None:
            run.time_up_at = self.time_up_at
            Run.objects.filter(pk=run.pk).update(time_up_at=self.time_up_at)
        if stated := self.caps.stated():
            for name, most in stated.items():
                setattr(head, f"cap_{name}", most)
            Head.objects.filter(pk=head.pk).update(**{f"cap_{name}": most for name, most in stated.items()})
