"""Holds the installation after a restore: if the database lacks acknowledged commits, nothing is sent.

See README.md."""

from django.apps import AppConfig, apps
from django.core.exceptions import ImproperlyConfigured


class RestoreHoldConfig(AppConfig):
    name = "durableagents.contrib.restore_hold"
    label = "restore_hold"
    default_auto_field = "django.db.models.BigAutoField"
    # Read by durableagents/grants.py.
    append_only_tables = ("restore_hold_pastline", "restore_hold_finding")

    def ready(self) -> None:
        """Install this app's feature.

        Raises ImproperlyConfigured if the app `halts` is not installed, since a hold is a halt."""
        if not apps.is_installed("durableagents.contrib.halts"):
            raise ImproperlyConfigured(
                "durableagents.contrib.restore_hold needs durableagents.contrib.halts in INSTALLED_APPS"
            )
        from durableagents.contrib.restore_hold.own_features import feature
        from runs import features

        features.install(feature())
