"""Check that user names can't be confused with others, and find free ones.

The check is a validator of the model's field, so every form, command and sign-in applies it.
"""

from __future__ import annotations

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError

from ledger.errors import DurableAgentsError
from ledger.web.text_safety import pieces

# Advice in the error for a taken name.
CHOOSE, ASK = "choose another name", "ask the person who invited you for another link"


class NameTaken(DurableAgentsError):
    status, code, title = 409, "name-taken", "The name is taken"

    def __init__(self, name: str, fix: str = CHOOSE) -> None:
        super().__init__(f"The user name {name!r} is taken (case is ignored): {fix}.")


def check_reads_as_written(name: str) -> None:
    """Refuse invisible characters, and look-alikes of other scripts among Latin letters. Raises ValidationError."""
    for piece in pieces(name):
        if piece.is_mark:
            raise ValidationError(f"A user name must be unambiguous. {piece.title}: use letters of one script.")


def guard_user_names() -> None:
    """Add the check to the field of user names. Called once the app is ready."""
    validators = User._meta.get_field("username").validators  # type: ignore[union-attr]
    if check_reads_as_written not in validators:
        validators.append(check_reads_as_written)


def free_name(name: str, fix: str = CHOOSE) -> str:
    """Return the normalised name if it is valid and free. Raises ValidationError, NameTaken."""
    name = User.normalize_username(name.strip())
    field = User._meta.get_field("username")
    field.run_validators(name)  # type: ignore[union-attr]
    if not name:
        raise ValidationError("Give a name.")
    if User.objects.filter(username__iexact=name).exists():
        raise NameTaken(name, fix)
    return name
