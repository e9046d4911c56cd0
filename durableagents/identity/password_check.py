"""Checking a password, with nothing held meanwhile that others need."""

from __future__ import annotations

import threading
from typing import Any

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User
from django.db import connection
from django.http import HttpRequest

from durableagents.identity.people import person
from ledger.errors import Busy

# A hash takes a processor for a good part of a second, on purpose. More at once would only take it from everybody else.
HASHES_AT_ONCE = 2
WAIT_SECONDS = 2.0
_hashing = threading.BoundedSemaphore(HASHES_AT_ONCE)


class PasswordBackend(ModelBackend):
    """Django's, but few hashes are made at a time, and none of them keeps a pooled connection waiting."""

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **kwargs: Any
    ) -> User | None:
        """The user, or None. Raises Busy when others' passwords are being checked."""
        if username is None or password is None:
            return None
        user = User.objects.filter(username=username).first()
        if not connection.in_atomic_block:
            connection.close()
        if not _hashing.acquire(timeout=WAIT_SECONDS):
            raise Busy("Other people are being signed in")
        try:
            if user is None:
                # Takes as long as for a name that exists, so that time doesn't tell which do.
                User().set_password(password)
                return None
            is_right = user.check_password(password)
        finally:
            _hashing.release()
        return user if is_right and self.user_can_authenticate(user) else None

    def get_user(self, user_id: int) -> User | None:
        """The account that a session names, with its roles."""
        user = person(user_id)
        return user if user is not None and self.user_can_authenticate(user) else None
