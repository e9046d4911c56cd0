"""Budgets of calls: reservations, the cost of lost answers, and requests for a higher budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ledger import events as e
from runs.engine.budget import Breach, Call, Usage, begun_by
from runs.engine.journal import ATTENTION, Batch, Journal, WaitSpec
from runs.engine.tape import Tape


def reserved_by(tape: Tape) -> Iterator[tuple[Call, Usage]]:
    """Yield the reservations of recorded calls that have no outcome, in the form that they had when the calls began."""
    for name, slot in tape.slots.items():
        for attempt, known in slot.attempts.items():
            is_open = not (known.result or known.accepted or known.is_settled)
            wanted = begun_by(known.route) if known.route else begun_by(known.intent) if is_open else None
            if wanted is not None:
                yield (name, attempt), wanted


def debit(
    route: e.ModelRouted,
    *,
    model_calls: int,
    tokens_in: int,
    tokens_out: int,
    usd_micro: int | None,
    is_estimate: bool = False,
) -> e.BudgetDebited:
    """Return the debit of a request. With `is_estimate`, its actual usage will never be known."""
    return e.BudgetDebited(
        slot=route.slot,
        attempt=route.attempt,
        n=route.n,
        model=route.model,
        price=route.price,
        model_calls=model_calls,
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        usd_micro=usd_micro,
        is_estimate=is_estimate,
    )


def lost(route: e.ModelRouted) -> e.BudgetDebited:
    """Return the debit of a request whose answer was lost.

    It may have been billed, so everything that was reserved counts as used.
    """
    return debit(
        route,
        model_calls=1,
        tokens_in=route.tokens_in,
        tokens_out=route.tokens_out,
        usd_micro=route.usd_micro,
        is_estimate=True,
    )


async def debit_lost(journal: Journal, tape: Tape) -> None:
    """Debit the requests of an ending run whose answers nobody will receive any more."""
    for route in tape.lost_requests():
        await journal.commit(Batch([lost(route)]))


def wait_for_raise(
    journal: Journal, slot: str, breaches: Sequence[Breach], wanted: Usage, queue: str
) -> tuple[e.BudgetExceeded, WaitSpec]:
    """Return the event which records that a call at `slot` would exceed caps, and the wait for higher caps."""
    first = breaches[0]
    event = e.BudgetExceeded(
        resource=first.resource,
        most=first.most,
        used=first.used,
        reserved=first.reserved,
        wanted=first.wanted,
        call=slot,
    )
    name = f"budget/{journal.seq}"
    detail = {"queue": queue, **lacking(breaches, wanted)}
    return event, WaitSpec(journal.run_id, name, 0, "budget", 0, journal.now() + ATTENTION, detail)


def lacking(breaches: Sequence[Breach], wanted: Usage) -> dict[str, Any]:
    """Return the wait's detail for people.

    The detail contains the first exceeded cap, the amounts that the call `needs`, and under `enough` a sufficient
    value of each exceeded cap.
    """
    first = breaches[0]
    return {
        "title": "Needs more budget",
        "resource": first.resource,
        "most": first.most,
        "used": first.used,
        "reserved": first.reserved,
        "wanted": first.wanted,
        "needs": wanted.stated(),
        "enough": {breach.resource: breach.enough for breach in breaches},
    }
