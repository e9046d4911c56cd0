from __future__ import annotations

import io
import logging
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db import connection
from psycopg.errors import InsufficientPrivilege

from ledger.errors import first_line

log = logging.getLogger("durableagents.migrate")


class _Lines(io.TextIOBase):
    """A stream that logs what is written to it, line by line."""

    def __init__(self, level: int) -> None:
        self._level, self._begun = level, ""

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in filter(None, map(str.strip, lines)):
            log.log(self._level, "%s", line)
        return len(text)


class Command(migrate.Command):
    """Django's command, which also honours DURABLEAGENTS_LOG_FORMAT=json."""

    def __init__(self, stdout: Any = None, stderr: Any = None, **options: Any) -> None:
        self._is_json = settings.DURABLEAGENTS.log_format == "json"
        if self._is_json:
            stdout, stderr = stdout or _Lines(logging.INFO), stderr or _Lines(logging.ERROR)
        super().__init__(stdout, stderr, **options)

    def handle(self, *args: Any, **options: Any) -> Any:
        try:
            return super().handle(*args, **options)
        except CommandError:
            raise
        except Exception as error:
            if _lacks_rights(error):
                raise CommandError(
                    f"the database role {connection.settings_dict['USER']!r} may not migrate ({first_line(error)}): "
                    "set DATABASE_OWNER_URL to the role that owns the tables, and DURABLEAGENTS_DB_ROLE=owner",
                    returncode=2,
                ) from error
            if not self._is_json:
                raise
            log.exception("migrate failed")
            raise CommandError(f"{type(error).__name__}: {error}") from error


def _lacks_rights(error: Exception) -> bool:
    """Return whether the driver's error, which Django wraps up to twice, is a lack of permissions."""
    causes = (error.__cause__, error.__context__, getattr(error.__context__, "__cause__", None))
    return any(isinstance(each, InsufficientPrivilege) for each in causes)
