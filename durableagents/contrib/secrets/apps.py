"""Secrets that tools use by name. See README.md."""

from __future__ import annotations

from django.apps import AppConfig


class SecretsConfig(AppConfig):
    name = "durableagents.contrib.secrets"
    label = "secrets"

    def ready(self) -> None:
        """Install this app's feature."""
        from django.conf import settings

        from durableagents.contrib.secrets import logs
        from durableagents.contrib.secrets.store import Store
        from runs import features

        store = Store(lambda: settings.DURABLEAGENTS.secret_sources)
        features.install(features.Feature(name="secrets", secrets=store))
        logs.install()
