"""Creating, changing and switching off pools, for operators, each with an act record.
Only name and limit change, so that charges stay valid. The meter's row is the lock of both rows."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.contrib.auth import get_user_model
from django.db import DataError, IntegrityError, connection, transaction

from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, Forbidden, InvalidInput, NotFound
from ledger.four_eyes.guards import second
from ledger.four_eyes.known import NUMBER
from ledger.web.roles import OPERATOR
from ledger.web.text_safety import is_hidden
from runs.engine.agents import registry
from runs.engine.budget import A_MILLION, usd_of
from runs.engine.errors import UnknownAgent, UnknownVersion
from runs.engine.gating.calendars import zones
from runs.models import Pool, PoolMeter, Wait
from runs.services.bodies import PoolBody, PoolChangeBody

MOST = 200  # active pools
_DOLLARS = "usd"
_WARN = "SELECT runs_pool_notice(m, 'warning') FROM runs_poolmeter m WHERE m.pool_id = %s"


class PoolMoved(DurableAgentsError):
    """The pool was changed since it was seen."""

    status, code, title = 409, "pool-moved", "The pool's limit has changed"


class PoolIsOff(DurableAgentsError):
    """The pool was switched off for good."""

    status, code, title = 409, "illegal-state", "The pool is switched off"


def find(pool_id: int) -> Pool:
    """Return a pool, also one that is off. Raises NotFound."""
    found = Pool.objects.filter(pk=pool_id).first()
    if found is None:
        raise NotFound("pool", pool_id)
    return found


@second("limits", needs=OPERATOR, moving=frozenset({NUMBER, "made_at"}))
@transaction.atomic
def create(body: PoolBody, *, by: Actor) -> Pool:
    """Create a pool that counts calls begun from now on.
    Raises InvalidInput by field, Forbidden, JustificationRequired."""
    why = _may("pool", by, body.justification)
    errors = [*_wrong_text("name", body.name), *_wrong_scope(body), *_wrong_zone(body.zone)]
    errors += _wrong_limit(body.resource, body.limit)
    if errors:
        raise InvalidInput(f"Invalid pool: {errors[0]['field']} {errors[0]['problem']}.", errors=errors)
    if Pool.objects.filter(off_at__isnull=True).count() >= MOST:
        errors = [{"field": "name", "problem": f"there are {MOST}", "fix": "switch one off first"}]
        raise InvalidInput(f"Limit reached: at most {MOST} pools. Switch one off first.", errors=errors)
    now, resource = database_now(), "usd_micro" if body.resource == _DOLLARS else body.resource
    pool = Pool(
        name=body.name,
        scope=body.scope,
        of=_of(body),
        resource=resource,
        period=body.period,
        zone=body.zone,
        set_by=by.ref,
        made_at=now,
    )
    _check_alone(pool)
    _store(pool)
    with connection.cursor() as cursor:
        cursor.execute("SELECT starts_at, ends_at FROM runs_pool_period(%s, %s, %s)", [pool.period, pool.zone, now])
        starts_at, ends_at = cursor.fetchone() or (now, now)
    PoolMeter.objects.create(
        pool=pool,
        resource=resource,
        period=pool.period,
        zone=pool.zone,
        most=_amount(resource, body.limit),
        starts_at=starts_at,
        ends_at=ends_at,
    )
    return _done("pool", pool, by=by, before={}, why=why)


@second("limits", needs=OPERATOR)
@transaction.atomic
def change(pool_id: int, body: PoolChangeBody, *, by: Actor) -> Pool:
    """Rename a pool or set its limit, even below its usage; waiting runs are let in as far as there is room.
    Raises InvalidInput, PoolMoved, PoolIsOff, NotFound, Forbidden, JustificationRequired."""
    why = _may("pool_change", by, body.justification)
    pool, meter = _locked(pool_id)
    before = snapshot(pool, meter)
    if body.name is None and body.limit is None:
        errors = [{"field": "limit", "problem": "empty", "fix": "name a limit, or a name"}]
        raise InvalidInput("The body changes nothing. Give a limit or a name.", errors=errors)
    name_of = _DOLLARS if pool.resource == Pool.Resource.USD else str(pool.resource)
    errors = _wrong_text("name", body.name or pool.name)
    errors += [] if body.limit is None else _wrong_limit(name_of, body.limit)
    if errors:
        raise InvalidInput(f"Invalid pool: {errors[0]['field']} {errors[0]['problem']}.", errors=errors)
    if body.if_limit is not None and _amount(pool.resource, body.if_limit) != meter.most:
        raise PoolMoved(f"The limit is now {limit_of(pool.resource, meter.most)}. Read the pool again.")
    pool.name = body.name or pool.name
    meter.most = meter.most if body.limit is None else _amount(pool.resource, body.limit)
    _check_alone(pool)
    _store(pool, "name")
    meter.gate_at = _gate(pool, meter)
    is_nearly_gone = meter.most > 0 and (meter.used + meter.reserved) * 5 >= meter.most * 4
    is_to_warn = is_nearly_gone and meter.warned_at is None
    if is_to_warn:
        meter.warned_at = database_now()
    meter.save(update_fields=["most", "gate_at", "warned_at"])
    if is_to_warn:
        with connection.cursor() as cursor:  # once in a period, as for a call that reaches the threshold
            cursor.execute(_WARN, [pool.pk])
    return _done("pool_change", pool, by=by, before=before, why=why)


@second("limits", needs=OPERATOR, moving=frozenset({"off_at"}))
@transaction.atomic
def switch_off(pool_id: int, *, by: Actor, justification: str) -> Pool:
    """Switch a pool off for good: calls in progress are still settled, and waiting runs are let in.
    Raises as `change` does."""
    why = _may("pool_off", by, justification)
    pool, meter = _locked(pool_id)
    before = snapshot(pool, meter)
    pool.off_at, meter.is_on = database_now(), False
    pool.save(update_fields=["off_at"])
    meter.gate_at = _gate(pool, meter)
    meter.save(update_fields=["is_on", "gate_at"])
    return _done("pool_off", pool, by=by, before=before, why=why)


def limit_of(resource: str, amount: int) -> str | int:
    """Return an amount as people write it: dollars as text, anything else as a number."""
    return usd_of(amount) if resource == Pool.Resource.USD else amount


def snapshot(pool: Pool, meter: PoolMeter) -> dict[str, Any]:
    told = {name: getattr(pool, name) for name in ("name", "scope", "of", "resource", "period", "zone")}
    return told | {
        "most": meter.most,
        "made_at": pool.made_at.isoformat(),
        "off_at": None if pool.off_at is None else pool.off_at.isoformat(),
    }


def subject_of(pool: Pool) -> str:
    return f"pool {pool.pk}"


def _done(action: str, pool: Pool, *, by: Actor, before: dict[str, Any], why: str) -> Pool:
    pool.meter = PoolMeter.objects.get(pool=pool)
    after = snapshot(pool, pool.meter)
    acted(action, by=by, subject=subject_of(pool), justification=why, before=before, after=after)
    return pool


def _may(action: str, by: Actor, justification: str) -> str:
    if by.role != OPERATOR and by.auth != "shell":
        raise Forbidden("Only an operator may change pools.")
    return justified(action, justification)


def _locked(pool_id: int) -> tuple[Pool, PoolMeter]:
    """Lock and return both rows, with the meter in the current period. Raises NotFound, PoolIsOff."""
    if PoolMeter.objects.select_for_update().filter(pk=pool_id).first() is None:
        raise NotFound("pool", pool_id)
    pool = Pool.objects.get(pk=pool_id)
    if pool.off_at is not None:
        raise PoolIsOff(f"{pool.name} was switched off permanently. Create a new one.")
    with connection.cursor() as cursor:
        cursor.execute("SELECT runs_turn_pools()")
    return pool, PoolMeter.objects.get(pool=pool)


def _gate(pool: Pool, meter: PoolMeter) -> Any:
    """Make the sweeper check waiting runs, if there are any."""
    waits = Wait.objects.filter(kind=Wait.Kind.POOL, resolved_at__isnull=True, detail__pool=pool.pk)
    return (meter.gate_at or database_now()) if waits.exists() else meter.gate_at


def _store(pool: Pool, *changed: str) -> None:
    try:
        with transaction.atomic():
            pool.save(update_fields=changed or None)
    except IntegrityError:
        _check_alone(pool)
        raise


def _check_alone(pool: Pool) -> None:
    """Raises InvalidInput if another pool has its name or counts the same."""
    others = Pool.objects.filter(off_at__isnull=True).exclude(pk=pool.pk)
    if others.filter(name=pool.name).exists():
        errors = [{"field": "name", "problem": "is taken by another pool", "fix": "give another name"}]
        raise InvalidInput(f"The pool name {pool.name!r} is taken.", errors=errors)
    same = {name: getattr(pool, name) for name in ("scope", "of", "resource", "period", "zone")}
    if twin := others.filter(**same).first():
        errors = [{"field": "scope", "problem": f"is that of {twin.name!r}", "fix": "change that one's limit"}]
        raise InvalidInput(f"The pool {twin.name!r} already counts the same.", errors=errors)


def _amount(resource: str, limit: Decimal) -> int:
    return int(limit * A_MILLION) if resource == Pool.Resource.USD else int(limit)


def _wrong_limit(resource: str, limit: Decimal) -> list[dict[str, str]]:
    if resource == _DOLLARS:
        is_too_much = limit > 10**9
        return [{"field": "limit", "problem": "is too much", "fix": "at most 1000000000"}] if is_too_much else []
    if limit != int(limit):
        return [{"field": "limit", "problem": "is not a whole number", "fix": f"a whole number of {resource}"}]
    return []


def _wrong_text(field: str, text: str) -> list[dict[str, str]]:
    if text != text.strip() or any(character == "\n" or is_hidden(character) for character in text):
        return [{"field": field, "problem": "holds invisible characters, or spaces around it", "fix": "plain text"}]
    return []


def _wrong_zone(zone: str) -> list[dict[str, str]]:
    """Check that both this process and the database know the time zone."""
    fix = "such as UTC or Europe/Berlin"
    if zone not in zones():
        return [{"field": "zone", "problem": f"{zone[:60]!r} is no time zone", "fix": fix}]
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT runs_pool_period('day', %s, clock_timestamp())", [zone])
    except DataError:
        return [{"field": "zone", "problem": "is unknown to the database", "fix": fix}]
    return []


def _wrong_scope(body: PoolBody) -> list[dict[str, str]]:
    wrong = _wrong_text("whose", body.whose)
    if wrong:
        return wrong
    if (body.scope == Pool.Scope.ALL) != (body.whose == ""):
        problem = "is of all, so it names nobody" if body.whose else "is empty"
        fix = "leave it empty" if body.whose else f"say which {body.scope}"
        return [{"field": "whose", "problem": problem, "fix": fix}]
    if body.scope == Pool.Scope.PROVIDER and body.resource == Pool.Resource.TOOL_CALLS:
        return [{"field": "resource", "problem": "is no provider's", "fix": "usd, tokens_in, tokens_out, model_calls"}]
    if body.scope == Pool.Scope.PROVIDER and ":" in body.whose:
        return [{"field": "whose", "problem": "is a model", "fix": f"the provider: {body.whose.partition(':')[0]}"}]
    if body.scope == Pool.Scope.AGENT:
        try:
            if registry.find(body.whose).name != body.whose:
                return [{"field": "whose", "problem": "is a version", "fix": "the agent's name alone"}]
        except (UnknownAgent, UnknownVersion) as unknown:
            return [
                {"field": "whose", "problem": f"is no agent: {unknown.detail.rstrip('.')}", "fix": "an agent's name"}
            ]
    if body.scope == Pool.Scope.PERSON and _account(body.whose) is None:
        return [{"field": "whose", "problem": "is not an account", "fix": "the name of an account"}]
    return []


def _account(name: str) -> int | None:
    return get_user_model().objects.filter(username=name).values_list("pk", flat=True).first()


def _of(body: PoolBody) -> str:
    """Return the scope's key: a person's account id, because user names can change."""
    return str(_account(body.whose)) if body.scope == Pool.Scope.PERSON else body.whose
