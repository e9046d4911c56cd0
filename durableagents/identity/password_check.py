"""Checking a password, with nothing held meanwhile that others need."""

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

# A hash takes a processor for a good part of a second, on purpose. More at once would only take it from everybody else.
HASHES_AT_ONCE = 2
WAIT_SECONDS = 2.0
_hashing = threading.BoundedSemaphore(HASHES_AT_ONCE)


@contextmanager
def _hash_of_few() -> Iterator[None]:
    """One of few hashes at a time. Raises Busy when others' are being made."""
    if not connection.in_atomic_block:
        connection.close()
    if not _hashing.acquire(timeout=WAIT_SECONDS):
        raise Busy("Other people are being signed in")
    try:
        yield
    finally:
        _hashing.release()


def hashed(password: str) -> str:
    """A new password as it is kept, made before any row is locked. Raises Busy."""
    with _hash_of_few():
        return make_password(password)


class NotRepeated:
    """Refuses a password that is a shorter one several times over: `auditorauditor`."""

    def validate(self, password: str, user: User | None = None) -> None:
        """Raises ValidationError. A text is such a one just where it is found in its own double beside its ends."""
        if password and (password + password).find(password, 1) < len(password):
            raise ValidationError("This password is the same several times over.", code="password_repeated")

    def get_help_text(self) -> str:
        return "Your password can't be the same several times over."


class NewPasswordForm(PasswordChangeForm):
    """Django's, but the new one is another than the old: else who found the old one out goes on with it."""

    def clean_new_password1(self) -> str:
        """Raises ValidationError. It compares what was typed, so it tells nothing of what is kept."""
        new: str = self.cleaned_data["new_password1"]
        if new == self.data.get("old_password"):
            raise ValidationError("This is the old password. Give another one.", code="password_unchanged")
        return new


class PasswordBackend(ModelBackend):
    """Django's, but few hashes are made at a time, and none of them keeps a pooled connection waiting."""

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **kwargs: Any
    ) -> User | None:
        """The user, or None. Raises Busy when others' passwords are being checked."""
        if username is None or password is None:
            return None
        user = User.objects.filter(username=username).first()
        with _hash_of_few():
            if user is None:
                # Takes as long as for a name that exists, so that time doesn't tell which do.
                User().set_password(password)
                return None
            is_right = user.check_password(password)
        return user if is_right and self.user_can_authenticate(user) else None

    def get_user(self, user_id: int) -> User | None:
        """The account that a session names, with its roles."""
        user = person(user_id)
        return user if user is not None and self.user_can_authenticate(user) else None
