"""Read the session or key together with its account and roles in one statement.

So ended sessions, closed accounts and removed roles take effect at the next request.
"""

# The owner of a session is known only after its signed data was read. This process remembers the last known owner and
# reads that account in the same statement. If the session names another account, that one is read instead. Nothing else
# is cached.

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

from approvals.queues.along import ANNOTATIONS, learnt
from durableagents.identity.session_rows import ends_at, row_key, session_salt
from durableagents.identity.signals import session_key_changed, session_key_changing
from ledger.accounts import ACCOUNT as ACCOUNT_ROW
from ledger.accounts import PROOF
from ledger.clock import MOMENT
from ledger.errors import DurableAgentsError
from ledger.protected import ChangedOutside, is_authentic
from ledger.web.pressure import is_outage
from ledger.web.roles import is_too_weak, know_roles
from ledger.web.seeing.viewers import READS, asking, know_own_tags, know_reads_payloads

MAX_REMEMBERED = 10_000
_BEFORE_ACCOUNT = 5  # columns that precede the account's own
_COLUMNS = [field.attname for field in User._meta.concrete_fields]
# SQL for an account `u`: its groups, and all columns that `account()` reads.
ACCOUNT = ", ".join(f'u."{field.column}"' for field in User._meta.concrete_fields)
GROUPS = "ARRAY(SELECT g.name FROM auth_group g JOIN auth_user_groups m ON m.group_id = g.id WHERE m.user_id = {user})"
# SQL for the own tags of an account.
TAGS = "ARRAY(SELECT t.tag FROM durableagents_owntag t WHERE t.user_id = {user} AND t.taken_at IS NULL)"
# Read together with the session or key: groups, own tags, the right to read payloads, the queues, and the proof that
# the account's row is authentic.
_ALL = (GROUPS, TAGS, READS, ANNOTATIONS, f"{ACCOUNT_ROW.proof_sql('u')}::text")
WHO = ", ".join(each.format(user="u.id") for each in _ALL)
_SESSION = f"""
    SELECT {MOMENT}, s.session_data, s.expire_date, {WHO}, {ACCOUNT}
    FROM django_session s LEFT JOIN auth_user u ON u.id = %s WHERE s.session_key = %s AND s.expire_date > %s"""

_ANNOTATIONS = RawSQL(ANNOTATIONS.format(user='"auth_user"."id"'), [], output_field=TextField())
_owners: dict[str, int] = {}
_read_along: ContextVar[User | None] = ContextVar("read_along", default=None)


class SessionEnded(DurableAgentsError, SessionInterrupted):
    status, code, title = 401, "session-ended", "Your session was ended"

    def __init__(self) -> None:
        super().__init__(
            "The session ended during this request. Sign in again, and check whether your change was saved."
        )


class SessionStore(Sessions):
    """Django's session store, which reads each session with its last known account.

    The table contains neither the keys of cookies nor data that could be written or moved without SECRET_KEY (see
    `row_key` and `session_salt`).
    """

    person: User | None = None
    read_at = 0  # when the session was read, in microseconds on the database's clock

    @property
    def row(self) -> str:
        """Return the key of this session's row in the table."""
        return row_key(self.session_key)

    @property
    def key_salt(self) -> str:
        return session_salt(self.row)

    def decode(self, session_data: bytes | str) -> dict[str, Any]:
        """Return a session's data; empty once its signed end has passed."""
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
        self.read_at, data, ends, *account_values = row
        self.person = account(account_values) if account_values[_BEFORE_ACCOUNT] is not None else None
        return Session(session_key=key, session_data=data, expire_date=ends)

    def load(self) -> dict[str, Any]:
        data: dict[str, Any] = super().load()
        _remember(self.session_key, data.get(SESSION_KEY))
        return data

    def cycle_key(self) -> None:
        """Give the session a new key.

        Raises SessionEnded if the session was ended meanwhile: a new key would bring it back.
        """
        is_somebodys = SESSION_KEY in self  # loads the session if it isn't loaded yet
        before = self.session_key
        with transaction.atomic():
            if before and is_somebodys:
                session_key_changing.send(type(self), session_key=before)
                if not Session.objects.filter(session_key=row_key(before)).delete()[0]:
                    self.flush()
                    raise SessionEnded
            super().cycle_key()
            if before:
                session_key_changed.send(type(self), before=before, after=self.session_key)

    def save(self, must_create: bool = False) -> None:
        """Save the session. Raises UpdateError if the session was ended.

        During an outage, Django would raise UpdateError instead of the database error; here the database error is
        raised.
        """
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
        if len(_owners) >= MAX_REMEMBERED:
            _owners.clear()
        _owners[key] = int(owner)


def account(values: list[Any]) -> User | None:
    """Return an account from the columns of WHO and ACCOUNT; None if its row was changed outside the application."""
    groups, tags, reads, annotations, proof, *columns = values
    if not is_authentic(proof):
        return None
    user: Any = User.from_db(DEFAULT_DB_ALIAS, _COLUMNS, columns)
    user.proof = proof
    know_roles(user, groups, learnt(annotations))
    know_own_tags(user, tags)
    know_reads_payloads(user, reads)
    return cast(User, user)


def person(pk: Any) -> User | None:
    """Return an account with its roles; None if its row was changed outside the application.

    Uses what the session's statement read, if possible. Own tags are read later.
    """
    known = _read_along.get()
    if known is not None and str(known.pk) == str(pk):
        return known
    user: Any = User.objects.filter(pk=pk).annotate(held=group_names("pk"), along=_ANNOTATIONS, proof=PROOF).first()
    if user is None or not is_authentic(user.proof):
        return None
    know_roles(user, user.held, learnt(user.along))
    return user


def group_names(user: str) -> ArraySubquery:
    """Return the SQL for the names of an account's groups. `user` is the SQL for the account's id."""
    return ArraySubquery(Group.objects.filter(user=OuterRef(user)).values("name"))


class WhoAsks(AuthenticationMiddleware):
    """Django's authentication middleware, with the account that was read together with the session.

    Inside this middleware, everything is read on behalf of the sender. If a row was changed outside the application,
    the response explains that.
    """

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not isinstance(exception, ChangedOutside):
            return None
        return render(request, "refused.html", {"refusal": exception}, status=exception.status)

    def __call__(self, request: HttpRequest) -> Any:
        with asking(request):
            response: Any = super().__call__(request)  # threads only, see server/handler.py
            return response

    def process_request(self, request: HttpRequest) -> None:
        super().process_request(request)
        request.user = SimpleLazyObject(lambda: _of(request))  # type: ignore[assignment]


def _of(request: HttpRequest) -> Any:
    request.session.get(SESSION_KEY)  # loads the session if it isn't loaded yet
    with _with_annotations(getattr(request.session, "person", None)):
        user = user_of(request)
    return AnonymousUser() if is_too_weak(user, request.session) else user


@contextmanager
def _with_annotations(user: User | None) -> Iterator[None]:
    token = _read_along.set(user)
    try:
        yield
    finally:
        _read_along.reset(token)
