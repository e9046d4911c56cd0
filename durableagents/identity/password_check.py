"""Check passwords without holding shared resources."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.forms import PasswordChangeForm
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import connection
from django.http import HttpRequest

from durableagents.identity.people import person
from ledger.errors import Busy

# A hash deliberately takes much CPU time; more at once would slow everybody else.
HASHES_AT_ONCE = 2
WAIT_SECONDS = 2.0
_hashing = threading.BoundedSemaphore(HASHES_AT_ONCE)


@contextmanager
def _hash_of_few() -> Iterator[None]:
    """Limit concurrent hashes. Raises Busy at the limit."""
    if not connection.in_atomic_block:
        connection.close()
    if not _hashing.acquire(timeout=WAIT_SECONDS):
        raise Busy("Too many sign-ins are in progress")
    try:
        yield
    finally:
        _hashing.release()


def hashed(password: str) -> str:
    """Hash a new password, before any row is locked. Raises Busy."""
    with _hash_of_few():
        return make_password(password)


class NotRepeated:
    """Refuses repeated shorter passwords: `auditorauditor`."""

    def validate(self, password: str, user: User | None = None) -> None:
        """Check a password; one that occurs inside its double is a repetition. Raises ValidationError."""
        if password and (password + password).find(password, 1) < len(password):
            raise ValidationError("This password repeats the same text.", code="password_repeated")

    def get_help_text(self) -> str:
        return "Your password can't repeat the same text."


class NewPasswordForm(PasswordChangeForm):
    """Django's form, but the new password must differ: otherwise someone who knows the old one stays in."""

    def clean_new_password1(self) -> str:
        """Return the new password, compared with the typed old one: nothing stored leaks. Raises ValidationError."""
        new: str = self.cleaned_data["new_password1"]
        if new == self.data.get("old_password"):
            raise ValidationError("This is the old password. Give another one.", code="password_unchanged")
        return new


class PasswordBackend(ModelBackend):
    """Django's backend with few concurrent hashes, none of which holds a pooled connection."""

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **kwargs: Any
    ) -> User | None:
        """Return the user, or None. Raises Busy at the limit of concurrent checks."""
        if username is None or password is None:
            return None
        user = User.objects.filter(username=username).first()
        with _hash_of_few():
            if user is None:
                # Takes as long as for an existing name, so that timing reveals none.
                User().set_password(password)
                return None
            is_right = user.check_password(password)
        return user if is_right and self.user_can_authenticate(user) else None

    def get_user(self, user_id: int) -> User | None:
        """Return a session's account with its roles, or None."""
        user = person(user_id)
        return user if user is not None and self.user_can_authenticate(user) else None
