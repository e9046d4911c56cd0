"""What the tests of installed apps add to tests of the core: rows of tables, runs, samples."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from django.apps import apps


def offered(module: str, name: str) -> list[Any]:
    """Return the values of this name in `tests/contrib/APP/MODULE.py` of each installed app that has them."""
    found = []
    for config in apps.get_app_configs():
        where = config.name.replace("durableagents.contrib.", "tests.contrib.")
        if where != config.name and "." not in config.name.removeprefix("durableagents.contrib.") and find_spec(where):
            path = f"{where}.{module}"
            if find_spec(path) and hasattr(loaded := import_module(path), name):
                found.append(getattr(loaded, name))
    return found
