"""Creates, changes and switches off shared budgets, each with an act record.

Only name and limit can change, so that charges stay valid. Locking the row of the meter also locks that of its
budget."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal

from django.contrib.auth import get_user_model
from django.db import DataError, IntegrityError, connection, transaction
from pydantic import Field

from durableagents.contrib.limits.models import BudgetMeter, SharedBudget
from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.change_control import NUMBER, two_person
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, Forbidden, InvalidInput, NotFound
from ledger.web.bodies import NoFlag, PlainZero
from ledger.web.roles import OPERATOR
from ledger.web.text_safety import is_hidden
from ledger.zones import zones
from runs.engine.agents import registry
from runs.engine.budget import A_MILLION, usd_of
from runs.engine.errors import UnknownAgent, UnknownVersion
from runs.models import Wait
from runs.services.bodies import SteerBody

MAX_BUDGETS = 200  # counts budgets that are not switched off
_DOLLARS = "usd"
# Acts and records keep the name "pool", since old records contain it.
_CREATE, _CHANGE, _OFF = "pool", "pool_change", "pool_off"
_WARN = "SELECT runs_pool_notice(m, 'warning') FROM runs_poolmeter m WHERE m.pool_id = %s"


# Dollars with up to six decimals, or a whole number of any other resource.
Limit = Annotated[
    Decimal, Field(strict=False, ge=0, le=10**15, decimal_places=6, allow_inf_nan=False), NoFlag, PlainZero
]
Name = Annotated[str, Field(min_length=1, max_length=100)]


class SharedBudgetBody(SteerBody):
    """A budget per period, shared by all calls in a scope. `whose` names the tag, agent, person or provider."""

    name: Name = Field(description="Name of the shared budget.")
    scope: Literal["all", "tag", "agent", "person", "provider"] = Field(description="Calls that it covers.")
    whose: Annotated[str, Field(max_length=200)] = Field(
        default="", description="Name of the tag, agent, person or provider; empty with `all`."
    )
    resource: Literal["usd", "tokens_in", "tokens_out", "model_calls", "tool_calls"] = Field(
        description="Resource that it limits."
    )
    limit: Limit = Field(description="Limit per period: US dollars, or a whole number of another resource.")
    period: Literal["day", "week", "month"] = Field(description="Length of a period.")
    zone: Annotated[str, Field(min_length=1, max_length=64)] = Field(
        default="UTC", description="IANA time zone in which periods start."
    )


class SharedBudgetChangeBody(SteerBody):
    """The fields to change.

    With `if_limit` (the limit as last read), nothing is changed if the limit differs by now."""

    name: Name | None = Field(default=None, description="New name.")
    limit: Limit | None = Field(default=None, description="New limit.")
    if_limit: Limit | None = Field(
        default=None, description="Limit as you last read it; refused with 409 if it has changed."
    )


class LimitHasChanged(DurableAgentsError):
    """The limit was changed since it was read."""

    status, code, title = 409, "shared-budget-changed", "The limit of the shared budget has changed"


class SharedBudgetIsOff(DurableAgentsError):
    """The shared budget was switched off, which is final."""

    status, code, title = 409, "illegal-state", "The shared budget is switched off"


def find(budget_id: int) -> SharedBudget:
    """Return a shared budget, even one that is switched off. Raises NotFound."""
    found = SharedBudget.objects.filter(pk=budget_id).first()
    if found is None:
        raise NotFound("shared budget", budget_id)
    return found


@two_person("limits", needs=OPERATOR, moving=frozenset({NUMBER, "made_at"}))
@transaction.atomic
def create(body: SharedBudgetBody, *, by: Actor) -> SharedBudget:
    """Create a shared budget, which counts calls that begin from now on.

    Raises InvalidInput by field, Forbidden, JustificationRequired."""
    why = _check_may(_CREATE, by, body.justification)
    errors = [*_wrong_text("name", body.name), *_wrong_scope(body), *_wrong_zone(body.zone)]
    errors += _wrong_limit(body.resource, body.limit)
    if errors:
        raise InvalidInput(f"Invalid shared budget: {errors[0]['field']} {errors[0]['problem']}.", errors=errors)
    if SharedBudget.objects.filter(off_at__isnull=True).count() >= MAX_BUDGETS:
        errors = [{"field": "name", "problem": f"there are {MAX_BUDGETS}", "fix": "switch one off first"}]
        raise InvalidInput(f"Limit reached: at most {MAX_BUDGETS} shared budgets. Switch one off first.", errors=errors)
    now, resource = database_now(), "usd_micro" if body.resource == _DOLLARS else body.resource
    budget = SharedBudget(
        name=body.name,
        scope=body.scope,
        of=_scope_key(body),
        resource=resource,
        period=body.period,
        zone=body.zone,
        set_by=by.ref,
        made_at=now,
    )
    _check_alone(budget)
    _store(budget)
    with connection.cursor() as cursor:
        cursor.execute("SELECT starts_at, ends_at FROM runs_pool_period(%s, %s, %s)", [budget.period, budget.zone, now])
        starts_at, ends_at = cursor.fetchone() or (now, now)
    BudgetMeter.objects.create(
        budget=budget,
        resource=resource,
        period=budget.period,
        zone=budget.zone,
        most=_amount(resource, body.limit),
        starts_at=starts_at,
        ends_at=ends_at,
    )
    return _record(_CREATE, budget, by=by, before={}, why=why)


@two_person("limits", needs=OPERATOR)
@transaction.atomic
def change(budget_id: int, body: SharedBudgetChangeBody, *, by: Actor) -> SharedBudget:
    """Rename a shared budget or set its limit, which may be below its use.

    Waiting calls are admitted as far as there is room.

    Raises InvalidInput, LimitHasChanged, SharedBudgetIsOff, NotFound, Forbidden, JustificationRequired."""
    why = _check_may(_CHANGE, by, body.justification)
    budget, meter = _lock(budget_id)
    before = snapshot(budget, meter)
    if body.name is None and body.limit is None:
        errors = [{"field": "limit", "problem": "is empty", "fix": "give a limit or a name"}]
        raise InvalidInput("The body changes nothing. Give a limit or a name.", errors=errors)
    name_of = _DOLLARS if budget.resource == SharedBudget.Resource.USD else str(budget.resource)
    errors = _wrong_text("name", body.name or budget.name)
    errors += [] if body.limit is None else _wrong_limit(name_of, body.limit)
    if errors:
        raise InvalidInput(f"Invalid shared budget: {errors[0]['field']} {errors[0]['problem']}.", errors=errors)
    if body.if_limit is not None and _amount(budget.resource, body.if_limit) != meter.most:
        raise LimitHasChanged(
            f"The limit is now {amount_for_people(budget.resource, meter.most)}. Read the shared budget again."
        )
    budget.name = body.name or budget.name
    meter.most = meter.most if body.limit is None else _amount(budget.resource, body.limit)
    _check_alone(budget)
    _store(budget, "name")
    meter.gate_at = _gate(budget, meter)
    is_nearly_gone = meter.most > 0 and (meter.used + meter.reserved) * 5 >= meter.most * 4
    is_to_warn = is_nearly_gone and meter.warned_at is None
    if is_to_warn:
        meter.warned_at = database_now()
    meter.save(update_fields=["most", "gate_at", "warned_at"])
    if is_to_warn:
        # The notice is given once per period, as when a call reaches the threshold.
        with connection.cursor() as cursor:
            cursor.execute(_WARN, [budget.pk])
    return _record(_CHANGE, budget, by=by, before=before, why=why)


@two_person("limits", needs=OPERATOR, moving=frozenset({"off_at"}))
@transaction.atomic
def switch_off(budget_id: int, *, by: Actor, justification: str) -> SharedBudget:
    """Switch a shared budget off permanently. Calls in progress are still settled, and waiting calls are admitted.

    Raises what `change` raises."""
    why = _check_may(_OFF, by, justification)
    budget, meter = _lock(budget_id)
    before = snapshot(budget, meter)
    budget.off_at, meter.is_on = database_now(), False
    budget.save(update_fields=["off_at"])
    meter.gate_at = _gate(budget, meter)
    meter.save(update_fields=["is_on", "gate_at"])
    return _record(_OFF, budget, by=by, before=before, why=why)


def amount_for_people(resource: str, amount: int) -> str | int:
    """Return an amount for display: dollars as text, anything else as a number."""
    return usd_of(amount) if resource == SharedBudget.Resource.USD else amount


def snapshot(budget: SharedBudget, meter: BudgetMeter) -> dict[str, Any]:
    """Return the shared budget's state for act records."""
    fields = {name: getattr(budget, name) for name in ("name", "scope", "of", "resource", "period", "zone")}
    return fields | {
        "most": meter.most,
        "made_at": budget.made_at.isoformat(),
        "off_at": None if budget.off_at is None else budget.off_at.isoformat(),
    }


def subject_of(budget: SharedBudget) -> str:
    """Return the subject of the shared budget's act records."""
    return f"pool {budget.pk}"


def _record(action: str, budget: SharedBudget, *, by: Actor, before: dict[str, Any], why: str) -> SharedBudget:
    budget.meter = BudgetMeter.objects.get(budget=budget)
    after = snapshot(budget, budget.meter)
    acted(action, by=by, subject=subject_of(budget), justification=why, before=before, after=after)
    return budget


def _check_may(action: str, by: Actor, justification: str) -> str:
    if by.role != OPERATOR and by.auth != "shell":
        raise Forbidden("Only an operator may change shared budgets.")
    return justified(action, justification)


def _lock(budget_id: int) -> tuple[SharedBudget, BudgetMeter]:
    """Lock and return the budget and its meter, advanced to the current period. Raises NotFound, SharedBudgetIsOff."""
    if BudgetMeter.objects.select_for_update().filter(pk=budget_id).first() is None:
        raise NotFound("shared budget", budget_id)
    budget = SharedBudget.objects.get(pk=budget_id)
    if budget.off_at is not None:
        raise SharedBudgetIsOff(f"{budget.name} was switched off permanently. Create a new one.")
    with connection.cursor() as cursor:
        cursor.execute("SELECT runs_turn_pools()")
    return budget, BudgetMeter.objects.get(budget=budget)


def _gate(budget: SharedBudget, meter: BudgetMeter) -> Any:
    """Return the meter's `gate_at`; if it is unset although calls wait, now, so that the next sweep admits them."""
    waits = Wait.objects.filter(kind=Wait.Kind.POOL, resolved_at__isnull=True, detail__pool=budget.pk)
    return (meter.gate_at or database_now()) if waits.exists() else meter.gate_at


def _store(budget: SharedBudget, *changed: str) -> None:
    try:
        with transaction.atomic():
            budget.save(update_fields=changed or None)
    except IntegrityError:
        _check_alone(budget)
        raise


def _check_alone(budget: SharedBudget) -> None:
    """Raise InvalidInput if another shared budget has the same name, or the same scope, resource and period."""
    others = SharedBudget.objects.filter(off_at__isnull=True).exclude(pk=budget.pk)
    if others.filter(name=budget.name).exists():
        errors = [{"field": "name", "problem": "is taken by another shared budget", "fix": "give another name"}]
        raise InvalidInput(f"The name {budget.name!r} is taken.", errors=errors)
    same = {name: getattr(budget, name) for name in ("scope", "of", "resource", "period", "zone")}
    if twin := others.filter(**same).first():
        errors = [{"field": "scope", "problem": f"is that of {twin.name!r}", "fix": "change that one's limit"}]
        raise InvalidInput(
            f"The shared budget {twin.name!r} already has this scope, resource and period.", errors=errors
        )


def _amount(resource: str, limit: Decimal) -> int:
    return int(limit * A_MILLION) if resource == SharedBudget.Resource.USD else int(limit)


def _wrong_limit(resource: str, limit: Decimal) -> list[dict[str, str]]:
    if resource == _DOLLARS:
        is_too_much = limit > 10**9
        return [{"field": "limit", "problem": "is too large", "fix": "at most 1000000000"}] if is_too_much else []
    if limit != int(limit):
        return [{"field": "limit", "problem": "is not a whole number", "fix": f"a whole number of {resource}"}]
    return []


def _wrong_text(field: str, text: str) -> list[dict[str, str]]:
    if text != text.strip() or any(character == "\n" or is_hidden(character) for character in text):
        return [{"field": field, "problem": "has invisible characters, or spaces around it", "fix": "plain text"}]
    return []


def _wrong_zone(zone: str) -> list[dict[str, str]]:
    """Return the error if this process or the database doesn't know the time zone."""
    fix = "such as UTC or Europe/Berlin"
    if zone not in zones():
        return [{"field": "zone", "problem": f"{zone[:60]!r} is not a time zone", "fix": fix}]
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT runs_pool_period('day', %s, clock_timestamp())", [zone])
    except DataError:
        return [{"field": "zone", "problem": "is unknown to the database", "fix": fix}]
    return []


def _wrong_scope(body: SharedBudgetBody) -> list[dict[str, str]]:
    wrong = _wrong_text("whose", body.whose)
    if wrong:
        return wrong
    if (body.scope == SharedBudget.Scope.ALL) != (body.whose == ""):
        problem = "must be empty for the scope `all`" if body.whose else "is empty"
        fix = "leave it empty" if body.whose else f"name the {body.scope}"
        return [{"field": "whose", "problem": problem, "fix": fix}]
    if body.scope == SharedBudget.Scope.PROVIDER and body.resource == SharedBudget.Resource.TOOL_CALLS:
        return [
            {
                "field": "resource",
                "problem": "can't be limited for a provider",
                "fix": "usd, tokens_in, tokens_out, model_calls",
            }
        ]
    if body.scope == SharedBudget.Scope.PROVIDER and ":" in body.whose:
        return [{"field": "whose", "problem": "is a model", "fix": f"the provider: {body.whose.partition(':')[0]}"}]
    if body.scope == SharedBudget.Scope.AGENT:
        try:
            if registry.find(body.whose).name != body.whose:
                return [{"field": "whose", "problem": "is a version", "fix": "the agent's name alone"}]
        except (UnknownAgent, UnknownVersion) as unknown:
            return [
                {
                    "field": "whose",
                    "problem": f"is not an agent: {unknown.detail.rstrip('.')}",
                    "fix": "an agent's name",
                }
            ]
    if body.scope == SharedBudget.Scope.PERSON and _account(body.whose) is None:
        return [{"field": "whose", "problem": "is not an account", "fix": "the name of an account"}]
    return []


def _account(name: str) -> int | None:
    return get_user_model().objects.filter(username=name).values_list("pk", flat=True).first()


def _scope_key(body: SharedBudgetBody) -> str:
    """Return the key of the scope. For a person it is the account id, because user names can change."""
    return str(_account(body.whose)) if body.scope == SharedBudget.Scope.PERSON else body.whose
