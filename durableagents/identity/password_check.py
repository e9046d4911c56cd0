"""Check passwords without holding shared resources meanwhile."""

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

# A hash deliberately takes much CPU time. More at once would slow down everybody else.
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
    """Refuses passwords that repeat a shorter one, such as `auditorauditor`."""

    def validate(self, password: str, user: User | None = None) -> None:
        """Check a password. Raises ValidationError if it is a repetition.

        A repeated text also occurs in the middle of the text written twice.
        """
        if password and (password + password).find(password, 1) < len(password):
            raise ValidationError("This password repeats the same text.", code="password_repeated")

    def get_help_text(self) -> str:
        return "Your password must not be a repetition of a shorter text."


class NewPasswordForm(PasswordChangeForm):
    """Django's form, which here also requires the new password to differ.

    Otherwise somebody who knows the old one keeps access.
    """

    def clean_new_password1(self) -> str:
        """Return the new password. Raises ValidationError if the new password equals the old one as typed.

        Comparing with the typed password reveals nothing about the stored one.
        """
        new: str = self.cleaned_data["new_password1"]
        if new == self.data.get("old_password"):
            raise ValidationError("This is your old password. Give another one.", code="password_unchanged")
        return new


class PasswordBackend(ModelBackend):
    """Django's backend with a limit on concurrent hashes. No database connection is held while hashing."""

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **kwargs: Any
    ) -> User | None:
        """Return the user, or None if name or password is wrong. Raises Busy at the limit of concurrent checks."""
        if username is None or password is None:
            return None
        user = User.objects.filter(username=username).first()
        with _hash_of_few():
            if user is None:
                # This makes unknown names take as long as existing ones, so that timing doesn't reveal which names
                # exist.
                User().set_password(password)
                return None
            is_right = user.check_password(password)
        return user if is_right and self.user_can_authenticate(user) else None

    def get_user(self, user_id: int) -> User | None:
        """Return the account of a session with its roles, or None."""
        user = person(user_id)
        return user if user is not None and self.user_can_authenticate(user) else None
