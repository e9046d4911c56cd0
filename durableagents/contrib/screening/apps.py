"""Hooks that screen content for every agent of the installation, and the list of what was withheld. See README.md."""

from __future__ import annotations

from django.apps import AppConfig


class ScreeningConfig(AppConfig):
    name = "durableagents.contrib.screening"
    label = "screening"
    # Read by durableagents/urls_apps.py.
    urls = "durableagents.contrib.screening.urls"

    def ready(self) -> None:
        """Install this app's feature.

        Raises ImproperlyConfigured, with a one-line text, for a hook that can't be used."""
        from durableagents.contrib.screening.hooks import screens
        from runs.features import Feature, install

        screens()
        install(Feature(name="screening", screens=screens))
