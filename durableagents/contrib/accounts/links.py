"""One-time links and their refusals.

A token is 256 random bits and is stored as a digest, so it can't be guessed or read from the database. Without the
right token, every link is answered like an unknown one.
"""

from __future__ import annotations

import secrets

from django.conf import settings
from django.urls import reverse

from ledger.errors import DurableAgentsError


class UnknownLink(DurableAgentsError):
    """The link is invalid. The error reveals nothing else."""

    status, code, title = 404, "unknown-link", "This link leads nowhere"

    def __init__(self) -> None:
        super().__init__("The link is invalid or has expired. Ask the person who gave it to you for a new one.")


class EndedLink(DurableAgentsError):
    """The link is no longer valid. `why` completes `This link …`."""

    status, code, title = 410, "ended-link", "This link has ended"

    def __init__(self, why: str) -> None:
        super().__init__(f"This link {why}.")


def token() -> str:
    return secrets.token_urlsafe(32)


def address(view: str, *parts: str) -> str:
    """Return a link under the configured base URL, whatever host the request names."""
    return settings.DURABLEAGENTS.base_url + reverse(view, args=parts)
