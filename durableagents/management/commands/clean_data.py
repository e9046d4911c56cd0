"""`manage.py clean_data`: remove what `up` created.

Refuses while `up` is running, and does not touch the database in DATABASE_URL.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from durableagents.dev.embedded_layout import SHARED_HOME, layout
from durableagents.env import EnvironmentProblem


class Command(BaseCommand):
    help = "Remove the data folder and the embedded database of this installation."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        data: Path = settings.DURABLEAGENTS.data
        lock = _lock(data)
        try:
            for path in _created(data):
                if path.is_dir():
                    shutil.rmtree(path)
                    self.stdout.write(f"removed {path}")
        except OSError as error:
            raise EnvironmentProblem(f"cannot remove {error.filename}: {error.strerror}") from None
        finally:
            os.close(lock)


def _lock(data: Path) -> int:
    descriptor = os.open(data / "up.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise EnvironmentProblem(f"still running on {data}: stop it first") from None
    return descriptor


def _created(data: Path) -> list[Path]:
    """Return the folders that `up` created.

    The data folder is last, so that after an interruption the instance's name is still known.
    """
    place = layout(data)
    folders = [place.socket_dir]
    if SHARED_HOME in place.pgdata.parents:
        folders.append(place.pgdata.parent)
        others = [each for each in SHARED_HOME.glob("*/pg") if each != place.pgdata]
        if not others:
            # All installations on this host share the copied server; the last one removes it.
            folders.extend(SHARED_HOME.glob("server-*"))
    return [*folders, data]
