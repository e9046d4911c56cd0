"""A run that was renewed, or that handed off, goes on as another one: from the run that it all began with to the
newest, each the heir of the one before.

What the outside sends to any of them by its id (a signal, a message) reaches the newest: whoever sends it knows the run
that they started. What people do to a run is done to the one that they look at, so it is refused for one that has gone
on, with the name of the one that it goes on as.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from ledger.errors import DurableAgentsError, IllegalTransition
from runs.models import Run
from runs.services.lifecycle import find

T = TypeVar("T")
# How often what is sent follows a run that goes on in the same moment.
LOOKS = 20


class GoneOn(Exception):
    """The run has gone on as another one since it was looked up."""


class GoesOnAndOn(DurableAgentsError):
    """It went on each time that it was looked up."""

    status, code, title = 409, "run-goes-on", "The run goes on"

    def __init__(self, run_id: UUID) -> None:
        super().__init__(f"Run {run_id} goes on as another one again and again just now. Ask again in a moment.")


def newest(run_id: UUID) -> Run:
    """The run, or the newest that it goes on as. Raises NotFound."""
    run = find(run_id)
    return run if run.goes_on_as is None else (run.heirs().last() or run)


def is_of_chain(run: Run, at: str = "run") -> Q:
    """The condition that a row's `at` is one of a run's chain, the run itself among them."""
    first = run.first or run.pk
    return Q(**{f"{at}_id": first}) | Q(**{f"{at}__first": first})


def for_newest(
    run_id: UUID, act: Callable[[UUID], T], *, within: Callable[[], AbstractContextManager[Any]] = transaction.atomic
) -> T:
    """Do this to the newest: it raises GoneOn where that has gone on, once it has its lock. The lock goes with what it
    did, so nobody has two runs locked. Each is done `within` a transaction. Raises NotFound, and what it raises."""
    for _ in range(LOOKS):
        try:
            with within():
                return act(newest(run_id).pk)
        except GoneOn:
            continue
    raise GoesOnAndOn(run_id)


def look_at_newest(run_id: UUID, look: Callable[[UUID], T]) -> T:
    """What somebody finds out of the newest before they act, however long that takes: in no transaction."""
    return to_newest(run_id, look, within=nullcontext)


def to_newest(
    run_id: UUID, act: Callable[[UUID], T], *, within: Callable[[], AbstractContextManager[Any]] = transaction.atomic
) -> T:
    """Do a person's act to the newest, also where that goes on as another one just now; `within` a transaction. Raises
    NotFound, and what the act raises."""

    def at(newest_id: UUID) -> T:
        try:
            return act(newest_id)
        except IllegalTransition:
            must_not_have_gone_on(find(newest_id))
            raise

    return for_newest(run_id, at, within=within)


def must_not_have_gone_on(run: Run) -> None:
    """Of a locked run. Raises GoneOn."""
    if run.goes_on_as is not None:
        raise GoneOn
