"""Who looks, and what is theirs. Shared by the API, the console and the sockets of every app, hence down here.

Whoever has a wider role than an integrator's sees every run. An integrator sees what their account started, and what
carries a tag that is their own; everything else is for them as if it did not exist: the same answer, whether there is
no such run or it is somebody else's. Which runs these are, `runs/seen.py` says in SQL; here stands who asks.

To see a run is to see what it does: its state, what it waits for, what it cost, who did what to it. What it holds and
says (its payloads: state, arguments, results, conversations, idempotency keys) is read by whoever has the right for it,
and of their own runs by everybody: see `payloads.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from django.db import connection

from ledger.errors import NotFound
from ledger.web.roles import INTEGRATOR, is_role, roles

_CACHE, _READS = "_durableagents_own_tags", "_durableagents_reads_payloads"
# The right to read payloads, one of Django's permissions: given to accounts and to roles, each time on record.
APP, READ_PAYLOADS = "durableagents", "read_payloads"
# In SQL about an account, named by `user`: whether it was given it, or one of its roles was.
READS = f"""EXISTS (
    SELECT FROM auth_permission p JOIN django_content_type c ON c.id = p.content_type_id
    WHERE c.app_label = '{APP}' AND p.codename = '{READ_PAYLOADS}' AND (
        EXISTS (SELECT FROM auth_user_user_permissions o WHERE o.permission_id = p.id AND o.user_id = {{user}})
        OR EXISTS (SELECT FROM auth_group_permissions g JOIN auth_user_groups m ON m.group_id = g.group_id
                   WHERE g.permission_id = p.id AND m.user_id = {{user}})))"""


@dataclass(frozen=True, slots=True)
class Viewer:
    """Somebody who looks. Who doesn't see everything sees the runs of the account `person`, and those that carry one of
    `tags`. The same for who doesn't read every run's payloads: besides those of their own runs they read what is asked
    at the queues of the roles `held`."""

    sees_all: bool = True
    person: int | None = None
    tags: frozenset[str] = frozenset()
    reads_all: bool = True
    held: frozenset[str] = frozenset()

    def is_own(self, creator: int | None, tags: Collection[str]) -> bool:
        """Whether a run is theirs that this account started and that is seen by these tags. Pure."""
        return (creator is not None and creator == self.person) or not self.tags.isdisjoint(tags)

    def sees(self, creator: int | None, tags: Collection[str]) -> bool:
        """Whether such a run is shown. Pure."""
        return self.sees_all or self.is_own(creator, tags)

    def reads(self, creator: int | None, tags: Collection[str]) -> bool:
        """Whether such a run's payloads are shown. Pure."""
        return self.reads_all or self.is_own(creator, tags)

    @property
    def in_common(self) -> Viewer:
        """The same for a page that says one thing to all who see alike: nobody's own runs are told apart there."""
        return replace(self, person=None, tags=frozenset()) if self.sees_all else self


# The system itself, and people at a shell of its own: whatever runs outside of a request.
EVERYTHING = Viewer()
NOTHING = Viewer(sees_all=False, reads_all=False)


def viewer_of(user: Any) -> Viewer:
    """What somebody sees."""
    held = {role for role in roles(user) if is_role(role)}  # whoever stands in for somebody holds a mark besides
    if not held:
        return NOTHING
    sees_all, reads_all = bool(held - {INTEGRATOR}), reads_payloads(user)
    if sees_all and reads_all:
        return EVERYTHING
    return Viewer(sees_all, user.pk, own_tags(user), reads_all, roles(user))


def own_tags(user: Any) -> frozenset[str]:
    """The tags that are an account's own, read once per user object."""
    known: frozenset[str] | None = getattr(user, _CACHE, None)
    if known is None:
        known = frozenset(one.tag for one in user.own_tags.all() if one.taken_at is None)
        setattr(user, _CACHE, known)
    return known


def reads_payloads(user: Any) -> bool:
    """Whether an account, or one of its roles, was given the right to read payloads; asked once per user object. To be
    a superuser gives it to nobody: it is on the record whose it is."""
    known: bool | None = getattr(user, _READS, None)
    if known is None:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {READS.format(user='asked.id')} FROM (SELECT %s::bigint AS id) asked", [user.pk])
            known = bool(cursor.fetchone()[0])
        setattr(user, _READS, known)
    return known


def know_reads_payloads(user: Any, reads: bool) -> None:
    setattr(user, _READS, reads)


def know_own_tags(user: Any, tags: Iterable[str]) -> None:
    setattr(user, _CACHE, frozenset(tags))


# The request that is being answered. Asked for its user as late as possible: the API knows only then who asks.
_asking: ContextVar[Any] = ContextVar("asking", default=None)


# Who looks, where that is said: one look for all who see alike.
_looking: ContextVar[Viewer | None] = ContextVar("looking", default=None)


@contextmanager
def looking_as(who: Viewer) -> Iterator[None]:
    token = _looking.set(who)
    try:
        yield
    finally:
        _looking.reset(token)


@contextmanager
def asking(request: Any) -> Iterator[None]:
    token = _asking.set(request)
    try:
        yield
    finally:
        _asking.reset(token)


def viewer() -> Viewer:
    if (who := _looking.get()) is not None:
        return who
    request = _asking.get()
    return EVERYTHING if request is None else viewer_of(getattr(request, "user", None))


# Whether somebody who doesn't see everything sees a run: told by the app that has the runs.
_sees_run: list[Callable[[Viewer, UUID], bool]] = []


def tell_who_sees(judge: Callable[[Viewer, UUID], bool]) -> None:
    """Where it is asked whether somebody sees a run; what was said before is replaced."""
    _sees_run[:] = [judge]


# Whether somebody who doesn't read every payload reads those of a run: told by the app that has the runs.
_reads_run: list[Callable[[Viewer, UUID], bool]] = []


def tell_who_reads(judge: Callable[[Viewer, UUID], bool]) -> None:
    """Where it is asked whether somebody reads a run's payloads; what was said before is replaced."""
    _reads_run[:] = [judge]


def reads(run_id: UUID) -> bool:
    """Whether whoever looks reads the payloads of a run, which they see."""
    who = viewer()
    return who.reads_all or any(judge(who, run_id) for judge in _reads_run)


def must_see(run_id: UUID) -> None:
    """Raises NotFound, as for a run that there isn't."""
    who = viewer()
    if not who.sees_all and not any(judge(who, run_id) for judge in _sees_run):
        raise NotFound("run", run_id)
