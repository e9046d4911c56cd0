"""Export of runs as OpenTelemetry traces. See README.md."""

from __future__ import annotations

from django.apps import AppConfig
from django.core.exceptions import ImproperlyConfigured


class TracingConfig(AppConfig):
    name = "durableagents.contrib.tracing"
    label = "tracing"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Install this app's feature if a collector is configured. Otherwise nothing is imported.

        Raises ImproperlyConfigured."""
        if is_on():
            from runs.engine import extras

            if lack := extras.missing("opentelemetry.sdk", "opentelemetry.exporter"):
                raise ImproperlyConfigured(
                    f"DURABLEAGENTS_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_…ENDPOINT is set: {lack}"
                )
            from durableagents.contrib.tracing.own_features import feature
            from runs import features

            features.install(feature())


def is_on() -> bool:
    """Return whether a collector is configured."""
    from django.conf import settings

    known = settings.DURABLEAGENTS
    has_collector = known.otlp_endpoint or known.otel_endpoint or known.otel_traces_endpoint
    return bool(has_collector) and not known.is_otel_disabled
