"""Evidence bundles of runs, which a stranger can verify. See README.md."""

from __future__ import annotations

from django.apps import AppConfig, apps
from django.core.exceptions import ImproperlyConfigured


class EvidenceConfig(AppConfig):
    name = "durableagents.contrib.evidence"
    label = "evidence"
    # Read by durableagents/urls_apps.py.
    api_urls = "durableagents.contrib.evidence.api_urls"
    console_urls = "durableagents.contrib.evidence.console_urls"

    def ready(self) -> None:
        """Install this app's feature. Raises ImproperlyConfigured without the seals, which sign the bundles."""
        from runs import features

        if not apps.is_installed("durableagents.contrib.seals"):
            raise ImproperlyConfigured(
                "durableagents.contrib.evidence needs durableagents.contrib.seals in INSTALLED_APPS"
            )
        links = (("Evidence", "evidence"),)
        features.install(features.Feature(name="evidence", run_links=links, archived_run_links=links))
