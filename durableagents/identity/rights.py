"""Rights that administrators give to accounts and roles, in addition to the roles' own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib.auth.models import Group, Permission, User
from django.db import connection, transaction
from django.db.models import Q, QuerySet

from durableagents.identity.auth import ISSUE_OWN
from ledger.acting import acting
from ledger.actors import Actor
from ledger.append import acted, is_moved, justified, mark_of
from ledger.change_control import SUPERUSER, is_guarded, two_person
from ledger.errors import DurableAgentsError, Forbidden, InvalidInput, Moved, NotFound
from ledger.web.roles import OPERATOR, is_role, ordered
from ledger.web.seeing.viewers import APP, READ_PAYLOADS

READS = f"{APP}.{READ_PAYLOADS}"
# Names of each right in records: the name of the act, and the name of its values.
_CALLED = {ISSUE_OWN: ("own_keys", "may_issue_own_keys"), READS: ("read_payloads", "reads_payloads")}


@two_person("roles", needs=SUPERUSER)
def let_issue_keys(user_id: int, may: bool, *, by: Actor, justification: str) -> None:
    """Set whether an account may issue API keys to itself.

    Raises NotFound, JustificationRequired. Its roles don't change.
    """
    _let(ISSUE_OWN, user_id, may, by=by, justification=justification)


@two_person("roles", needs=SUPERUSER)
def let_read_payloads(user_id: int, may: bool, *, by: Actor, justification: str) -> None:
    """Set whether an account may read others' payloads.

    Raises NotFound, JustificationRequired. Its roles don't change.
    """
    _let(READS, user_id, may, by=by, justification=justification)


@two_person("roles", needs=SUPERUSER)
def let_role_read_payloads(role: str, may: bool, *, by: Actor, justification: str) -> None:
    """Set whether holders of a role may read payloads. Raises NotFound, JustificationRequired."""
    reason = justified("A change of a role's permissions", justification)
    with transaction.atomic():
        group = Group.objects.select_for_update().filter(name=role).first() if is_role(role) else None
        if group is None:
            raise NotFound("role", role)
        _change(READS, group.permissions, f"role:{role}", may, by=by, reason=reason)


class LastAdministrator(DurableAgentsError):
    """The change would leave no administrator."""

    status, code, title = 409, "last-administrator", "This installation needs an administrator"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} is the only administrator. Without one, nobody could assign roles or invite people. "
            "Make someone else an administrator first."
        )


@contextmanager
def one_is_left(*users: User) -> Iterator[None]:
    """Check within a transaction that an administrator is left after these accounts change.

    Raises LastAdministrator.
    """
    ruling = {"is_superuser": True, "is_active": True}
    held = User.objects.select_for_update().order_by("pk").filter(pk__in=[user.pk for user in users])
    names = sorted(user.username for user in held if user.is_superuser and user.is_active)
    yield
    if names:
        with connection.cursor() as cursor:  # serializes removals of administrators
            cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('administrators', 110))")
        if not User.objects.filter(**ruling).exists():
            raise LastAdministrator(", ".join(names))


def mark_of_roles(held: Iterable[str], is_admin: bool) -> str:
    """Return a short digest of a person's roles, by which a form's sender is told if they changed meanwhile."""
    return mark_of([ordered(held), is_admin])


@two_person("roles", needs=SUPERUSER)
def set_roles(
    user_id: int, roles: list[str], is_admin: bool, *, seen: str | None = None, by: Actor, justification: str
) -> None:
    """Set all roles of an account, and whether it is an administrator.

    Access to the administration changes only if the latter changes. `seen` is the `mark_of_roles` that the sender saw.
    Raises InvalidInput, Moved, LastAdministrator, NotFound, JustificationRequired.
    """
    reason = justified("A change of an account's roles", justification)
    known = known_roles()
    if problem := unknown_role(roles, known):
        raise InvalidInput(problem, errors=[{"field": "roles", "problem": problem, "fix": "one of those"}])
    with transaction.atomic(), acting(by):
        user = User.objects.select_for_update().filter(pk=user_id).first()
        if user is None:
            raise NotFound("account", user_id)
        held = {group.name: group for group in user.groups.all() if group.name in known}
        if is_moved(seen, [ordered(held), user.is_superuser]):
            raise Moved(f"The set of roles of {user.username}")
        before: dict[str, Any] = {"roles": ordered(held), "is_admin": user.is_superuser}
        after: dict[str, Any] = {"roles": ordered(set(roles)), "is_admin": is_admin}
        user.groups.remove(*(group for name, group in held.items() if name not in roles))
        user.groups.add(*Group.objects.filter(name__in=set(roles) - set(held)))
        was_admin = user.is_superuser and (user.is_staff or not is_admin)
        if is_admin != was_admin:  # Accounts that aren't administrators but have single permissions keep them.
            before["is_staff"], after["is_staff"] = user.is_staff, is_admin
            with one_is_left(user):
                user.is_staff = user.is_superuser = is_admin
                user.save(update_fields=["is_staff", "is_superuser"])
        acted("roles", by=by, subject=f"user:{user.username}", justification=reason, before=before, after=after)


def _let(right: str, user_id: int, may: bool, *, by: Actor, justification: str) -> None:
    reason = justified("A change of an account's permissions", justification)
    with transaction.atomic():
        user = User.objects.select_for_update().filter(pk=user_id).first()
        if user is None:
            raise NotFound("account", user_id)
        _change(right, user.user_permissions, f"user:{user.username}", may, by=by, reason=reason)


def _change(right: str, rights: Any, subject: str, may: bool, *, by: Actor, reason: str) -> None:
    """Give or remove a right on a locked row, and record the reason. A trigger also records the change."""
    app, _, codename = right.partition(".")
    action, text = _CALLED[right]
    found = Permission.objects.get(codename=codename, content_type__app_label=app)
    had = rights.filter(pk=found.pk).exists()
    with acting(by):
        (rights.add if may else rights.remove)(found)
    acted(action, by=by, subject=subject, justification=reason, before={text: had}, after={text: may})


def known_roles() -> list[str]:
    """Return the names of all roles: the product's own, and those that decide in queues."""
    return ordered(Group.objects.values_list("name", flat=True))


def unknown_role(roles: Collection[str], known: Collection[str]) -> str:
    """Return an error text about the first name that isn't a known role; empty if all are."""
    unknown = sorted(set(roles) - set(known))
    return f"There is no role {unknown[0][:80]!r}. Known: {', '.join(known)}." if unknown else ""


def roles_that_read() -> frozenset[str]:
    """Return the roles with the right to read payloads."""
    right = {"permissions__codename": READ_PAYLOADS, "permissions__content_type__app_label": APP}
    return frozenset(Group.objects.filter(**right).values_list("name", flat=True))


def protected(person: int | None) -> QuerySet[User]:
    """Return the accounts that can propose or approve changes of roles, except `person`'s own.

    The result is empty unless roles need two people. Closed accounts are included. With access to one of them, one
    person could act as both.
    """
    if not is_guarded("roles"):
        return User.objects.none()
    seconds = Q(is_superuser=True) | Q(is_staff=True) | Q(groups__name=OPERATOR)
    found = User.objects.filter(seconds).distinct()
    return found if person is None else found.exclude(pk=person)


def is_protected(user: Any, person: int | None) -> bool:
    """Return whether an account is one of those that `protected` returns."""
    return user is not None and user.pk is not None and protected(person).filter(pk=user.pk).exists()


def check_door(user: Any, person: int | None) -> None:
    """Check that `person` may create access to an account. Raises Forbidden."""
    if is_protected(user, person):
        raise Forbidden(
            f"Two people change rules here, and {user.get_username()!r} may be one of them: nobody else sets their "
            "password or links their account. They ask for a link to their own address on the sign-in page, or it is "
            "done on the server (manage.py changepassword)."
        )
