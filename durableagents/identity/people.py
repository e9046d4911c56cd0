"""Who asks, read in one statement: the session, its account and the account's roles; or the key with the same.

What a session holds is signed and not the database's to read, so whose it is comes out only after it is read. This
process remembers whose it was last time and reads that account along. The session's own word decides: if it names
somebody else, they are read anew. Nothing else is remembered: that a session has ended, an account is closed or a role
is taken counts with the next request.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

from django.contrib.auth import SESSION_KEY
from django.contrib.auth.middleware import AuthenticationMiddleware
from django.contrib.auth.middleware import get_user as user_of
from django.contrib.auth.models import AnonymousUser, Group, User
from django.contrib.postgres.expressions import ArraySubquery
from django.contrib.sessions.backends.base import UpdateError
from django.contrib.sessions.backends.db import SessionStore as Sessions
from django.contrib.sessions.exceptions import SessionInterrupted
from django.contrib.sessions.models import Session
from django.db import DEFAULT_DB_ALIAS, connection, transaction
from django.db.models import OuterRef, TextField
from django.db.models.expressions import RawSQL
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.functional import SimpleLazyObject

from approvals.queues.along import ALONG, learnt
from durableagents.identity.session_rows import ends_at, row_key, session_salt
from ledger.accounts import ACCOUNT as ACCOUNT_ROW
from ledger.accounts import PROOF
from ledger.clock import MOMENT
from ledger.errors import DurableAgentsError
from ledger.protected import ChangedOutside, is_authentic
from ledger.web.pressure import is_outage
from ledger.web.roles import is_too_weak, know_roles
from ledger.web.seeing.viewers import READS, asking, know_own_tags, know_reads_payloads

MOST_REMEMBERED = 10_000
_BEFORE_ACCOUNT = 5  # as many things are read of an account before its columns
_COLUMNS = [field.attname for field in User._meta.concrete_fields]
# Of SQL about an account `u`: the names of its groups, and all its columns. `account` makes one of them.
ACCOUNT = ", ".join(f'u."{field.column}"' for field in User._meta.concrete_fields)
GROUPS = "ARRAY(SELECT g.name FROM auth_group g JOIN auth_user_groups m ON m.group_id = g.id WHERE m.user_id = {user})"
# And the tags that are its own.
TAGS = "ARRAY(SELECT t.tag FROM durableagents_owntag t WHERE t.user_id = {user} AND t.taken_at IS NULL)"
# How whoever asks is read along with what they show: groups, own tags, the right to read payloads, and the queues.
# What it does counts only as the application wrote it, so the proof of that comes along.
_ALL = (GROUPS, TAGS, READS, ALONG, f"{ACCOUNT_ROW.proof_sql('u')}::text")
WHO = ", ".join(each.format(user="u.id") for each in _ALL)
_SESSION = f"""
    SELECT {MOMENT}, s.session_data, s.expire_date, {WHO}, {ACCOUNT}
    FROM django_session s LEFT JOIN auth_user u ON u.id = %s WHERE s.session_key = %s AND s.expire_date > %s"""

_ALONG = RawSQL(ALONG.format(user='"auth_user"."id"'), [], output_field=TextField())
_owners: dict[str, int] = {}
_read_along: ContextVar[User | None] = ContextVar("read_along", default=None)


class SessionEnded(DurableAgentsError, SessionInterrupted):
    status, code, title = 401, "session-ended", "Your session was ended"

    def __init__(self) -> None:
        super().__init__("It was ended while this was under way. Sign in again, and look what of it was done.")


class SessionStore(Sessions):
    """Django's sessions, and with one the account that it was last known to be of.

    The table has neither the key of a cookie nor data that anybody without SECRET_KEY can write or move: see `row_key`
    and `session_salt`.
    """

    person: User | None = None
    read_at = 0  # in microseconds, by the database's clock

    @property
    def row(self) -> str:
        """The key of its row in the table."""
        return row_key(self.session_key)

    @property
    def key_salt(self) -> str:
        return session_salt(self.row)

    def decode(self, session_data: bytes | str) -> dict[str, Any]:
        """Return what a session holds: nothing from its signed end on."""
        data: dict[str, Any] = super().decode(session_data)
        return data if ends_at(data) > timezone.now() else {}

    def exists(self, session_key: str) -> bool:
        return bool(super().exists(row_key(session_key)))

    def create_model_instance(self, data: dict[str, Any]) -> Any:
        row = super().create_model_instance(data)
        row.session_key = row_key(row.session_key)
        return row

    def delete(self, session_key: str | None = None) -> None:
        if key := session_key or self.session_key:
            super().delete(row_key(key))

    def _get_session_from_db(self) -> Session | None:
        key = self.session_key or ""
        with connection.cursor() as cursor:
            cursor.execute(_SESSION, [_owners.get(key), row_key(key), timezone.now()])
            row = cursor.fetchone()
        if row is None:
            self._session_key: str | None = None
            return None
        self.read_at, data, ends, *told = row
        self.person = account(told) if told[_BEFORE_ACCOUNT] is not None else None
        return Session(session_key=key, session_data=data, expire_date=ends)

    def load(self) -> dict[str, Any]:
        data: dict[str, Any] = super().load()
        _remember(self.session_key, data.get(SESSION_KEY))
        return data

    def cycle_key(self) -> None:
        """Under another key, it is listed as before (see signed_in.py). Raises SessionEnded for somebody's that was
        ended since it was read: it would live on, and be listed nowhere."""
        from durableagents.identity.signed_in import leave, moved

        is_somebodys = SESSION_KEY in self  # reads it, if nobody has yet
        before = self.session_key
        with transaction.atomic():
            if before and is_somebodys and not leave(before):
                self.flush()
                raise SessionEnded
            super().cycle_key()
            if before:
                moved(before, self.session_key)

    def save(self, must_create: bool = False) -> None:
        """Raises UpdateError for a session that has ended, and the database's own error while that takes no writes:
        Django makes the one of the other."""
        try:
            super().save(must_create)
        except UpdateError as error:
            reason = error.__context__
            if reason is not None and is_outage(reason):
                raise reason from reason.__cause__
            raise
        _remember(self.session_key, self.get(SESSION_KEY))


def _remember(key: str | None, owner: Any) -> None:
    if key and isinstance(owner, str) and owner.isdecimal():
        if len(_owners) >= MOST_REMEMBERED:
            _owners.clear()
        _owners[key] = int(owner)


def account(told: list[Any]) -> User | None:
    """Return an account, with what counts of it, as WHO and ACCOUNT read it; None if it was changed outside."""
    groups, tags, reads, along, proof, *columns = told
    if not is_authentic(proof):
        return None
    user: Any = User.from_db(DEFAULT_DB_ALIAS, _COLUMNS, columns)
    user.proof = proof
    know_roles(user, groups, learnt(along))
    know_own_tags(user, tags)
    know_reads_payloads(user, reads)
    return cast(User, user)


def person(pk: Any) -> User | None:
    """Return the account, with its roles: the one that came with the session, if it is that. Its own tags are read when
    they count. None also where it was changed outside the application."""
    known = _read_along.get()
    if known is not None and str(known.pk) == str(pk):
        return known
    user: Any = User.objects.filter(pk=pk).annotate(held=held("pk"), along=_ALONG, proof=PROOF).first()
    if user is None or not is_authentic(user.proof):
        return None
    know_roles(user, user.held, learnt(user.along))
    return user


def held(user: str) -> ArraySubquery:
    """The names of an account's groups, for a query that reads it; `user` is how it names the account's id."""
    return ArraySubquery(Group.objects.filter(user=OuterRef(user)).values("name"))


class WhoAsks(AuthenticationMiddleware):
    """Django's, which hands on the account that was read with the session. What is read meanwhile is read for the
    request's sender. A row that was changed outside the application is answered with what to do about it."""

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not isinstance(exception, ChangedOutside):
            return None
        return render(request, "account/refused.html", {"refusal": exception}, status=exception.status)

    def __call__(self, request: HttpRequest) -> Any:
        with asking(request):
            response: Any = super().__call__(request)  # of threads alone: see server/handler.py
            return response

    def process_request(self, request: HttpRequest) -> None:
        super().process_request(request)
        request.user = SimpleLazyObject(lambda: _of(request))  # type: ignore[assignment]


def _of(request: HttpRequest) -> Any:
    request.session.get(SESSION_KEY)  # reads the session, if nobody has yet
    with _along(getattr(request.session, "person", None)):
        user = user_of(request)
    return AnonymousUser() if is_too_weak(user, request.session) else user


@contextmanager
def _along(user: User | None) -> Iterator[None]:
    token = _read_along.set(user)
    try:
        yield
    finally:
        _read_along.reset(token)
