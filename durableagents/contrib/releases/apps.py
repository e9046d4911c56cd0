"""Versions that accept new runs, ramps, and the migration of runs to another version. See README.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from django.apps import AppConfig


class ReleasesConfig(AppConfig):
    name = "durableagents.contrib.releases"
    label = "releases"
    default_auto_field = "django.db.models.BigAutoField"
    # Read by durableagents/grants.py.
    append_only_tables = ("runs_rampstart",)
    frozen_columns: ClassVar[Mapping[str, set[str]]] = {
        "runs_versiongate": {"id", "agent", "version"},
        "runs_ramp": {"id", "agent", "from_version", "to_version", "tags", "bounds", "least", "set_by", "made_at"},
    }
    # Read by durableagents/urls_apps.py.
    urls = "durableagents.contrib.releases.urls"

    def ready(self) -> None:
        """Install this app's feature, and let the installation require two people for its acts."""
        from durableagents.contrib.releases.own_features import feature
        from ledger import change_control
        from runs import features

        change_control.declare_family("releases", "which version of an agent takes new starts")
        features.install(feature())
