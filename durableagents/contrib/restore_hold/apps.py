"""A database that lacks what was acknowledged sends nothing. See README.md."""

from django.apps import AppConfig


class RestoreHoldConfig(AppConfig):
    name = "durableagents.contrib.restore_hold"
    label = "restore_hold"
    default_auto_field = "django.db.models.BigAutoField"
    # Read by durableagents/grants.py.
    append_only_tables = ("restore_hold_pastline", "restore_hold_finding")

    def ready(self) -> None:
        """Install this app's feature."""
        from durableagents.contrib.restore_hold.own_features import feature
        from runs import features

        features.install(feature())
