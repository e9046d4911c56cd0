"""User names that can't be confused with others. A validator of the model's field, so that every form, command and
sign-in applies it."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError

from ledger.web.text_safety import pieces


def check_reads_as_written(name: str) -> None:
    """Check for invisible letters, and look-alikes of other scripts among Latin ones. Raises ValidationError."""
    for piece in pieces(name):
        if piece.is_mark:
            raise ValidationError(f"A user name must read as it is written. {piece.title}: use letters of one script.")


def guard_user_names() -> None:
    """Add the check to the user name field, once the app is ready."""
    validators = User._meta.get_field("username").validators  # type: ignore[union-attr]
    if check_reads_as_written not in validators:
        validators.append(check_reads_as_written)
