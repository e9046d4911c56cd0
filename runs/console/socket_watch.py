"""Checks all open sockets together: whether they may stay open, and which runs they may show.
The checks have threads of their own, because asgiref has only one, in which a thousand pages would wait for each
other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar
from uuid import UUID

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY, get_user_model
from django.contrib.sessions.models import Session
from django.db import close_old_connections, connection
from django.db.models import BooleanField
from django.db.models.expressions import RawSQL
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from ledger.accounts import PROOF
from ledger.web.roles import is_too_weak, roles
from ledger.web.seeing.viewers import READS, Viewer, know_reads_payloads, viewer_of
from runs import features
from runs.journal.database_errors import is_transient
from runs.journal.notify import Ring, mark_of

T = TypeVar("T")
log = logging.getLogger(__name__)
_READS = RawSQL(READS.format(user='"auth_user"."id"'), [], output_field=BooleanField())
# The result for a session: its viewer, or a close code that tells why the socket must be closed.
Verdict = Viewer | int
CHECK_SECONDS = 3.0
SIGNED_OUT, NOT_ALLOWED = 4401, 4403
BROKEN = 1011  # the session can't be checked; the page tries again
SEES_OTHERWISE = 1012  # the page reconnects, and gets its viewer's new access scope
_THREADS = ThreadPoolExecutor(max_workers=2, thread_name_prefix="sockets")


async def in_thread(act: Callable[..., T], *args: Any) -> T:
    """Run a database query in one of the sockets' own threads, and close its connection."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, _closing, act, *args)


def _closing(act: Callable[..., T], *args: Any) -> T:
    close_old_connections()
    try:
        return act(*args)
    finally:
        close_old_connections()


class Guard:
    """Checks all sessions with open sockets every `CHECK_SECONDS`, and new ones as they arrive."""

    def __init__(self, check: Callable[[Iterable[str | None]], dict[str | None, Verdict]]) -> None:
        self._check = check
        self._ends: dict[str | None, dict[asyncio.Future[int], Viewer]] = {}
        self._pending: dict[str | None, set[asyncio.Future[Verdict]]] = {}
        self._rounds: asyncio.Task[None] | None = None
        self._answers: asyncio.Task[None] | None = None

    async def verdict(self, key: str | None) -> Verdict:
        """Return the session's viewer, or a close code.
        Requests that arrive while a query runs share the next one."""
        answer = asyncio.get_running_loop().create_future()
        self._pending.setdefault(key, set()).add(answer)
        if self._answers is None or self._answers.done():
            self._answers = asyncio.create_task(self._answer(), name="socket verdicts")
        return await answer

    async def ended(self, key: str | None, who: Viewer) -> int:
        """Wait until the session ends, loses its roles, or gets another access scope. Returns the close code."""
        ending = asyncio.get_running_loop().create_future()
        self._ends.setdefault(key, {})[ending] = who
        if self._rounds is None or self._rounds.done():
            self._rounds = asyncio.create_task(self._watch(), name="socket guard")
        try:
            return await ending
        finally:
            waiting = self._ends[key]
            waiting.pop(ending, None)
            if not waiting:
                del self._ends[key]

    async def _answer(self) -> None:
        while self._pending:
            pending, self._pending = self._pending, {}
            try:
                answers = await in_thread(judged, list(pending), self._check)
            except BaseException as error:
                failure = error if isinstance(error, Exception) else asyncio.CancelledError()
                for future in (each for futures in pending.values() for each in futures if not each.done()):
                    future.set_exception(failure)
                if not isinstance(error, Exception):
                    raise
                continue
            for key, futures in pending.items():
                for each in futures:
                    if not each.done():
                        each.set_result(answers[key])

    async def _watch(self) -> None:
        while self._ends:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                answers = await in_thread(judged, list(self._ends), self._check)
            except Exception as error:
                if is_transient(error):
                    continue  # sessions are checked again as soon as the database is available
                raise
            for key, verdict in answers.items():
                for each, who in self._ends.get(key, {}).items():
                    if verdict != who and not each.done():
                        each.set_result(verdict if isinstance(verdict, int) else SEES_OTHERWISE)


def judged(
    keys: list[str | None], check: Callable[[Iterable[str | None]], dict[str | None, Verdict]]
) -> dict[str | None, Verdict]:
    """Check all sessions together; after an error that isn't an outage, one by one.
    The sockets of a session that can't be checked are closed. Otherwise that session would keep the sockets of other
    users open after they lost their roles."""
    try:
        return check(keys)
    except Exception as error:
        if is_transient(error):
            raise
    found: dict[str | None, Verdict] = {}
    for key in keys:
        try:
            found |= check([key])
        except Exception as error:
            if is_transient(error):
                raise
            if BROKEN not in found.values():
                log.exception("a session can't be checked: its subscriptions are closed, and those of others like it")
            found[key] = BROKEN
    return found


def verdicts(keys: Iterable[str | None]) -> dict[str | None, Verdict]:
    """Return the viewer, or a close code, for each session.
    A session must be signed in with the current password, and its account must be active and have a role. This takes
    four queries for any number of sessions."""
    answers: dict[str | None, Verdict] = dict.fromkeys(keys, SIGNED_OUT)
    stores = {store.row: store for key in answers if key for store in [_sessions().SessionStore(key)]}
    sessions = Session.objects.filter(pk__in=stores, expire_date__gt=timezone.now())
    kept = {stores[row.pk].session_key: stores[row.pk].decode(row.session_data) for row in sessions}
    wanted = {key: str(data[SESSION_KEY]) for key, data in kept.items() if SESSION_KEY in data}
    people = get_user_model().objects.filter(pk__in=set(wanted.values()), is_active=True)
    people = people.annotate(reads=_READS, proof=PROOF).prefetch_related("groups", "own_tags")
    users = {str(user.pk): user for user in people}
    for user in users.values():
        know_reads_payloads(user, user.reads)
    for key, pk in wanted.items():
        if pk in users:
            answers[key] = _verdict(kept[key], users[pk])
    return answers


def _sessions() -> Any:
    return import_module(settings.SESSION_ENGINE)


def _verdict(kept: dict[str, Any], user: Any) -> Verdict:
    if kept.get(BACKEND_SESSION_KEY) not in settings.AUTHENTICATION_BACKENDS:
        return SIGNED_OUT
    if not constant_time_compare(str(kept.get(HASH_SESSION_KEY, "")), user.get_session_auth_hash()):
        return SIGNED_OUT
    if is_too_weak(user, kept):
        return SIGNED_OUT
    return viewer_of(user) if roles(user) else NOT_ALLOWED


guard = Guard(verdicts)


# --- access to runs that notify ---------------------------------------------------------------------------------------

MAX_SESSIONS = 20_000
_OF = """
    SELECT r.creator, ARRAY(SELECT t.tag FROM runs_runtag t WHERE t.run_id = r.id) FROM runs_run r WHERE r.id = %s"""


@dataclass(frozen=True, slots=True)
class Owned:
    """A run's creator and access tags. They never change."""

    creator: int | None
    tags: frozenset[str]


class Sighted:
    """Cache of the owners of runs that sent notifications."""

    def __init__(self, ask: Callable[[UUID], Owned | None]) -> None:
        self._ask = ask
        self._known: dict[str, Owned] = {}

    async def sees(self, who: Viewer, run_id: str) -> bool:
        """Return whether a viewer gets notifications about a run.

        Only viewers who see everything get notifications about unknown runs.
        """
        if who.sees_all:
            return True
        owned = self._known.get(run_id)
        if owned is None:
            owned = await in_thread(self._ask, UUID(run_id))
            if owned is None:
                return False
            if len(self._known) >= MAX_SESSIONS:
                self._known.clear()
            self._known[run_id] = owned
        return who.sees(owned.creator, owned.tags)


def _owned(run_id: UUID) -> Owned | None:
    with connection.cursor() as cursor:
        cursor.execute(_OF, [run_id])
        row: Any = cursor.fetchone()
    return None if row is None else Owned(row[0], frozenset(row[1]))


sighted = Sighted(_owned)


class OpenItems:
    """An account's open items in runs that it may not see. It gets no other notifications about these runs."""

    def __init__(self, person: int | None) -> None:
        self._person = person
        self._known: dict[str, Any] = {}

    async def have_moved(self, ring: Ring | None) -> bool:
        """Return whether a notification is about a change of the account's own items."""
        if self._person is None:
            return ring is None
        is_own = ring is None or ring[0] == mark_of(self._person)
        if not is_own and (ring is None or ring[0] not in self._known):
            return False
        before, self._known = self._known, await in_thread(_open_for, self._person)
        return is_own or before != self._known


def _open_for(person: int) -> dict[str, Any]:
    every = features.parts_of_all(lambda each: each.open_items)
    return {run_id: what for items_of in every for run_id, what in items_of(person).items()}
