"""One-time links and their refusals. A token is 256 random bits and stored as digest, so it can't be guessed or read
from the database. Without the right token every link is the same unknown one."""

from __future__ import annotations

import secrets

from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.urls import reverse

from ledger.errors import DurableAgentsError


class UnknownLink(DurableAgentsError):
    """The link is invalid; nothing else is disclosed."""

    status, code, title = 404, "unknown-link", "This link leads nowhere"

    def __init__(self) -> None:
        super().__init__("It is not valid, or not any more. Ask the person who gave it to you for another.")


class EndedLink(DurableAgentsError):
    """The link was valid before. `why` completes `This link …`."""

    status, code, title = 410, "ended-link", "This link has ended"

    def __init__(self, why: str) -> None:
        super().__init__(f"This link {why}.")


# Advice about a taken name: choose another, or ask for another link.
CHOOSE, ASK = "choose another name", "ask the person who invited you for another link"


class NameTaken(DurableAgentsError):
    status, code, title = 409, "name-taken", "The name is taken"

    def __init__(self, name: str, fix: str = CHOOSE) -> None:
        super().__init__(f"There is an account named {name!r} already (capitals count for nothing): {fix}.")


def token() -> str:
    return secrets.token_urlsafe(32)


def address(view: str, *parts: str) -> str:
    """Return a link under the configured base URL, whatever the request claims."""
    return settings.DURABLEAGENTS.base_url + reverse(view, args=parts)


def free_name(name: str, fix: str = CHOOSE) -> str:
    """Return a valid, normalised, free name. Raises ValidationError, NameTaken."""
    name = User.normalize_username(name.strip())
    field = User._meta.get_field("username")
    field.run_validators(name)  # type: ignore[union-attr]
    if not name:
        raise ValidationError("Give a name.")
    if User.objects.filter(username__iexact=name).exists():
        raise NameTaken(name, fix)
    return name
