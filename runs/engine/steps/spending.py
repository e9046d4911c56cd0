"""Where a run's budget meets its calls: what is set aside for those under way, what a lost answer costs, and how people
are asked for more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ledger import events as e
from runs.engine.budget import A_CALL, Breach, Call, Usage
from runs.engine.journal import ATTENTION, Batch, Journal, WaitSpec
from runs.engine.tape import Tape


def reserved_by(tape: Tape) -> Iterator[tuple[Call, Usage]]:
    """What is set aside for calls that the journal tells of and whose outcome it doesn't have, as it was when they were
    made."""
    for name, slot in tape.slots.items():
        for attempt, known in slot.attempts.items():
            is_open = not (known.result or known.accepted or known.is_settled)
            wanted = begun_by(known.route) if known.route else begun_by(known.intent) if is_open else None
            if wanted is not None:
                yield (name, attempt), wanted


def begun_by(event: e.Event | None) -> Usage | None:
    """What an intent's event begins, as the caps count it; None for any other."""
    match event:
        case e.ToolInvoked():
            return A_CALL
        case e.ModelRouted():
            return wanted_by(event)
        case e.ChildStarted():
            return Usage(**event.caps)
        case _:
            return None


def wanted_by(route: e.ModelRouted) -> Usage:
    return Usage(
        steps=1, model_calls=1, tokens_in=route.tokens_in, tokens_out=route.tokens_out, usd_micro=route.usd_micro or 0
    )


def debit(
    route: e.ModelRouted,
    *,
    model_calls: int,
    tokens_in: int,
    tokens_out: int,
    usd_micro: int | None,
    is_estimate: bool = False,
) -> e.BudgetDebited:
    """What a request used, once it is known, or known that it never will be."""
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
    """The answer was lost: whether it was paid for nobody knows, so what was set aside for it counts as used."""
    return debit(
        route,
        model_calls=1,
        tokens_in=route.tokens_in,
        tokens_out=route.tokens_out,
        usd_micro=route.usd_micro,
        is_estimate=True,
    )


async def debit_lost(journal: Journal, tape: Tape) -> None:
    """Of a run that ends: the requests whose answers nobody will hear."""
    for route in tape.lost_requests():
        await journal.commit(Batch([lost(route)]))


def wait_for_raise(
    journal: Journal, slot: str, breaches: Sequence[Breach], wanted: Usage, queue: str
) -> tuple[e.BudgetExceeded, WaitSpec]:
    """The fact that a call at `slot` would break caps, and the wait for whoever may raise them."""
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
    """What people are told of a call that can't begin: the first cap that it would break, all that it `needs`, and what
    would be `enough` of each cap that is too small."""
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
