"""Proofs for approvals: a recent second factor, and typing the values being approved. See README.md."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from django.apps import AppConfig, apps
from django.core.exceptions import ImproperlyConfigured


class StepUpConfig(AppConfig):
    name = "durableagents.contrib.step_up"
    label = "step_up"
    # Read by durableagents/grants.py.
    append_only_tables = ("approvals_assertion",)

    def ready(self) -> None:
        """Install this app's feature. Raises ImproperlyConfigured if the app accounts is not installed."""
        if not apps.is_installed("durableagents.contrib.accounts"):
            raise ImproperlyConfigured(
                "durableagents.contrib.step_up requires durableagents.contrib.accounts: add it to "
                "INSTALLED_APPS, or remove both"
            )
        from durableagents.contrib.step_up.guard import FreshProof
        from durableagents.contrib.step_up.verify import Assertions
        from runs import features

        features.install(
            features.Feature(
                name="step_up",
                step_up=features.StepUp(answer=_page("answer"), ask=_page("ask")),
                decision_guards=(FreshProof(),),
                run_checks=(Assertions,),
                run_tables={"approvals_assertion": "run_id"},
            )
        )


def _page(name: str) -> Callable[..., Any]:
    """Return a wrapper that imports pages.py when it is called, so that workers don't load the sign-in code."""
    return lambda *given: getattr(import_module("durableagents.contrib.step_up.pages"), name)(*given)
