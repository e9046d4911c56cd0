"""Signed seals over the journals of all runs. See README.md."""

from django.apps import AppConfig


class SealsConfig(AppConfig):
    name = "durableagents.contrib.seals"
    label = "seals"
    default_auto_field = "django.db.models.BigAutoField"
    # Read by durableagents/grants.py.
    append_only_tables = ("seals_seal", "seals_sealedhead", "seals_sealkey", "seals_delivery")

    def ready(self) -> None:
        """Install this app's feature."""
        from durableagents.contrib.seals.own_features import feature
        from runs import features

        features.install(feature())
