"""Budget waits of runs at a cap or out of time.
A run is paused at a cap by its worker. When its time is up, it is paused by the sweeper, with a function of this
module. A sufficient raise resumes the run unless it is also held; if nobody raises the budget before the deadline, the
run is cancelled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db import transaction

from ledger import events as e
from ledger.actors import SWEEPER, Actor
from ledger.clock import database_now
from ledger.errors import InvalidInput
from ledger.models import Head
from runs.engine.agents import registry
from runs.engine.budget import Budget, Caps
from runs.engine.errors import UnknownAgent, UnknownVersion
from runs.engine.journal import ATTENTION, WaitSpec
from runs.models import ENDED, Run, State, Wait
from runs.services import halted_time, related_runs
from runs.services.allowed import stand_of, why_not
from runs.services.budgets import prices
from runs.services.budgets.asked import TIME, budget_of, caps_of, check_seen, lacks, note, resource_of, time_lacking
from runs.services.budgets.starting import check_limit
from runs.services.command import (
    Act,
    end_unserved,
    held_by,
    journal,
    locked,
    open_wait,
    refusal,
    resolve,
    resolved,
    save,
    unpause,
)


@transaction.atomic
def set_budget(
    run_id: UUID,
    budget: Budget,
    *,
    by: Actor,
    justification: str,
    most: Budget | None = None,
    seen: Budget | None = None,
) -> Run:
    """Set the named caps; null removes a cap.
    A waiting run continues if that is enough. `most` is the caller's own limit, and `seen` the caps that the caller
    saw.
    Raises IllegalTransition for a run that has ended, InvalidInput, StaleBudget (the caps differ from `seen`),
    Forbidden, JustificationRequired, NotFound."""
    act = Act("budget", run_id, by=by, justification=justification)
    run, head = act.run, act.head
    act.must_be_allowed()
    _check_named(budget, "budget")
    _check_most(budget, most)
    related_runs.lock(run_id)
    budget_waits = list(run.waits.select_for_update().filter(kind=Wait.Kind.BUDGET, resolved_at__isnull=True))
    before = budget_of(run, head, budget_waits)
    if seen is not None:
        _check_named(seen, "if_caps")
        check_seen(seen, before)
    check_price(run, budget)
    check_time(run, budget, now=act.now)
    act.before["caps"] = before.model_dump(mode="json", exclude_none=True)
    was = caps_of(head).stated()
    _store(run, head, budget)
    now_set = e.BudgetSet(
        by=by.ref,
        caps=caps_of(head).stated(),
        until="" if run.time_up_at is None else run.time_up_at.isoformat(),
        payload=act.payload | {"before": was},
    )
    events: list[e.Event] = [
        now_set,
        *_settle(act, budget_waits, is_time_given="wall_seconds" in budget.model_fields_set),
    ]
    save(run, "time_up_at", now=act.now)
    still = [wait for wait in budget_waits if wait.resolved_at is None]
    after = budget_of(run, head, still).model_dump(mode="json", exclude_none=True)
    return act.done(*events, after={"caps": after})


@transaction.atomic
def raise_to(run_id: UUID, budget: Budget | Mapping[str, object], *, by: Actor, justification: str) -> Run:
    """Raise the named caps.
    Caps that are already higher, or not set, stay the same. Raises the errors of `to_raise` and `set_budget`."""
    wanted = budget if isinstance(budget, Budget) else Budget.model_validate(budget)
    head, run = locked(run_id, under=by)
    budget_waits = list(run.waits.filter(kind=Wait.Kind.BUDGET, resolved_at__isnull=True))
    return set_budget(run_id, to_raise(run, head, budget_waits, wanted), by=by, justification=justification)


def to_raise(run: Run, head: Head, budget_waits: Sequence[Wait], wanted: Budget) -> Budget:
    """Return the caps to set in order to raise them to `wanted`; also used by forecasts.
    Raises IllegalTransition if the state doesn't allow a raise, or if nothing would be raised."""
    condition = stand_of(run, pause_asked=head.is_pause_requested, cancel_asked=head.is_cancel_requested)
    if (hint := why_not("budget", condition)) is not None:
        raise refusal("budget", run, hint)
    caps = budget_of(run, head, budget_waits).stated()
    higher = {name: value for name, value in wanted.stated().items() if name in caps and value > caps[name]}
    if not higher:
        raise refusal("budget", run, "The run already has these caps.")
    return Budget.model_validate(higher)


def _store(run: Run, head: Head, budget: Budget) -> None:
    for name, cap in budget.caps().stated().items() | _lifted(budget):
        setattr(head, f"cap_{name}", cap)
    head.save(update_fields=[f"cap_{name}" for name in Caps.__slots__])
    if "wall_seconds" in budget.model_fields_set:
        run.time_up_at = None if budget.time is None else run.counts_from + budget.time


def _settle(act: Act, budget_waits: list[Wait], *, is_time_given: bool) -> Iterator[e.Event]:
    """Settle the budget waits that the new caps satisfy, and update the others.
    If none is left, the run resumes."""
    run, head, is_enough = act.run, act.head, bool(budget_waits)
    for wait in budget_waits:
        lacking = lacks(run, head, wait, is_time_given=is_time_given, now=act.now)
        if lacking is None:
            resolve(wait, "raised", by=act.by.ref, now=act.now)
            yield resolved(wait, "raised", by=act.by.ref)
        else:
            is_enough = False
            note(wait, lacking)
    if is_enough and _stands_still(run, head) and held_by(run) is None:
        if related_runs.find_competing_run(run) is not None:
            return  # The run stays paused until a person may resume it.
        if run.state == State.PAUSED:
            unpause(run, head, now=act.now)
        else:
            act.flag(pause=False)  # The worker has not reached the step boundary yet.
        yield e.RunResumed(by="budget", state=str(run.state))


def _stands_still(run: Run, head: Head) -> bool:
    return run.state == State.PAUSED or head.is_pause_requested


def _check_named(budget: Budget, field: str) -> None:
    if not budget.model_fields_set:
        raise InvalidInput(
            "The budget does not name any cap. Name at least one.",
            errors=[{"field": field, "problem": "empty", "fix": "name a cap: usd, steps …"}],
        )


def _check_most(budget: Budget, most: Budget | None) -> None:
    """Check a raise against the limit of the caller's API key, as at the start.
    Raises InvalidInput. The key can't remove a cap that its limit contains."""
    if most is None:
        return
    check_limit(budget, most)
    lifted = [name for name in budget.model_fields_set if getattr(budget, name) is None]
    if held := [name for name in lifted if getattr(most, name) is not None]:
        raise InvalidInput(
            f"This key may not remove the cap {held[0]}.",
            errors=[
                {"field": f"budget.{name}", "problem": "lifted", "fix": f"give {getattr(most, name)} at most"}
                for name in held
            ],
        )


def _lifted(budget: Budget) -> set[tuple[str, None]]:
    names = {"usd": "usd_micro"}
    lifted = (name for name in budget.model_fields_set if getattr(budget, name) is None and name != "wall_seconds")
    return {(names.get(name, name), None) for name in lifted}


def check_price(run: Run, budget: Budget) -> None:
    """Check that a cap in dollars can be enforced. Raises InvalidInput."""
    if budget.usd is None:
        return
    try:
        agent = registry.find(run.graph_id)
    except (UnknownAgent, UnknownVersion):
        return  # The run's worker knows the agent, and begins no request without a price.
    prices.check_priced(agent)


def check_time(run: Run, budget: Budget, *, now: datetime) -> None:
    """Check that the time limit is in the future.
    Raises InvalidInput; the text is the same for all runs of a bulk action."""
    if budget.time is not None and run.counts_from + budget.time <= now:
        seconds = int((now - run.counts_from).total_seconds())
        raise InvalidInput(
            "The run has already taken longer than that. Set a longer time.",
            errors=[
                {"field": "budget.wall_seconds", "problem": "its time is up", "fix": f"more than {seconds} seconds"}
            ],
        )


# --- deadlines --------------------------------------------------------------------------------------------------------


def give_up(head: Head, run: Run, wait: Wait, now: datetime, by: Actor) -> None:
    """Cancel a run whose budget was not raised before the deadline."""
    payload = {"justification": "nobody raised the budget before the deadline", "resource": resource_of(wait)}
    end_unserved(head, run, wait, now, by, payload=payload)


@transaction.atomic
def time_is_up(run_id: UUID, *, by: Actor = SWEEPER) -> None:
    """Ask people whether a run may exceed its time limit.
    If a worker drives it, it stops at its next step."""
    head, run = locked(run_id, under=by)
    now = database_now()
    if run.state in ENDED or run.time_up_at is None or run.time_up_at > now or halted_time.put_off_time(run):
        return
    if run.waits.filter(kind=Wait.Kind.BUDGET, resolved_at__isnull=True).exists():
        return  # People are already being asked about another cap. Once that is raised, they are asked about the time.
    given = round((run.time_up_at - run.counts_from).total_seconds())
    run.time_up_at = None
    if head.is_cancel_requested:
        save(run, "time_up_at", now=now)  # The run ends anyway.
        return
    lacking = time_lacking(run, given, now=now)
    held = held_by(run) if run.state == State.PAUSED else None
    detail = {"queue": settings.DURABLEAGENTS.budget_queue, **lacking} | ({"held_by": held} if held else {})
    spec = WaitSpec(str(run_id), f"budget/{head.seq}", 0, "budget", 0, now + ATTENTION, detail)
    open_wait(run, spec, now=now)
    events: list[e.Event] = [
        e.BudgetExceeded(resource=TIME, most=given, used=lacking["used"], reserved=0, wanted=0),
        spec.opened(),
    ]
    if run.owner is not None:
        head.is_pause_requested = True
        head.save(update_fields=["is_pause_requested"])
    elif run.state not in (State.PAUSED, State.COMPENSATING):
        run.pause()
        run.is_woken, run.ready_at = run.ready_at is not None, None
        events.append(e.RunPaused(by="budget"))
    save(run, "time_up_at", "is_woken", "ready_at", now=now)
    journal(run_id, *events, by=by)
