"""Viewers and the runs they may see, for the API, the console and sockets of every app. `runs/seen.py` has the SQL."""

# Every role other than integrator sees all runs. An integrator sees runs that their account started or that carry one
# of their own tags; to them, other runs look as if they did not exist. The right to see a run covers state, waits, cost
# and acts. Its payloads (state, arguments, results, conversations, idempotency keys) need a further right, except for
# the reader's own runs: see `payloads.py`.

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from django.db import connection

from ledger.errors import DurableAgentsError, NotFound
from ledger.web.roles import INTEGRATOR, is_role, roles

_CACHE, _READS = "_durableagents_own_tags", "_durableagents_reads_payloads"
# The right to read payloads: a Django permission given to accounts and roles, with a record.
APP, READ_PAYLOADS = "durableagents", "read_payloads"
# SQL: whether an account, named by `user`, or one of its roles has the right.
READS = f"""EXISTS (
    SELECT FROM auth_permission p JOIN django_content_type c ON c.id = p.content_type_id
    WHERE c.app_label = '{APP}' AND p.codename = '{READ_PAYLOADS}' AND (
        EXISTS (SELECT FROM auth_user_user_permissions o WHERE o.permission_id = p.id AND o.user_id = {{user}})
        OR EXISTS (SELECT FROM auth_group_permissions g JOIN auth_user_groups m ON m.group_id = g.group_id
                   WHERE g.permission_id = p.id AND m.user_id = {{user}})))"""


@dataclass(frozen=True, slots=True)
class Viewer:
    """The reader of a request.

    Without `sees_all` they see the runs of the account `person` and those with one of `tags`. Without `reads_all` they
    read the payloads of their own runs, and of questions in the queues in which one of the roles `held` decides.
    """

    sees_all: bool = True
    person: int | None = None
    tags: frozenset[str] = frozenset()
    reads_all: bool = True
    held: frozenset[str] = frozenset()

    def is_own(self, creator: int | None, tags: Collection[str]) -> bool:
        """Return whether a run with this creator and these tags is the viewer's own. Pure."""
        return (creator is not None and creator == self.person) or not self.tags.isdisjoint(tags)

    def sees(self, creator: int | None, tags: Collection[str]) -> bool:
        """Return whether such a run is visible. Pure."""
        return self.sees_all or self.is_own(creator, tags)

    def reads(self, creator: int | None, tags: Collection[str]) -> bool:
        """Return whether the viewer may read payloads of a run with this creator and these tags. Pure."""
        return self.reads_all or self.is_own(creator, tags)

    @property
    def in_common(self) -> Viewer:
        """Return the viewer without their identity, for a page shared by everybody who sees the same things."""
        return replace(self, person=None, tags=frozenset()) if self.sees_all else self


# The system itself, and people at a shell: everything outside a request.
EVERYTHING = Viewer()
NOTHING = Viewer(sees_all=False, reads_all=False)


def viewer_of(user: Any) -> Viewer:
    """Return the viewer for a user."""
    held = {role for role in roles(user) if is_role(role)}  # deputies also hold entries that aren't roles
    if not held:
        return NOTHING
    sees_all, reads_all = bool(held - {INTEGRATOR}), reads_payloads(user)
    if sees_all and reads_all:
        return EVERYTHING
    return Viewer(sees_all, user.pk, own_tags(user), reads_all, roles(user))


def own_tags(user: Any) -> frozenset[str]:
    """Return the tags that are an account's own, cached per user object."""
    known: frozenset[str] | None = getattr(user, _CACHE, None)
    if known is None:
        known = frozenset(one.tag for one in user.own_tags.all() if one.taken_at is None)
        setattr(user, _CACHE, known)
    return known


def reads_payloads(user: Any) -> bool:
    """Return whether an account or one of its roles has the right to read payloads.

    The result is cached per user object. Superusers don't have the right implicitly: giving it must be recorded.
    """
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


# The current request. The request's user is read as late as possible, because the API authenticates late.
_asking: ContextVar[Any] = ContextVar("asking", default=None)


# An explicit viewer, shared by all readers who see the same things.
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


# Decides whether a limited viewer sees a run; set by the app that has the runs.
_sees_run: list[Callable[[Viewer, UUID], bool]] = []


def tell_who_sees(judge: Callable[[Viewer, UUID], bool]) -> None:
    _sees_run[:] = [judge]


# Decides whether a limited viewer reads a run's payloads; set by the app that has the runs.
_reads_run: list[Callable[[Viewer, UUID], bool]] = []


def tell_who_reads(judge: Callable[[Viewer, UUID], bool]) -> None:
    _reads_run[:] = [judge]


# Decides whether a run's content was erased, so that nobody may read it; set by the app that has the runs.
_is_erased: list[Callable[[UUID], bool]] = []


def tell_what_is_erased(judge: Callable[[UUID], bool]) -> None:
    _is_erased[:] = [judge]


def is_erased(run_id: UUID) -> bool:
    return any(judge(run_id) for judge in _is_erased)


def reads(run_id: UUID) -> bool:
    """Return whether the current viewer may read the payloads of a run that they see.

    Nobody may once the content is erased.
    """
    who = viewer()
    if is_erased(run_id):
        return False
    return who.reads_all or any(judge(who, run_id) for judge in _reads_run)


def must_see(run_id: UUID) -> None:
    """Check that the viewer sees the run. Raises NotFound, as for a missing run."""
    who = viewer()
    if not who.sees_all and not any(judge(who, run_id) for judge in _sees_run):
        raise NotFound("run", run_id)


# Functions that tell what became of a run that is no longer in the database; set by apps that move runs elsewhere.
_explainers: list[Callable[[UUID], DurableAgentsError | None]] = []


def explain_missing(explainer: Callable[[UUID], DurableAgentsError | None]) -> None:
    """Add a function that returns a more precise error than NotFound for a run, or None. Idempotent."""
    if explainer not in _explainers:
        _explainers.append(explainer)


def explained(error: Exception, run_id: object) -> Exception:
    """Return the error for a request about this run: NotFound may be replaced by a more precise one."""
    if not isinstance(error, NotFound) or not isinstance(run_id, UUID):
        return error
    return next((found for explain in _explainers if (found := explain(run_id)) is not None), error)
