"""Evidence bundles of runs, which outsiders can verify. See README.md."""

from __future__ import annotations

from django.apps import AppConfig, apps
from django.core.exceptions import ImproperlyConfigured


class EvidenceConfig(AppConfig):
    name = "durableagents.contrib.evidence"
    label = "evidence"
    # durableagents/urls_apps.py reads these.
    urls = "durableagents.contrib.evidence.urls"

    def ready(self) -> None:
        """Register this app's feature. Raises ImproperlyConfigured without the seals app, which signs the bundles."""
        from runs import features

        if not apps.is_installed("durableagents.contrib.seals"):
            raise ImproperlyConfigured(
                "durableagents.contrib.evidence needs durableagents.contrib.seals in INSTALLED_APPS"
            )
        links = (("Evidence", "evidence"),)
        features.install(features.Feature(name="evidence", run_links=links, archived_run_links=links))
