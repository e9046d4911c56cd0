"""Continuations: a run that was renewed or handed off continues as another one.
Signals and messages to any run of the chain reach the newest run. A person's action on a run that was continued is
refused, unless the request asks for the newest run."""

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
# Number of attempts to reach a run that is being continued at the same time.
MAX_ATTEMPTS = 20


class HasContinued(Exception):
    """The run was continued as another one after it was looked up."""


class KeepsContinuing(DurableAgentsError):
    """The run was continued again at every attempt, after it was looked up."""

    status, code, title = 409, "run-goes-on", "The run is continued too often"

    def __init__(self, run_id: UUID) -> None:
        super().__init__(f"Run {run_id} is being continued as a new run again and again. Try again in a moment.")


def newest(run_id: UUID) -> Run:
    """Return the run or its newest continuation. Raises NotFound."""
    run = find(run_id)
    return run if run.goes_on_as is None else (run.successors().last() or run)


def is_of_chain(run: Run, at: str = "run") -> Q:
    """Return the condition that a row's foreign key `at` refers to a run in this run's chain of continuations.
    The chain includes the run itself."""
    first = run.first or run.pk
    return Q(**{f"{at}_id": first}) | Q(**{f"{at}__first": first})


def for_newest(
    run_id: UUID, act: Callable[[UUID], T], *, within: Callable[[], AbstractContextManager[Any]] = transaction.atomic
) -> T:
    """Call `act` with the newest continuation, and again each time it raises HasContinued.
    Each attempt is its own transaction (`within`), so that no two runs are locked at once. Raises NotFound,
    KeepsContinuing, and the errors of `act`.
    """
    for _ in range(MAX_ATTEMPTS):
        try:
            with within():
                return act(newest(run_id).pk)
        except HasContinued:
            continue
    raise KeepsContinuing(run_id)


def look_at_newest(run_id: UUID, look: Callable[[UUID], T]) -> T:
    """Call `look` with the newest continuation, before the caller acts on it.
    This is done outside any transaction, because `look` may be slow."""
    return to_newest(run_id, look, within=nullcontext)


def to_newest(
    run_id: UUID, act: Callable[[UUID], T], *, within: Callable[[], AbstractContextManager[Any]] = transaction.atomic
) -> T:
    """Apply a person's action to the newest continuation, even if the run is being continued at the same time.
    Each attempt runs in its own transaction (`within`). Raises NotFound, KeepsContinuing, and the errors of the
    action."""

    def at(newest_id: UUID) -> T:
        try:
            return act(newest_id)
        except IllegalTransition:
            check_not_continued(find(newest_id))
            raise

    return for_newest(run_id, at, within=within)


def check_not_continued(run: Run) -> None:
    """Raise HasContinued if the locked run was continued as another one."""
    if run.goes_on_as is not None:
        raise HasContinued
