"""Who looks, and what is theirs. Shared by the API, the console and the sockets of every app, hence down here.

Whoever has a wider role than an integrator's sees every run. An integrator sees what their account started, and what
carries a tag that is their own; everything else is for them as if it did not exist: the same answer, whether there is
no such run or it is somebody else's. Which runs these are, `runs/seen.py` says in SQL; here stands who asks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from ledger.errors import NotFound
from ledger.web.roles import INTEGRATOR, is_role, roles

_CACHE = "_durableagents_own_tags"


@dataclass(frozen=True, slots=True)
class Viewer:
    """Somebody who looks. Who doesn't see everything sees the runs of the account `person`, and those that carry one of
    `tags`."""

    sees_all: bool = True
    person: int | None = None
    tags: frozenset[str] = frozenset()

    def sees(self, creator: int | None, tags: Collection[str]) -> bool:
        """Whether a run is shown that this account started and that is seen by these tags. Pure."""
        return self.sees_all or (creator is not None and creator == self.person) or not self.tags.isdisjoint(tags)


# The system itself, and people at a shell of its own: whatever runs outside of a request.
EVERYTHING = Viewer()
NOTHING = Viewer(sees_all=False)


def viewer_of(user: Any) -> Viewer:
    """What somebody sees."""
    held = {role for role in roles(user) if is_role(role)}  # whoever stands in for somebody holds a mark besides
    if held - {INTEGRATOR}:
        return EVERYTHING
    return Viewer(False, user.pk, own_tags(user)) if held else NOTHING


def own_tags(user: Any) -> frozenset[str]:
    """The tags that are an account's own, read once per user object."""
    known: frozenset[str] | None = getattr(user, _CACHE, None)
    if known is None:
        known = frozenset(one.tag for one in user.own_tags.all() if one.taken_at is None)
        setattr(user, _CACHE, known)
    return known


def know_own_tags(user: Any, tags: Iterable[str]) -> None:
    """An account's own tags, from whoever has read them together with it."""
    setattr(user, _CACHE, frozenset(tags))


# The request that is being answered. Asked for its user as late as possible: the API knows only then who asks.
_asking: ContextVar[Any] = ContextVar("asking", default=None)


@contextmanager
def asking(request: Any) -> Iterator[None]:
    """What is read inside is read for whoever sent this request."""
    token = _asking.set(request)
    try:
        yield
    finally:
        _asking.reset(token)


def viewer() -> Viewer:
    """Who looks just now."""
    request = _asking.get()
    return EVERYTHING if request is None else viewer_of(getattr(request, "user", None))


# Whether somebody who doesn't see everything sees a run: told by the app that has the runs.
_sees_run: list[Callable[[Viewer, UUID], bool]] = []


def tell_who_sees(judge: Callable[[Viewer, UUID], bool]) -> None:
    """Where it is asked whether somebody sees a run; what was said before is replaced."""
    _sees_run[:] = [judge]


def must_see(run_id: UUID) -> None:
    """Raises NotFound, as for a run that there isn't."""
    who = viewer()
    if not who.sees_all and not any(judge(who, run_id) for judge in _sees_run):
        raise NotFound("run", run_id)
