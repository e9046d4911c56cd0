"""Metrics for Prometheus at /metrics. See README.md."""

from django.apps import AppConfig


class MetricsConfig(AppConfig):
    name = "durableagents.contrib.metrics"
    label = "metrics"
    default_auto_field = "django.db.models.BigAutoField"
    # Read by durableagents/urls_apps.py.
    urls = "durableagents.contrib.metrics.urls"

    def ready(self) -> None:
        """Install this app's feature."""
        from durableagents.contrib.metrics.own_features import feature
        from runs import features

        features.install(feature())
