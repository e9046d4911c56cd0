"""The mark of a service that changes rules: where the installation wants two people for that, what it would do is
tried, undone and put on record as a proposal."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from ledger.errors import Proposed
from ledger.four_eyes.changes import propose
from ledger.four_eyes.known import Guarded, acts, is_beneath, is_guarded

P = ParamSpec("P")
R = TypeVar("R")


def second(
    family: str, *, needs: str, moving: frozenset[str] = frozenset()
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Marks a service `(…, *, by)`: one that changes rules of a family. Where two people change such rules and one
    person asks, it is proposed and Proposed is raised, besides all that the service raises itself."""

    def marked(act: Callable[P, R]) -> Callable[P, R]:
        known = Guarded(f"{act.__module__}.{act.__name__}", family, needs, act, moving)
        acts[known.name] = known

        @functools.wraps(act)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
            by: Any = kwargs["by"]
            if is_beneath.get() or not by.is_person or not is_guarded(family):
                return act(*args, **kwargs)
            raise Proposed(propose(known, known.packed(args, kwargs), by=by).pk)

        return guarded

    return marked
