"""The hooks that DURABLEAGENTS_SCREENS names, which apply to every agent of the installation."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from runs.engine.content.hooks import Screen, check_screens
from runs.engine.errors import DefinitionError


def screens() -> tuple[Screen, ...]:
    """Return the hooks in order. Raises ImproperlyConfigured if one is missing or invalid."""
    return _load(tuple(settings.DURABLEAGENTS.screens))


@lru_cache(maxsize=8)
def _load(names: tuple[str, ...]) -> tuple[Screen, ...]:
    found = tuple(_hook(name) for name in names)
    try:
        check_screens("DURABLEAGENTS_SCREENS", found)
    except DefinitionError as error:
        raise ImproperlyConfigured(error.detail) from error
    return found


def _hook(name: str) -> Screen:
    module, sign, member = name.partition(":")
    try:
        found = getattr(import_module(module), member) if sign and member else None
    except (Exception, SystemExit) as error:
        problem = f"{type(error).__name__}: {str(error)[:300]}"
        raise ImproperlyConfigured(f"DURABLEAGENTS_SCREENS: {name}: {' '.join(problem.split())}") from error
    if not isinstance(found, Screen):
        problem = "is not a hook: name a function with @screen(…), as module:function"
        raise ImproperlyConfigured(f"DURABLEAGENTS_SCREENS: {name} {problem}")
    return found
