"""What the commands that serve a database ask of it first."""

from __future__ import annotations

from django.core.management.base import CommandError
from django.db import OperationalError

from runs.journal import pooler


def refuse_what_does_not_fit() -> None:
    """One line and exit code 2. While the database is away nobody can tell: then each process asks before it serves."""
    try:
        refusal = pooler.refusal()
    except OperationalError:
        return
    if refusal:
        raise CommandError(refusal, returncode=2)
